"""What the gate remembers is bounded, and to forget changes no decision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import PermissionDenied
from logservice_wire.rpcs import READ

from logservice import bounds
from logservice.access import AccessList, Grant
from logservice.ids import ShardId
from logservice.server.edge.gate import Gate, Identities

FOREVER = float("inf")


def gate_of(*grants: Grant) -> tuple[Gate, list[ShardId]]:
    """And the shards whose names it asked for."""
    asked: list[ShardId] = []

    async def name_of(shard: ShardId) -> str:
        asked.append(shard)
        return f"shard-{shard}"

    access: Any = SimpleNamespace(list=AccessList(1, grants))
    return Gate(access, Identities("d", "c"), name_of), asked


def test_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """GATE_CALLERS_MAX, of certificates and of identities; who is busy keeps his quota."""
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
