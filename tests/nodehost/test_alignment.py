"""Alignment: a replay makes the state that the replica itself had, at every index."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from logservice_wire.errors import Halted, HoldRefused, NotReady, StaleTruncate

from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.entry import Entry
from logservice.ids import Index, Lsn, ReplicaId
from logservice.invariants import InvariantViolation
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.truncation import alignment
from logservice.nodehost.truncation.alignment import Replay, last_truncated, replay
from logservice.rsm import commands
from logservice.snapshot import Snapshot
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.owners import APP
from tests.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=4)
    await cluster.up()
    yield cluster
    await cluster.down()


async def _lived(cluster: Cluster, seed: int) -> tuple[Replica, dict[Index, Snapshot]]:
    """A replica whose log has a bit of everything, and its state at each index it stopped at."""
    rng = random.Random(seed)
    number = await cluster.leader()
    host = cluster.host(number)
    replica = host.replicas.running[SHARD]
    states: dict[Index, Snapshot] = {}
    learner = ReplicaId(40)
    spare = cluster.stores[4]
    other = next(one for one in replica.raft.membership.voters if one != replica.replica_id)
    changes = {
        8: (ChangeStep(ChangeKind.ADD_LEARNER, learner, spare.store_id, spare.incarnation),),
        16: (  # through a joint configuration
            ChangeStep(ChangeKind.ADD_VOTER, learner, spare.store_id, spare.incarnation),
            ChangeStep(ChangeKind.REMOVE, other),
        ),
    }
    for round_number in range(30):
        if steps := changes.get(round_number):
            change = ConfigChange(steps, replica.raft.membership.change_epoch)
            membership = await host.router.change_membership(SHARD, change, 30.0)
            states[replica.applied] = replica.applied_snapshot()
            if learner in membership.learners:
                await cluster.host(4).replicas.start(SHARD, learner, membership, join=True)
                await eventually(lambda: _level(replica, learner))
            continue
        lsn = replica.log_bounds[1]
        command: commands.Command
        match rng.randrange(6):
            case 0:
                command = commands.SetHold(APP, False, Lsn(lsn + 1), f"hold-{round_number}")
            case 1:
                command = commands.ReleaseHold(APP, False, f"hold-{round_number - 1}")
            case 2:
                command = commands.AllocateTimestamps(3)
            case 3 if lsn:
                command = commands.Truncate(APP, Lsn(rng.randint(1, lsn)), 0)
            case _:
                await host.append(SHARD, request(rng.randint(1, 4)), 30.0)
                states[replica.applied] = replica.applied_snapshot()
                continue
        with contextlib.suppress(StaleTruncate, HoldRefused):  # refusals are in the log, too
            await host.propose(SHARD, commands.encode(command), 30.0)
        states[replica.applied] = replica.applied_snapshot()
    return replica, states


def _level(leader: Replica, member: ReplicaId) -> bool:
    return dict(leader.info().match)[member] == leader.applied


@pytest.mark.parametrize("seed", range(6))
async def test_a_replay_makes_the_same_bytes_from_wherever_it_begins(
    cluster: Cluster, seed: int
) -> None:
    replica, states = await _lived(cluster, seed)
    assert replica.log.installed is not None
    assert len({state.membership for state in states.values()}) >= 3
    first = replica.log.installed.snapshot
    for index, wanted in states.items():
        made = await replay(replica, InlineExecutor(), first, index)
        assert made.encode() == wanted.encode()
        again = await replay(replica, InlineExecutor(), made, replica.applied)
        assert again.encode() == replica.applied_snapshot().encode()


async def test_the_last_truncated_entry_is_the_one_before_the_first_record_above(
    cluster: Cluster,
) -> None:
    """INV-ALIGN-2."""
    replica, _ = await _lived(cluster, 1)
    log = replica.log
    first, last = log.first_index(), log.last_index()
    end = log.next_lsn(last)
    for lsn in range(end + 3):
        found = await last_truncated(replica, Lsn(lsn))
        assert log.next_lsn(found) - 1 <= lsn
        assert found == last or log.next_lsn(Index(found + 1)) - 1 > lsn
    assert await last_truncated(replica, Lsn(0)) >= first
    replica.applied = Index(first + 2)
    assert await last_truncated(replica, Lsn(end)) == first + 2


async def test_a_log_that_was_compacted_further_than_it_was_truncated_is_left_alone(
    cluster: Cluster,
) -> None:
    """A restarted replica knows an older truncation LSN than the one of its installed snapshot."""
    replica, _ = await _lived(cluster, 2)
    applied = replica.applied
    await replica.install_snapshot(replica.applied_snapshot(), Lsn(replica.log_bounds[1]))
    await eventually(lambda: replica.log.first_index() > applied)
    assert await last_truncated(replica, Lsn(1)) == applied


async def test_a_replay_ends_when_it_has_read_enough(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches TRUNCATION_REPLAY_BYTES_MAX, which is made small; it goes on where it ended."""
    replica, states = await _lived(cluster, 7)
    assert replica.log.installed is not None
    monkeypatch.setattr(alignment, "TRUNCATION_REPLAY_BYTES_MAX", 200)
    monkeypatch.setattr(alignment, "_STEP_ENTRIES", 1)
    reached = [replica.log.installed.snapshot]
    while reached[-1].index < replica.applied:
        made = await replay(replica, InlineExecutor(), reached[-1], replica.applied)
        read = replica.log.entries(Index(reached[-1].index + 1), Index(made.index + 1), 1 << 20)
        size = sum(len(entry.payload) for entry in read)
        assert size - len(read[-1].payload) < 200
        assert size >= 200 or made.index == replica.applied
        reached.append(made)
    assert len(reached) > 3
    assert reached[-1].encode() == states[replica.applied].encode()


