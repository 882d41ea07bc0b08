"""What the gate remembers is bounded, and to forget changes no decision."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import NotReady, PermissionDenied, Unauthenticated
from logservice_wire.rpcs import (
    GET_CLUSTER_STATE,
    GET_SHARD_INFO,
    MOVE_REPLICA,
    READ,
    RESOLVE_SHARD,
    TRUNCATE,
)

from logservice import bounds
from logservice.access import AccessList, Grant
from logservice.clock import ManualClock
from logservice.identity import Identity, IdentityKind
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.server.edge.gate import DIRECTORY, Gate, Identities
from logservice.server.edge.quota import QuotaLimits
from logservice.server.tokens.token_check import CheckedToken

FOREVER = float("inf")


def gate_of(*grants: Grant) -> tuple[Gate, list[ShardId]]:
    """A gate, and the list of shards whose names it asks for."""
    asked: list[ShardId] = []

    async def name_of(shard: ShardId) -> str:
        asked.append(shard)
        return f"shard-{shard}"

    access: Any = SimpleNamespace(list=AccessList(1, grants), current=True, too_old=False)
    return Gate(access, Identities("d", "c"), name_of), asked


class _Lists:
    """The access list in force; a test puts another one there."""

    def __init__(self, *grants: Grant) -> None:
        self.list = AccessList(1, grants)
        self.current = True
        self.too_old = False


async def test_what_is_not_granted_is_denied() -> None:
    """INV-GATE-1, without a grant, and with a grant over something else."""

    async def name_of(_: ShardId) -> str:
        return "attic"

    access: Any = _Lists(Grant("other", "*", ("read",)), Grant("named", "name/w*", ("read",)))
    gate = Gate(access, Identities("d", "c"), name_of)
    for identity in ("nobody", "named"):
        with pytest.raises(PermissionDenied):
            await gate.admit(gate._known(b"x", identity, FOREVER), READ, ShardId(1))
        gate._callers.clear()
    with pytest.raises(PermissionDenied):
        await gate.admit(gate._known(b"o", "other", FOREVER), TRUNCATE, ShardId(1))
    await gate.admit(gate._known(b"o", "other", FOREVER), READ, ShardId(1))
    assert gate.denied == 3


async def test_what_cannot_be_told_is_neither_let_in_nor_denied() -> None:
    """INV-GATE-3: a name that nobody can tell now, and a list that may have been changed since."""
    silent = True

    async def name_of(_: ShardId) -> str:
        if silent:
            raise NotReady("no HAKeeper")
        return "wal"

    access: Any = _Lists(
        Grant("me", "name/w*", ("read",)),
        Grant("me", "shard/7", ("read",)),
        Grant("me", "cluster", ("read",)),
    )
    gate = Gate(access, Identities("d", "c"), name_of)
    me, nobody = gate._known(b"me", "me", FOREVER), gate._known(b"x", "nobody", FOREVER)
    with pytest.raises(NotReady) as caught:
        await gate.admit(me, READ, ShardId(1))
    assert caught.value.metadata == {DIRECTORY: "name", "shard": "1"}
    await gate.admit(me, READ, ShardId(7))
    await gate.admit(me, GET_SHARD_INFO, ShardId(1))
    access.current = False
    for caller, rpc, shard in ((nobody, READ, 1), (nobody, READ, 7), (me, TRUNCATE, 0)):
        with pytest.raises(NotReady) as caught:
            await gate.admit(caller, rpc, ShardId(shard))
        assert caught.value.metadata == {DIRECTORY: "grants"}
    assert gate.denied == 0
    silent = False
    await gate.admit(me, READ, ShardId(1))
    with pytest.raises(NotReady):
        await gate.admit(me, TRUNCATE, ShardId(1))
    access.current = True
    for caller, rpc in ((nobody, READ), (me, TRUNCATE)):
        with pytest.raises(PermissionDenied):
            await gate.admit(caller, rpc, ShardId(1))
    assert gate.denied == 2


async def test_a_denial_by_name_lets_nobody_in_before_the_name_is_known() -> None:
    """INV-ACCESS-3, INV-GATE-1: the grant is by id and known; the rule speaks of names."""
    names: dict[int, str | None] = {1: "wal-1", 2: "other"}
    silent = True

    async def name_of(shard: ShardId) -> str | None:
        if silent:
            raise NotReady("no HAKeeper")
        return names.get(shard)

    access: Any = _Lists()
    access.list = AccessList(
        1,
        [Grant("me", "*", ("admin", "read")), Grant("you", "*", ("read",))],
        [Grant("me", "name/wal-*", ("all",))],
    )
    gate = Gate(access, Identities("d", "c", ["boss"]), name_of)
    me, you = gate._known(b"me", "me", FOREVER), gate._known(b"you", "you", FOREVER)
    for shard in (1, 2):
        with pytest.raises(NotReady) as caught:
            await gate.admit(me, READ, ShardId(shard))
        assert caught.value.metadata[DIRECTORY] == "name"
    await gate.admit(you, READ, ShardId(1))
    # The cluster has no name.
    await gate.admit(me, GET_CLUSTER_STATE, HAKEEPER_SHARD)
    silent = False
    await gate.admit(me, READ, ShardId(2))
    for rpc in (READ, GET_SHARD_INFO, MOVE_REPLICA):
        with pytest.raises(PermissionDenied) as refused:
            await gate.admit(me, rpc, ShardId(1))
        assert refused.value.metadata["by"] == "rule"
        # There is no such log now. There may be one in a moment, and then it may have that name.
        with pytest.raises(PermissionDenied) as refused:
            await gate.admit(me, rpc, ShardId(3))
        assert "by" not in refused.value.metadata
    names[3] = "made since"
    await gate.admit(me, READ, ShardId(3))
    await gate.admit(me, RESOLVE_SHARD, HAKEEPER_SHARD, "other")
    with pytest.raises(PermissionDenied) as refused:
        await gate.admit(me, RESOLVE_SHARD, HAKEEPER_SHARD, "wal-9")
    assert refused.value.metadata["by"] == "rule"
    # An older list denies nothing for good: the rule may be gone.
    access.current = False
    with pytest.raises(NotReady) as caught:
        await gate.admit(me, READ, ShardId(1))
    assert caught.value.metadata == {DIRECTORY: "grants"}


async def test_a_configured_admin_is_denied_nothing() -> None:
    access: Any = _Lists()
    access.list = AccessList(1, (), [Grant("boss", "*", ("all",)), Grant("*", "*", ("all",))])
    gate = Gate(access, Identities("d", "c", ["boss"]), gate_of()[0].name_of)
    boss = gate._known(b"boss", "boss", FOREVER)
    assert await gate.admit(boss, TRUNCATE, ShardId(1)) is None


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
    access.list = AccessList(3, (Grant("me", "*", ("read",)),))
    listed = await gate.admit(me, READ, ShardId(1))
    access.too_old = True
    assert not gate.in_force(me, listed)
    with pytest.raises(NotReady) as caught:
        await gate.admit(me, READ, ShardId(1))
    assert caught.value.metadata == {DIRECTORY: "age"}
    access.too_old = False
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


def test_a_change_of_limits_reaches_everybody_who_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after more identities came than the gate remembers: nobody goes on by an old quota, and
    two certificates of one identity share theirs.
    """
    monkeypatch.setattr(bounds, "GATE_CALLERS_MAX", 3)
    gate, _ = gate_of()
    most = 9
    gate.limits_of = lambda uri: QuotaLimits(rpcs_max=1 if uri == "few" else most)
    busy = gate._known(b"busy", "busy", FOREVER).quota
    busy.begin_stream()
    for number in range(10):
        gate._known(b"%d" % number, f"c{number}", FOREVER)
        one = gate._known(b"few", "few", FOREVER).quota
        assert gate._known(b"few-2", "few", FOREVER).quota is one
        most = 20 + number
        gate.take_limits()
        assert all(caller.quota.limits.rpcs_max in (1, most) for caller in gate._callers.values())
        assert gate._known(b"few", "few", FOREVER).quota.limits.rpcs_max == 1
        assert busy.limits.rpcs_max == most


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


