"""Listeners: they are told what happens on a NodeHost, in order, and change nothing there."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument

from logservice import bounds
from logservice.config_change import ChangeKind, ChangeStep, ConfigChange
from logservice.ids import Lsn, StoreId
from logservice.nodehost.listeners import (
    EventsMissed,
    HostEvent,
    HostStopping,
    Listeners,
    LogCompacted,
    MembershipChanged,
    PeerUnreachable,
    ReplicaHalted,
    ReplicaRemoved,
    ReplicaStarted,
    ReplicaStopped,
    RoleChanged,
)
from logservice.raft.ready import Role
from tests.nodehost.cluster import SHARD, Cluster
from tests.nodehost.saying import append, others, replica
from tests.waiting import eventually


def peer(number: int) -> PeerUnreachable:
    return PeerUnreachable(StoreId(f"store-{number}"))


async def told(listeners: Listeners) -> None:
    await asyncio.wait_for(listeners.stop(), 60)


async def test_a_listener_hears_of_a_replicas_life(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, stores=4)
    heard: dict[int, list[HostEvent]] = {number: [] for number in cluster.stores}
    for number, store in cluster.stores.items():
        await store.up()
        cluster.host(number).listen(heard[number].append)
    cluster.introduce()
    for number in (1, 2, 3):
        await cluster.host(number).replicas.start(
            SHARD, replica(number), cluster.membership(), join=False
        )
    await append(cluster)
    leader = await cluster.leader()
    heir, other = others(cluster, leader)
    await cluster.host(leader).router.transfer_leadership(SHARD, replica(heir), 30.0)
    await append(cluster)
    step = ChangeStep(ChangeKind.REMOVE, replica(other))
    change = ConfigChange((step,), cluster.replica(heir).raft.membership.change_epoch)
    await cluster.host(heir).router.change_membership(SHARD, change, 30.0)
    await eventually(lambda: any(isinstance(one, MembershipChanged) for one in heard[leader]))
    host = cluster.host(heir)
    snapshot = cluster.replica(heir).applied_snapshot()
    await cluster.replica(heir).install_snapshot(snapshot, Lsn(snapshot.next_lsn - 1))
    await cluster.host(other).replicas.remove(SHARD, replica(other))
    halting = cluster.replica(leader)
    cluster.host(leader).replicas.halt(halting, "a test says so")
    host.on_unreachable(cluster.stores[other].store_id)
    await cluster.down()

    term = halting.raft.term
    led = [one for one in heard[heir] if isinstance(one, RoleChanged) and one.role is Role.LEADER]
    assert [(one.replica, one.term, one.leader) for one in led] == [
        (replica(heir), term, replica(heir))
    ]
    assert any(
        isinstance(one, RoleChanged) and (one.role, one.leader) == (Role.FOLLOWER, replica(heir))
        for one in heard[leader]
    )
    changed = [one for one in heard[heir] if isinstance(one, MembershipChanged)]
    assert changed[-1].voters == tuple(sorted((replica(leader), replica(heir))))
    assert changed[-1].role is Role.LEADER
    assert LogCompacted(SHARD, replica(heir), snapshot.index) in heard[heir]
    assert PeerUnreachable(cluster.stores[other].store_id) in heard[heir]
    assert ReplicaHalted(SHARD, replica(leader), "a test says so") in heard[leader]
    ends = [one for one in heard[other] if isinstance(one, ReplicaStopped | ReplicaRemoved)]
    assert ends == [ReplicaStopped(SHARD, replica(other)), ReplicaRemoved(SHARD, replica(other))]
    for number in (1, 2, 3):
        assert heard[number][0] == ReplicaStarted(SHARD, replica(number))
        assert heard[number][-1] == HostStopping()
    assert heard[4] == [HostStopping()]


async def test_a_slow_listener_misses_events_and_is_told_how_many() -> None:
    """INV-LISTEN-1; reaches LISTENER_EVENTS_MAX."""
    free, heard, others_heard = threading.Event(), list[HostEvent](), list[HostEvent]()
    listeners = Listeners(lambda event: None)

    def slow(event: HostEvent) -> None:
        free.wait(60)
        heard.append(event)

    listeners.listen(slow)
    count = bounds.LISTENER_EVENTS_MAX + 100
    listeners.tell(peer(0))
    await eventually(lambda: listeners._others[0]._queue.empty())
    listeners.listen(others_heard.append)
    for number in range(1, count):
        listeners.tell(peer(number))
        if number % 512 == 0:
            await eventually(lambda: listeners._others[1]._queue.empty())
    free.set()
    await eventually(lambda: len(heard) == 1 + bounds.LISTENER_EVENTS_MAX)
    listeners.tell(peer(count))
    await told(listeners)
    kept = 1 + bounds.LISTENER_EVENTS_MAX
    assert heard[:kept] == [peer(number) for number in range(kept)]
    assert heard[kept:] == [EventsMissed(count - kept), peer(count), HostStopping()]
    assert others_heard == [*(peer(number) for number in range(1, count + 1)), HostStopping()]


async def test_what_a_listener_raises_is_logged_and_it_hears_the_next_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard = list[HostEvent]()
    listeners = Listeners(lambda event: None)

    def breaks(event: HostEvent) -> None:
        heard.append(event)
        raise RuntimeError("a listener's own")

    listeners.listen(breaks)
    listeners.tell(peer(1))
    listeners.tell(peer(2))
    await told(listeners)
    assert heard == [peer(1), peer(2), HostStopping()]
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 3


async def test_a_listener_that_never_returns_does_not_keep_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reaches LISTENER_STOP_S."""
    monkeypatch.setattr(bounds, "LISTENER_STOP_S", 0.05)
    never = threading.Event()
    listeners = Listeners(lambda event: None)
    listeners.listen(lambda event: never.wait(60))
    for number in range(bounds.LISTENER_EVENTS_MAX + 2):
        listeners.tell(peer(number))
    await told(listeners)
    never.set()


async def test_so_many_listeners_and_no_more_and_one_that_ended_makes_room() -> None:
    """Reaches LISTENERS_MAX."""
    heard = list[HostEvent]()
    listeners = Listeners(lambda event: None)
    first = listeners.listen(heard.append)
    for _ in range(bounds.LISTENERS_MAX - 1):
        listeners.listen(lambda event: None)
    with pytest.raises(InvalidArgument, match="at most 16 listeners"):
        listeners.listen(lambda event: None)
    listeners.tell(peer(1))
    first.end()
    await asyncio.to_thread(first.join, 60)
    listeners.tell(peer(2))
    listeners.listen(lambda event: None)
    await told(listeners)
    assert heard == [peer(1)], "who has ended is told what waited, and nothing more"
