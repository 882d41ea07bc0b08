"""Ticks, beats and passes of the engine never run inside themselves, however long a turn takes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from logservice.ids import NO_REPLICA, ReplicaId, ShardId, StoreId
from logservice.membership import Membership
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica.quiesce import Quiescence
from logservice.nodehost.ticker import Ticker
from logservice.raft.ready import Role
from logservice.versions import NEWEST, KnownVersion
from tests.nodehost.test_ticker import TICK_S, Timers

MEMBERS = Membership(voters=(ReplicaId(1), ReplicaId(2), ReplicaId(3)))

TURN_S = 0.001
"""What a replica's tick takes."""


class Replica:
    """A quiesced follower that wakes up when it is ticked, as far as `Quiescence` knows one."""

    def __init__(self, store: Store, shard: int) -> None:
        self.store = store
        self.shard = ShardId(shard)
        self.replica_id = ReplicaId(2)
        self.ticked = self.stopped = self.damaged = False
        self.idle = True
        self.acts = False
        """Its tick gives it something to do."""
        self.wakes_s = 0.0
        """What waking it up takes."""
        self.inside = False
        self.ticks = 0
        self.failed: list[BaseException] = []
        self.intake = SimpleNamespace(waiting=False)
        self.raft: Any = SimpleNamespace(
            role=Role.FOLLOWER, leader=ReplicaId(1), term=1, membership=MEMBERS
        )

    def tick(self, now_s: float) -> None:
        self.store.nested += self.inside
        self.inside = True
        self.ticks += 1
        self.store.timers.now_s += TURN_S
        if self.acts:
            self.activate()
        self.inside = False

    def activate(self) -> None:
        """As `Replica.activate` does."""
        self.store.ticker.catch_up()
        if not self.ticked:
            self.store.quiescence.touch(self._any())
        self.store.ticker.look_again()

    def unreachable(self, member: ReplicaId) -> None:
        self.store.timers.now_s += self.wakes_s
        self.raft.leader = NO_REPLICA
        self.activate()

    def ticks_to_act(self) -> int:
        return 1 if self.raft.leader == NO_REPLICA else 20

    def store_of(self, member: ReplicaId) -> StoreId | None:
        return StoreId(f"store-{member}")

    def changed(self) -> None: ...

    def fail(self, error: BaseException) -> None:
        self.failed.append(error)
        self.stopped = True

    def _any(self) -> Any:
        return self


class Loop(Timers):
    """One whose tasks never begin: what a beat says is lost."""

    def create_task(self, work: Coroutine[Any, Any, None]) -> SimpleNamespace:
        work.close()
        return SimpleNamespace(add_done_callback=lambda _: None)


class Store:
    """A real Ticker and a real Quiescence with replicas whose ticks take time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.timers = Loop()
        monkeypatch.setattr(asyncio, "get_running_loop", lambda: self.timers)
        self.failed: list[BaseException] = []
        self.nested = 0
        """Ticks of a replica inside one of its own."""
        clock: Any = self.timers
        self.ticker = Ticker(
            clock,
            TICK_S,
            self._passed,
            lambda: self.quiescence.ticks_to_act(),
            self.failed.append,
        )
        requests: Any = SimpleNamespace(register=lambda *_: None)
        identity: Any = SimpleNamespace(store_id=StoreId("store-2"), boot_id=7)
        options = NodeHostOptions(tick_ms=int(TICK_S * 1000), election_ticks=40)
        version = KnownVersion()
        version.learn(NEWEST)
        self.quiescence = Quiescence(options, requests, self.ticker, identity, version)
        self.replicas = [Replica(self, shard) for shard in (1, 2, 3)]
        self.ticker.start()

    def _passed(self, ticks: int, now_s: float) -> None:
        for _ in range(ticks):
            self.quiescence.tick(now_s)

    def wake(self) -> None:
        for replica in self.replicas:
            replica.activate()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    return Store(monkeypatch)


def test_a_tick_boundary_inside_a_tick_begins_no_second_pass(store: Store) -> None:
    """A store slept, woke up half a millisecond before a tick, and its replicas' ticks take one."""
    store.timers.pass_s(3 * TICK_S)
    assert len(store.quiescence) == 0
    for replica in store.replicas:
        replica.idle = False
    store.wake()
    store.timers.pass_s(2 * TICK_S)
    for replica in store.replicas:
        replica.idle = True
    store.replicas[0].acts = True
    store.timers.stall_s(store.ticker._counted_s + 3 * TICK_S - TURN_S / 2 - store.timers.now_s)
    store.ticker.catch_up()
    assert [repr(one) for one in store.failed] == []
    assert store.nested == 0
    assert len(store.quiescence) == 3


async def test_a_peer_that_is_lost_begins_no_second_beat(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store beats along with another one, and what its beat wakes lasts longer than a tick."""
    beats, depth, deepest = store.quiescence, 0, 0
    beat = beats._beat

    def watched() -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        beat()
        depth -= 1

    monkeypatch.setattr(beats, "_beat", watched)
    store.replicas[0].raft.leader = ReplicaId(3)
    store.wake()
    store.timers.pass_s(3 * TICK_S)
    assert len(beats) == 3
    for replica in store.replicas:
        replica.wakes_s = 30 * TICK_S
    beats._ticks += beats._silent_ticks + 1
    beats._next_beat = beats._ticks + 20
    store.ticker._sleep(50)
    asker: Any = SimpleNamespace(store_id=StoreId("store-1"), boot_id=5)
    await beats._on_beat(asker, (0, 0))
    assert deepest == 1
    assert len(beats) == 2, "what was led by the store that is silent is awake"
    assert store.failed == []


def test_an_error_of_one_replica_is_its_own(store: Store) -> None:
    """INV-QUIESCE-4: in its tick, and when it says what is due."""
    store.wake()
    first, second, third = store.replicas
    for replica in store.replicas:
        replica.idle = False
    broken = KeyError("no such thing")

    def breaks(*_: object) -> int:
        raise broken

    first.tick = breaks  # type: ignore[assignment]
    second.ticks_to_act = breaks  # type: ignore[method-assign]
    store.timers.pass_s(3 * TICK_S)
    assert store.failed == []
    assert [first.failed, second.failed, third.failed] == [[broken], [broken], []]
    assert third.ticks >= 2
