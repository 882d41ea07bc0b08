"""Holds that expire: who counts, from when on, and what an expiry that is late or wrong does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from logservice_wire.errors import Busy, NotLeader, Reason

from logservice.bounds import HOLD_EXPIRIES_PER_LOOK_MAX, HOLD_LOOK_S
from logservice.clock import ManualClock
from logservice.ids import Index, Lsn, ShardId
from logservice.nodehost.replica.hold_expiry import HoldExpiry
from logservice.nodehost.replica.hold_times import HoldTimes
from logservice.outcome import Applied
from logservice.rsm import commands
from logservice.rsm.commands import Command, ExpireHold, RenewHold, SetHoldFor, Truncate
from logservice.rsm.state import Hold, LogState
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP
from tests.waiting import eventually

TTL_S = 60


@dataclass
class OneReplica:
    """What `HoldExpiry` sees of a replica. Proposals wait until the test answers them."""

    shard: ShardId = ShardId(7)
    stopped: bool = False
    ready_to_lead: bool = True
    hold_times: HoldTimes = field(default_factory=HoldTimes)
    log_rsm: Any = field(default_factory=lambda: SimpleNamespace(state=LogState()))
    raft: Any = field(default_factory=lambda: SimpleNamespace(term=3))
    proposed: list[tuple[Command, asyncio.Future[Applied]]] = field(default_factory=list)
    busy: bool = False

    @property
    def state(self) -> LogState:
        state: LogState = self.log_rsm.state
        return state

    def propose(self, command: bytes, deadline_s: float) -> asyncio.Future[Applied]:
        if self.busy:
            raise Busy("full", retry_after_ms=1)
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.proposed.append((commands.decode(command), future))
        return future

    def asked(self) -> list[Command]:
        """What was proposed since the last call, as applied at once."""
        found, self.proposed = self.proposed, []
        for command, future in found:
            assert isinstance(command, ExpireHold)
            known = self.state.holds.get(command.name)
            due = known is not None and known.revision == command.revision
            if due:
                self.state.drop_hold(command.name)
            future.set_result(Applied(duplicate=not due))
        return [command for command, _ in found]


class Rig:
    """The expiry of one store, and a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000.0)
        self.expiry = HoldExpiry(self.clock)
        self.replica = OneReplica()

    def hold(self, revision: int, ttl_s: int = TTL_S, name: str = "h") -> None:
        """Apply an entry that sets or renews a hold."""
        self.replica.state.put_hold(name, Hold(Lsn(5), APP.identity, Index(revision), ttl_s))
        self.expiry.changed(self.replica)  # type: ignore[arg-type]

    def ticks(self, seconds: float) -> list[Command]:
        """Time passes, in ticks of 100 ms; what was proposed meanwhile."""
        found: list[Command] = []
        for _ in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.expiry.tick(self.clock.monotonic())
            found += self.replica.asked()
        return found

    @property
    def left_s(self) -> float | None:
        """What the status says."""
        return self.expiry.times(self.replica)["h"].expires_in_s  # type: ignore[arg-type]


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_inv_hold_ttl_and_inv_hold_expires(rig: Rig) -> None:
    """INV-HOLD-TTL and INV-HOLD-EXPIRES: not before its time, and within two looks after it."""
    rig.hold(11)
    assert rig.ticks(TTL_S) == []
    assert rig.ticks(2 * HOLD_LOOK_S) == [ExpireHold(Index(11), "h")]
    await asyncio.sleep(0)
    assert rig.expiry.expired == 1
    assert rig.ticks(3 * TTL_S) == []
    assert not rig.expiry._timed


async def test_inv_hold_ttl_a_renewal_begins_anew(rig: Rig) -> None:
    rig.hold(11)
    for revision in range(12, 18):
        assert rig.ticks(TTL_S - 1) == []
        rig.hold(revision)
    assert rig.ticks(TTL_S) == []
    assert rig.ticks(2 * HOLD_LOOK_S) == [ExpireHold(Index(17), "h")]


