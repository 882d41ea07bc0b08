"""The leader of shard 0 keeps time, and nobody else does."""

from __future__ import annotations

import asyncio

import pytest
from logservice_wire.errors import NotReady, StaleEpoch

from logservice.hakeeper.commands import proposals
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.repair.bootstrap import initial_membership
from logservice.ids import HAKEEPER_SHARD, ClusterId, Incarnation, ReplicaId, StoreId
from logservice.logdb.format.update import Bootstrap
from logservice.membership import Member
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration, HAKeeperTicks
from logservice.nodehost.agent.together import Together
from logservice.versions import NEWEST
from tests.nodehost.fake_host import FakeHost, FakeNetwork, Shard0
from tests.waiting import eventually

MEMBERSHIP = initial_membership([Member(ReplicaId(1), StoreId("s1"), Incarnation(1))])
FIRST = FirstConfiguration(ClusterId("c"), log_shards=2, replicas=3, store_timeout_s=10.0)


def rig(*, leads: bool = True) -> tuple[FakeHost, HAKeeperTicks]:
    host = FakeHost(FakeNetwork(), "s1", Shard0())
    assert host.local is not None
    host.local.membership = MEMBERSHIP
    host.bootstraps[HAKEEPER_SHARD] = Bootstrap(MEMBERSHIP, join=False)
    host.leads = leads
    return host, HAKeeperTicks(host, FIRST, Together(host), interval_s=0.1)


async def test_the_leader_configures_once_and_then_ticks() -> None:
    host, shell = rig()
    assert host.local is not None
    for _ in range(3):
        assert await shell.tick_once()
    assert [type(one).__name__ for one in host.local.applied] == [
        "InitialCluster",
        "Tick",
        "Tick",
        "Tick",
    ]
    state = host.local.rsm.state
    assert state.phase is Phase.BOOTSTRAPPING
    assert state.store_timeout_ticks == 100
    assert [shard.name for shard in state.sorted_shards()] == ["hakeeper", "log-1", "log-2"]
    assert state.shards[HAKEEPER_SHARD].membership == MEMBERSHIP.encode()
    assert state.tick == 3


async def test_ticks_are_saved_up_while_nothing_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, shell = rig()
    assert host.local is not None
    await shell.tick_once()
    quiet = True
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: quiet)
    host.cluster_version.learn(NEWEST)
    host.local.rsm.state.cluster_version = NEWEST

    async def proposed(ticks: int) -> list[int]:
        assert host.local is not None
        host.local.applied.clear()
        for _ in range(ticks):
            assert await shell.tick_once()
        return [one.count for one in host.local.applied if isinstance(one, proposals.Tick)]

    assert await proposed(25) == [10, 10], "an entry each second"
    quiet = False
    assert await proposed(3) == [6, 1, 1], "what was saved up goes with the next one"
    quiet = True
    assert await proposed(4) == []
    host.leads = False
    assert not await shell.tick_once()
    host.leads = True
    quiet = False
    assert await proposed(1) == [1], "time that passed under another leader is that leader's"


async def test_ticks_are_not_saved_up_at_the_first_cluster_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, shell = rig()
    assert host.local is not None
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: True)
    for _ in range(5):
        await shell.tick_once()
    assert host.local.rsm.state.tick == 5


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


async def test_followers_and_strangers_do_nothing() -> None:
    host, shell = rig(leads=False)
    assert not await shell.tick_once()
    assert host.local is not None
    assert host.local.applied == []
    host.local = None
    assert not await shell.tick_once()


async def test_a_tick_of_a_deposed_leader_does_not_count() -> None:
    host, shell = rig()
    assert host.local is not None
    await shell.tick_once()
    before = host.local.rsm.state.tick
    stale = proposals.encode(proposals.Tick(host.local.rsm.state.term))
    host.local.term += 1
    with pytest.raises(StaleEpoch):
        host.local.propose(stale)
    assert host.local.rsm.state.tick == before
    await shell.tick_once()
    assert host.local.rsm.state.tick == before + 1


async def test_failures_cost_one_tick_each() -> None:
    host, _ = rig()
    shell = HAKeeperTicks(host, FIRST, Together(host), interval_s=0.01)
    host.propose_failures = [NotReady(), StaleEpoch()]
    task = asyncio.get_running_loop().create_task(shell.run())
    shard0 = host.local
    assert shard0 is not None
    await eventually(lambda: shard0.rsm.state.tick >= 3)
    assert host.propose_failures == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_loop_sleeps_through_the_ticks_that_it_saves_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second has ten ticks, one entry and one or two turns of the loop. An entry that comes when
    most are saved takes them along, and what ends the quiet ends the sleep.
    """
    host, shell = rig()
    shard0 = host.local
    assert shard0 is not None
    await shell.tick_once()
    quiet = True
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: quiet)
    host.cluster_version.learn(NEWEST)
    shard0.rsm.state.cluster_version = NEWEST
    clock = FakeClock()
    monkeypatch.setattr(host, "clock", clock)
    slept: list[float] = []
    ended = 0

    class Sleep:
        async def sleep(self, seconds: float) -> None:
            slept.append(round(seconds, 3))
            if len(slept) > len(wakes):
                raise asyncio.CancelledError
            clock.now_s += wakes[len(slept) - 1]
            shell.applied()

        def end(self) -> None:
            nonlocal ended
            ended += 1

    monkeypatch.setattr(shell, "_pause", Sleep())

    async def sleeps(*seconds: float) -> list[int]:
        """Ticks of the entries while the loop sleeps for so long each time."""
        nonlocal wakes
        wakes = list(seconds)
        slept.clear()
        shard0.applied.clear()
        shell._saved = 0
        with pytest.raises(asyncio.CancelledError):
            await shell.run()
        return [one.count for one in shard0.applied if isinstance(one, proposals.Tick)]

    wakes: list[float] = []
    assert await sleeps(0.9, 1.0) == [10, 10]
    assert slept == [0.9, 1.0, 1.0]
    ended = 0
    assert await sleeps(0.75) == [8], "an entry came when most were saved"
    assert ended == 1
    assert await sleeps(0.35) == [], "one that came earlier changes nothing"
    assert ended == 1
    assert await sleeps(60.0, 0.8) == [10], "a stall is one tick"
    assert slept == [0.9, 0.8, 1.0]
    quiet = False
    assert await sleeps(0.1, 0.1) == [1, 1, 1]
    host.leads = False
    assert await sleeps(0.4) == []
    assert slept == [1.0, 1.0], "who does not lead has nothing to save up"