async def test_a_renamed_shard_is_asked_for_again_when_the_list_is_newer() -> None:
    """A rename gives the list another version; what was decided by the old name is forgotten."""
    names = {ShardId(1): "wal"}

    async def name_of(shard: ShardId) -> str:
        return names[shard]

    grant = Grant("me", "name/wal", ("read",))
    access: Any = _Lists(grant)
    gate = Gate(access, Identities("d", "c"), name_of)
    me = gate._known(b"me", "me", FOREVER)
    await gate.admit(me, READ, ShardId(1))
    names[ShardId(1)] = "attic"
    access.list = AccessList(2, (grant,))
    with pytest.raises(PermissionDenied):
        await gate.admit(me, READ, ShardId(1))


async def test_a_name_that_was_asked_for_under_an_older_list_is_not_remembered() -> None:
    grant = Grant("me", "name/wal", ("read",))
    grant_of_op = Grant("op", "*", ("read",))
    lists = [AccessList(1, (grant, grant_of_op)), AccessList(2, (grant, grant_of_op))]
    access: Any = _Lists()
    access.list = lists[0]

    async def renamed_meanwhile(_: ShardId) -> str:
        if access.list is lists[0]:
            access.list = lists[1]
            await gate.admit(gate._known(b"op", "op", FOREVER), READ, HAKEEPER_SHARD)
            return "wal"
        return "attic"

    gate = Gate(access, Identities("d", "c"), renamed_meanwhile)
    me = gate._known(b"me", "me", FOREVER)
    await gate.admit(me, READ, ShardId(1))
    with pytest.raises(PermissionDenied):
        await gate.admit(me, READ, ShardId(1))