async def test_inv_hold_ttl_what_the_status_learns_first_is_not_older_for_that(rig: Rig) -> None:
    """A tick is late, the hold is set, and somebody asks before the next tick."""
    rig.ticks(1)
    rig.clock.advance(0.9)
    rig.hold(11)
    assert rig.left_s == TTL_S
    assert rig.ticks(TTL_S - 0.1) == []


async def test_inv_hold_ttl_a_new_leader_and_a_new_term_begin_anew(rig: Rig) -> None:
    rig.replica.ready_to_lead = False
    rig.hold(11)
    assert rig.ticks(5 * TTL_S) == [], "it does not lead"
    assert rig.left_s is None
    rig.replica.ready_to_lead = True
    assert rig.ticks(TTL_S - 1) == []
    rig.replica.raft.term += 1
    assert rig.ticks(TTL_S) == []
    assert rig.ticks(2 * HOLD_LOOK_S) == [ExpireHold(Index(11), "h")]


async def test_inv_hold_ttl_a_pause_of_the_process_is_one_look(rig: Rig) -> None:
    """What renews the hold may wait in a socket."""
    rig.hold(11)
    rig.ticks(1)
    rig.clock.advance(10 * TTL_S)
    assert rig.ticks(0.1) == []
    left_s = rig.left_s
    assert left_s is not None
    assert TTL_S - 3 * HOLD_LOOK_S < left_s <= TTL_S


async def test_a_hold_without_a_time_to_live_is_not_looked_at_again(rig: Rig) -> None:
    rig.hold(11, ttl_s=0)
    assert rig.ticks(100 * TTL_S) == []
    assert not rig.expiry._timed
    age_s = rig.expiry.times(rig.replica)["h"].age_s  # type: ignore[arg-type]
    assert 100 * TTL_S - 2 * HOLD_LOOK_S <= age_s <= 100 * TTL_S


async def test_an_expiry_that_came_to_nothing_is_proposed_again_and_never_twice_at_once(
    rig: Rig,
) -> None:
    rig.hold(11)
    rig.replica.busy = True
    assert rig.ticks(TTL_S + 5) == []
    rig.replica.busy = False
    for _ in range(50):  # unanswered
        rig.clock.advance(0.1)
        rig.expiry.tick(rig.clock.monotonic())
    ((command, future),) = rig.replica.proposed
    rig.replica.proposed.clear()
    future.set_exception(NotLeader("for a moment"))
    await asyncio.sleep(0)
    assert rig.ticks(2 * HOLD_LOOK_S) == [command]
    await asyncio.sleep(0)
    assert rig.expiry.expired == 1


async def test_a_look_proposes_a_bounded_number(rig: Rig) -> None:
    count = HOLD_EXPIRIES_PER_LOOK_MAX + 3
    for number in range(count):
        rig.hold(11, name=f"h{number}")
    assert rig.ticks(TTL_S) == []
    counts = []
    for _ in range(6):
        counts.append(len(rig.ticks(HOLD_LOOK_S / 2)))
        await asyncio.sleep(0)
    assert [found for found in counts if found] == [HOLD_EXPIRIES_PER_LOOK_MAX, 3]


async def test_a_stopped_replica_is_let_go(rig: Rig) -> None:
    rig.hold(11)
    rig.ticks(2)
    rig.replica.stopped = True
    assert rig.ticks(2 * TTL_S) == []
    assert not rig.expiry._timed


async def test_a_state_from_a_snapshot_is_seen_anew(rig: Rig) -> None:
    """Its count of changes may be that of the old state by chance."""
    rig.hold(11)
    rig.ticks(TTL_S - 5)
    rig.replica.log_rsm.state = LogState()
    rig.replica.hold_times.changes = -1
    rig.hold(12)
    assert rig.ticks(TTL_S) == []
    assert rig.ticks(2 * HOLD_LOOK_S) == [ExpireHold(Index(12), "h")]


