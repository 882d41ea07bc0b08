"""What the gate remembers is bounded, and to forget changes no decision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import NotReady, PermissionDenied
from logservice_wire.rpcs import READ, TRUNCATE

from logservice import bounds
from logservice.access import AccessList, Grant
from logservice.ids import ShardId
from logservice.server.edge.gate import Gate, Identities

FOREVER = float("inf")


def gate_of(*grants: Grant) -> tuple[Gate, list[ShardId]]:
    """A gate, and the list of shards whose names it asks for."""
    asked: list[ShardId] = []

    async def name_of(shard: ShardId) -> str:
        asked.append(shard)
        return f"shard-{shard}"

    access: Any = SimpleNamespace(list=AccessList(1, grants))
    return Gate(access, Identities("d", "c"), name_of), asked


class _Lists:
    """The access list in force; a test puts another one there."""

    def __init__(self, *grants: Grant) -> None:
        self.list = AccessList(1, grants)


async def test_what_is_not_granted_is_denied() -> None:
    """INV-GATE-1, without a grant, with a grant over something else, and without an answer about a
    shard's name.
    """

    async def name_of(_: ShardId) -> str:
        raise NotReady("no HAKeeper")

    access: Any = _Lists(Grant("other", "*", ("read",)), Grant("named", "name/*", ("read",)))
    gate = Gate(access, Identities("d", "c"), name_of)
    for identity in ("nobody", "named"):
        with pytest.raises(PermissionDenied):
            await gate.admit(gate._known(b"x", identity, FOREVER), READ, ShardId(1))
        gate._callers.clear()
    with pytest.raises(PermissionDenied):
        await gate.admit(gate._known(b"o", "other", FOREVER), TRUNCATE, ShardId(1))
    await gate.admit(gate._known(b"o", "other", FOREVER), READ, ShardId(1))
    assert gate.denied == 3


async def test_a_decision_lasts_as_long_as_what_it_rests_on() -> None:
    """INV-GATE-2: a decision rests on the list and on the certificate."""
    gate, _ = gate_of()
    access: Any = _Lists(Grant("me", "*", ("read",)))
    gate.access = access
    me = gate._known(b"me", "me", FOREVER)
    listed = await gate.admit(me, READ, ShardId(1))
    assert gate.in_force(me, listed)
    access.list = AccessList(2, ())
    assert not gate.in_force(me, listed)
    with pytest.raises(PermissionDenied):
        await gate.admit(me, READ, ShardId(1))
    expired = gate._known(b"late", "me", 0.0)
    assert not gate.in_force(expired, access.list)


def test_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """GATE_CALLERS_MAX bounds certificates and identities; a caller with calls under way keeps its
    quota.
    """
    monkeypatch.setattr(bounds, "GATE_CALLERS_MAX", 3)
    gate, _ = gate_of()
    busy = gate._known(b"0", "c0", FOREVER).quota
    busy.begin_rpc()
    for number in range(1, 20):
        gate._known(b"%d" % number, f"c{number}", FOREVER)
        assert len(gate._callers) <= 3
        assert len(gate._quotas) <= 4
    assert gate._known(b"new", "c0", FOREVER).quota is busy


async def test_so_many_decisions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "GATE_DECISIONS_MAX", 5)
    gate, _ = gate_of(Grant("me", "shard/7", ("read",)))
    me = gate._known(b"me", "me", FOREVER)
    for number in range(1, 40):
        shard = ShardId(number)
        if number == 7:
            await gate.admit(me, READ, shard)
        else:
            with pytest.raises(PermissionDenied):
                await gate.admit(me, READ, shard)
        assert len(gate._decided) <= 6
    await gate.admit(me, READ, ShardId(7))


async def test_so_many_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "GATE_NAMES_MAX", 4)
    gate, asked = gate_of(Grant("me", "name/shard-*", ("read",)))
    me = gate._known(b"me", "me", FOREVER)
    for number in range(1, 20):
        await gate.admit(me, READ, ShardId(number))
        assert len(gate._names) <= 4
    assert asked == [ShardId(number) for number in range(1, 20)]