# --- what is over by one of two clocks -----------------------------------------------------------

STARTED_S, HOUR_S, DAY_S = 1_700_000_000.0, 3600.0, 86_400.0
DECADE_S = 3652 * DAY_S


def gate_with_tokens(clock: ManualClock, ends_s: float) -> Gate:
    """A gate to which every token is one of a client, and good until a time of day."""
    checked = CheckedToken(Identity("d", "c", IdentityKind.CLIENT, "app"), ends_s, {})
    tokens: Any = SimpleNamespace(check=lambda _: checked, keys=lambda: checked.keys)

    async def name_of(_: ShardId) -> str:
        return "wal"

    lists: Any = _Lists(Grant(checked.identity.uri, "*", ("read",)))
    return Gate(lists, Identities("d", "c", tokens=tokens), name_of, clock=clock)


@pytest.mark.parametrize("step_s", [1.0, -1.0, HOUR_S, -HOUR_S, DAY_S, -DAY_S, DECADE_S, -DECADE_S])
async def test_no_step_of_the_wall_clock_prolongs_a_token(step_s: float) -> None:
    """INV-GATE-2, INV-EXPIRY: between two calls, and within a stream."""
    clock = ManualClock(STARTED_S)
    gate = gate_with_tokens(clock, STARTED_S + 2 * HOUR_S)
    shown = b"", ["Bearer t"]
    caller = gate.bearer(*shown)
    listed = await gate.admit(caller, READ, ShardId(1))
    clock.advance(HOUR_S)
    clock.set_wall(step_s)
    assert gate.in_force(caller, listed) == (step_s < HOUR_S)
    if step_s >= HOUR_S:
        with pytest.raises(Unauthenticated, match="expired"):
            gate.bearer(*shown)
    clock.set_wall(-step_s)
    assert gate.bearer(*shown) is caller
    assert gate.in_force(caller, listed)
    clock.set_wall(step_s)
    clock.advance(HOUR_S)
    assert not gate.in_force(caller, listed)
    with pytest.raises(Unauthenticated, match="expired"):
        gate.bearer(*shown)


async def test_a_suspended_host_keeps_no_caller() -> None:
    """Also if its battery was empty, and the wall clock is where it was, or before."""
    for back_s in (0.0, 2 * HOUR_S, DECADE_S):
        clock = ManualClock(STARTED_S)
        gate = gate_with_tokens(clock, STARTED_S + HOUR_S)
        caller = gate.bearer(b"", ["Bearer t"])
        clock.suspend(2 * HOUR_S)
        clock.set_wall(-back_s)
        assert not gate.in_force(caller, None)
        with pytest.raises(Unauthenticated, match="expired"):
            gate.bearer(b"", ["Bearer t"])


async def test_who_was_refused_by_a_wrong_clock_is_let_in_by_a_right_one() -> None:
    """Nothing of the years that did not pass is remembered."""
    clock = ManualClock(STARTED_S)
    gate = gate_with_tokens(clock, STARTED_S + HOUR_S)
    clock.set_wall(DECADE_S)
    with pytest.raises(Unauthenticated, match="expired"):
        gate.bearer(b"", ["Bearer t"])
    clock.set_wall(-DECADE_S)
    assert gate.bearer(b"", ["Bearer t"]).uri.endswith("app")