async def test_the_oldest_age_is_of_holds_that_keep_back_a_truncation(rig: Rig) -> None:
    rig.hold(11, ttl_s=0)
    rig.ticks(100)

    def oldest_s() -> float:
        return rig.expiry.oldest_age_s(rig.replica)  # type: ignore[arg-type]

    assert oldest_s() == 0
    rig.replica.state.requested_lsn = Lsn(4)
    assert oldest_s() == 0
    rig.replica.state.requested_lsn = Lsn(5)
    assert 98 <= oldest_s() <= 100
    rig.replica.state.put_hold("h", Hold(Lsn(5), APP.identity, Index(12)))
    assert oldest_s() == 0


# --- three stores ---------------------------------------------------------------------------------


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, quiesce_ticks=10)
    await cluster.up()
    yield cluster
    await cluster.down()


async def propose(cluster: Cluster, number: int, command: Command) -> Applied:
    return await cluster.host(number).propose(SHARD, commands.encode(command), 30.0)


def holds(cluster: Cluster, number: int) -> dict[str, Hold]:
    rsm = cluster.replica(number).log_rsm
    assert rsm is not None
    return rsm.state.holds


async def held(cluster: Cluster) -> int:
    """A log with a hold that keeps back a truncation; returns the leader's store."""
    leader = await cluster.leader()
    for _ in range(9):
        await cluster.host(leader).append(SHARD, request(), 30.0)
    await propose(cluster, leader, SetHoldFor(APP, False, Lsn(4), TTL_S, "h"))
    await propose(cluster, leader, Truncate(APP, Lsn(8), 0))
    for number in (1, 2, 3):
        await eventually(
            lambda number=number: (
                bool(holds(cluster, number)) and SHARD in cluster.host(number).hold_expiry._timed
            )
        )
    return leader


def quiesced(cluster: Cluster) -> bool:
    return all(cluster.replica(number).raft.quiesced for number in (1, 2, 3))


async def test_a_hold_of_a_quiesced_shard_expires_and_truncates_everywhere(
    cluster: Cluster,
) -> None:
    leader = await held(cluster)
    await eventually(lambda: quiesced(cluster))
    before = cluster.replica(leader).applied
    await asyncio.sleep(2 * HOLD_LOOK_S)
    assert quiesced(cluster), "looking wakes nobody"
    assert cluster.replica(leader).applied == before
    for number in (1, 2, 3):
        cluster.host(number).hold_expiry.now_s += TTL_S
    for number in (1, 2, 3):
        await eventually(lambda number=number: not holds(cluster, number))
        rsm = cluster.replica(number).log_rsm
        assert rsm is not None
        assert rsm.state.truncated_lsn == 8
    expired = {number: cluster.host(number).hold_expiry.expired for number in (1, 2, 3)}
    assert expired == {1: 0, 2: 0, 3: 0, leader: 1}
    assert cluster.replica(leader).applied == before + 1
    await eventually(lambda: quiesced(cluster))


async def test_after_a_change_of_the_leader_the_hold_lives_for_its_time_again(
    cluster: Cluster,
) -> None:
    leader = await held(cluster)
    for number in (1, 2, 3):
        cluster.host(number).hold_expiry.now_s += TTL_S - 5 * HOLD_LOOK_S
    await cluster.stores[leader].down()
    other = await cluster.leader()
    assert other != leader
    expiry, replica = cluster.host(other).hold_expiry, cluster.replica(other)
    await eventually(lambda: replica.ready_to_lead)
    time = expiry.times(replica)["h"]
    assert time.expires_in_s is not None
    assert time.expires_in_s > TTL_S - 3 * HOLD_LOOK_S
    assert time.age_s > TTL_S - 6 * HOLD_LOOK_S, "it has known of the hold for as long"
    expiry.now_s += TTL_S
    await eventually(lambda: not holds(cluster, other))


