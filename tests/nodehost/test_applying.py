"""A replica that has entries to apply and applies none, and what its store does about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logservice import bounds
from logservice.ids import ReplicaId
from logservice.nodehost.replica.applying import Applying
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.routing.successors import APPLIES, Applies, Asked
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.core import Raft
from logservice.raft.log.log import RaftLog
from logservice.raft.ready import Role
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.waiting import eventually

PATIENCE = 20


def looked(*seen: tuple[int, int, int]) -> list[bool]:
    """Whether the replica is stuck after each look at (tick, appliable, applied)."""
    watch = Applying(PATIENCE)
    found = []
    for tick, appliable, applied in seen:
        before = watch.stuck
        assert watch.look(tick, appliable, applied) is (watch.stuck is not before)
        found.append(watch.stuck)
    return found


def test_inv_applying_1_the_time_is_exact() -> None:
    assert looked((100, 5, 4), (119, 9, 4), (120, 9, 4), (121, 9, 5)) == [False, False, True, False]


def test_inv_applying_1_whoever_moves_however_slowly_is_not_stuck() -> None:
    assert not any(looked(*((tick, 10_000, tick // 19) for tick in range(0, 2_000, 19))))


def test_inv_applying_1_nothing_to_apply_ends_the_time() -> None:
    assert looked((1, 5, 4), (19, 4, 4), (21, 5, 4), (40, 5, 4), (41, 5, 4)) == [
        *(False, False, False, False),
        True,
    ]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.apply_stuck_s = 0.2
    await cluster.up()
    for number in (1, 2, 3):
        cluster.host(number).cluster_version.learn(2)
    yield cluster
    await cluster.down()


def stop_applying(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam: entries are never handed out to this replica's state machine any more."""
    stopped, has = replica.raft._state.log, RaftLog.has_committed_to_hand_out
    monkeypatch.setattr(
        RaftLog, "has_committed_to_hand_out", lambda log: log is not stopped and has(log)
    )


async def appended(cluster: Cluster, number: int) -> asyncio.Task[object]:
    """An append on its way that the leader will not acknowledge."""
    task = asyncio.ensure_future(cluster.host(number).append(SHARD, request(block=b"x"), 30.0))
    await asyncio.sleep(0)
    return task


async def test_inv_give_way_1_a_leader_that_is_stuck_gives_way_to_one_that_applies_most(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader()
    other, third = sorted({1, 2, 3} - {leader})
    await cluster.host(leader).append(SHARD, request(block=b"before"), 30.0)
    await eventually(lambda: cluster.replica(third).applied == cluster.replica(leader).applied)
    stop_applying(cluster.replica(leader), monkeypatch)
    stop_applying(cluster.replica(other), monkeypatch)
    task = await appended(cluster, leader)
    await eventually(lambda: cluster.replica(third).raft.role is Role.LEADER)
    task.cancel()
    applied = await cluster.host(third).append(SHARD, request(block=b"after"), 30.0)
    assert applied.lsn >= 2
    assert cluster.replica(leader).info().stuck


async def test_inv_successor_1_nobody_gives_way_when_all_are_stuck(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader()
    await cluster.host(leader).append(SHARD, request(block=b"before"), 30.0)
    await eventually(lambda: len({cluster.replica(n).applied for n in (1, 2, 3)}) == 1)
    for number in (1, 2, 3):
        stop_applying(cluster.replica(number), monkeypatch)
    monkeypatch.setattr(bounds, "APPLY_ASK_AGAIN_S", 0.05)
    asked: list[ReplicaId] = []
    way, successors = cluster.host(leader).giving_way, cluster.host(leader).successors
    ask = successors._ask

    async def counted(replica: Replica, other: ReplicaId) -> object:
        answer = await ask(replica, other)
        asked.append(other)
        return answer

    monkeypatch.setattr(successors, "_ask", counted)
    task = await appended(cluster, leader)
    await eventually(lambda: len(asked) >= 4 and not way._tasks)
    assert cluster.replica(leader).raft.role is Role.LEADER
    assert not cluster.replica(leader).raft.status().leader_transferee
    task.cancel()


async def test_inv_successor_1_who_does_not_answer_in_time_is_no_successor(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "APPLY_ASK_TIMEOUT_S", 0.05)
    leader = await cluster.leader()
    asked = 0

    async def silent(peer: PeerIdentity, question: Asked) -> Applies:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        raise AssertionError

    for number in sorted({1, 2, 3} - {leader}):
        cluster.host(number).requests.register(APPLIES, silent)
    stop_applying(cluster.replica(leader), monkeypatch)
    task = await appended(cluster, leader)
    await eventually(lambda: asked == 2 and not cluster.host(leader).giving_way._tasks)
    assert cluster.replica(leader).raft.role is Role.LEADER
    assert not cluster.replica(leader).raft.status().leader_transferee
    task.cancel()


async def test_inv_give_way_1_a_replica_tries_once_in_a_while_and_only_from_version_2_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader()
    replica, way = cluster.replica(leader), cluster.host(leader).giving_way
    transfers: list[ReplicaId] = []
    monkeypatch.setattr(Raft, "transfer_leader", lambda _, target: transfers.append(target))
    stop_applying(replica, monkeypatch)
    task = await appended(cluster, leader)
    await eventually(lambda: transfers)
    way.stuck(replica)
    assert not way._tasks, "it has just tried"
    assert way._rests_until_s[SHARD] - way._clock.monotonic() > bounds.APPLY_ASK_AGAIN_S
    way._rests_until_s.clear()
    monkeypatch.setattr(cluster.host(leader).cluster_version, "_version", 1)
    way.stuck(replica)
    assert not way._tasks, "the others may not know the question"
    monkeypatch.setattr(cluster.host(leader).cluster_version, "_version", 2)
    way.stuck(replica)
    assert way._tasks
    task.cancel()


async def test_inv_applying_1_a_disk_that_hangs_makes_nobody_stuck(cluster: Cluster) -> None:
    """What is committed by the others and is not durable here is not there to be applied."""
    number = await cluster.leader()
    log = cluster.replica(number).raft._state.log
    last = log.last_index
    log.tail.stable_next, before = last, log.tail.stable_next
    assert cluster.replica(number).raft.appliable == last - 1
    log.tail.stable_next = before
