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
    return host, HAKeeperTicks(host, FIRST, interval_s=0.1)


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
    shell = HAKeeperTicks(host, FIRST, interval_s=0.01)
    host.propose_failures = [NotReady(), StaleEpoch()]
    task = asyncio.get_running_loop().create_task(shell.run())
    shard0 = host.local
    assert shard0 is not None
    await eventually(lambda: shard0.rsm.state.tick >= 3)
    assert host.propose_failures == []
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