async def test_a_deposed_leader_that_was_paused_expires_nothing(cluster: Cluster) -> None:
    """It still believes that it leads, and its time is over."""
    leader = await held(cluster)
    others = [number for number in (1, 2, 3) if number != leader]
    old = cluster.host(leader)
    old.ticker.stop()  # it stands still
    await eventually(lambda: any(cluster.replica(number).ready_to_lead for number in others))
    new = next(number for number in others if cluster.replica(number).ready_to_lead)
    renewed = await propose(cluster, new, RenewHold(APP, "h"))
    old.hold_expiry.now_s += 10 * TTL_S
    old.ticker.start()  # it goes on
    await eventually(lambda: cluster.replica(leader).raft.leader == cluster.replica(new).replica_id)
    await eventually(lambda: cluster.replica(leader).applied == cluster.replica(new).applied)
    await asyncio.sleep(2 * HOLD_LOOK_S)
    for number in (1, 2, 3):
        assert holds(cluster, number)["h"].revision == renewed.value
    assert old.hold_expiry.expired == 0


async def test_a_late_expiry_of_the_leader_itself_meets_the_newer_revision(
    cluster: Cluster,
) -> None:
    leader = await held(cluster)
    first = holds(cluster, leader)["h"].revision
    renewed = await propose(cluster, leader, RenewHold(APP, "h"))
    outcome = await propose(cluster, leader, ExpireHold(first, "h"))
    assert outcome.duplicate
    assert holds(cluster, leader)["h"].revision == renewed.value


async def test_a_hold_is_known_again_after_a_restart(cluster: Cluster) -> None:
    leader = await held(cluster)
    for number in (1, 2, 3):
        await cluster.stores[number].down()
    for number in (1, 2, 3):
        await cluster.stores[number].up()
    cluster.introduce()
    again = await cluster.leader()
    replica = cluster.replica(again)
    await eventually(lambda: replica.ready_to_lead and bool(holds(cluster, again)))
    expiry = cluster.host(again).hold_expiry
    assert expiry.times(replica)["h"].age_s < TTL_S
    expiry.now_s += TTL_S - 1
    await asyncio.sleep(0)
    assert holds(cluster, again), f"{leader} led before"
    await eventually(lambda: SHARD in expiry._timed)
    expiry.now_s += TTL_S
    await eventually(lambda: not holds(cluster, again))


async def test_a_follower_refuses_to_expire(cluster: Cluster) -> None:
    """The command is none that is forwarded."""
    leader = await held(cluster)
    follower = leader % 3 + 1
    with pytest.raises(NotLeader) as refused:
        await propose(cluster, follower, ExpireHold(holds(cluster, leader)["h"].revision, "h"))
    assert refused.value.reason is Reason.NOT_LEADER


def put(state: LogState, revision: int, lsn: int = 5) -> None:
    state.put_hold("h", Hold(Lsn(lsn), APP.identity, Index(revision), TTL_S))


def ended_and_set(state: LogState) -> None:
    state.drop_hold("h")
    put(state, 13)


def moved_and_back(state: LogState) -> None:
    put(state, 13, lsn=6)
    put(state, 14)


@pytest.mark.parametrize("again", [ended_and_set, moved_and_back])
def test_a_hold_stands_since_it_was_put_there_last(again: Callable[[LogState], None]) -> None:
    """INV-READER-HOLD. Seed 910000530: a hold ended and was set again between two looks, and was
    let go for the time before that, too.
    """
    times, state = HoldTimes(), LogState()
    put(state, 11)
    times.look(state, 100.0)
    put(state, 12)
    times.look(state, 101.0)
    assert times.stood_s("h", 102.0) == 2.0, "a renewal moves nothing"
    again(state)
    times.look(state, 102.0)
    assert times.stood_s("h", 103.0) == 1.0
    put(state, 15)
    times.look(state, 104.0)
    assert times.stood_s("h", 105.0) == 3.0


def test_a_hold_of_a_snapshot_stands_since_that_was_taken() -> None:
    """It may have ended and been set again in what the snapshot stands for: late, never early."""
    times = HoldTimes()
    for now_s in (100.0, 103.0):
        state = LogState()
        state.holds["h"] = Hold(Lsn(5), APP.identity, Index(11), TTL_S)
        times.changes = -1
        times.look(state, now_s)
        assert times.stood_s("h", now_s + 2.0) == 2.0
        put(state, 12)
        times.look(state, now_s + 2.0)
        assert times.stood_s("h", now_s + 3.0) == 3.0