async def test_a_replay_over_what_was_compacted_meanwhile_is_refused(cluster: Cluster) -> None:
    replica, _ = await _lived(cluster, 3)
    assert replica.log.installed is not None
    first = replica.log.installed.snapshot
    await replica.install_snapshot(replica.applied_snapshot(), Lsn(replica.log_bounds[1]))
    with pytest.raises(NotReady):
        await replay(replica, InlineExecutor(), first, replica.applied)


@pytest.mark.parametrize("removed_at", [1, 2, 3])
async def test_a_replay_of_a_replica_that_is_removed_meanwhile_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, removed_at: int
) -> None:
    """Seed 17000759: its log was empty then, and truncation ended with an IndexError."""
    replica, states = await _lived(cluster, 1)
    base = replica.log.installed
    assert base is not None
    calls = 0

    async def run(_: object, work: Callable[[], object]) -> object:
        nonlocal calls
        calls += 1
        found = work()
        if calls == removed_at:
            host = cluster.host(await cluster.leader())
            await host.replicas.remove(SHARD, replica.replica_id)
        return found

    monkeypatch.setattr(alignment, "_run", run)
    monkeypatch.setattr(alignment, "_STEP_ENTRIES", 1)
    with pytest.raises(NotReady):
        await replay(replica, InlineExecutor(), base.snapshot, max(states))
    assert calls == removed_at


async def test_a_replay_never_goes_beyond_what_is_applied(cluster: Cluster) -> None:
    """INV-ALIGN-1."""
    replica, _ = await _lived(cluster, 4)
    assert replica.log.installed is not None
    first = replica.log.installed.snapshot
    with pytest.raises(InvariantViolation, match="INV-ALIGN-1"):
        await replay(replica, InlineExecutor(), first, Index(replica.applied + 1))
    (entry,) = replica.log.entries(Index(3), Index(4), 1 << 20)
    with pytest.raises(InvariantViolation, match="INV-ALIGN-1"):
        Replay(first).take(entry)


async def test_an_entry_that_the_state_machine_cannot_take_breaks_the_replica(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, _ = await _lived(cluster, 5)
    assert replica.log.installed is not None
    made = Replay(replica.log.installed.snapshot)

    def broken(entry: Entry) -> None:
        raise ZeroDivisionError(entry.index)

    monkeypatch.setattr(made._machine, "update", broken)
    (entry,) = replica.log.entries(Index(2), Index(3), 1 << 20)
    with pytest.raises(InvariantViolation, match="INV-REPLICA-4"):
        made.take(entry)


async def test_what_cannot_be_trusted_is_not_replayed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica, _ = await _lived(cluster, 6)
    assert replica.log.installed is not None
    replica.log.blame("damaged for the test")
    monkeypatch.setattr(replica.log, "cached_entries", lambda *_: None)
    # NotReady when the replica was halted for the damage before its log is read.
    with pytest.raises((Halted, NotReady)):
        await replay(replica, InlineExecutor(), replica.log.installed.snapshot, replica.applied)
