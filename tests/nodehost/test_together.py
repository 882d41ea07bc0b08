"""The ticks and heartbeats of a second are proposed in one turn, where shard 0's leader is."""

from __future__ import annotations

import asyncio

import pytest

from logservice import bounds
from logservice.hakeeper.commands import proposals
from logservice.nodehost.agent.hakeeper_client import Proposed
from logservice.nodehost.agent.together import Together
from logservice.versions import NEWEST
from tests.nodehost.fake_host import FakeHost, FakeNetwork
from tests.nodehost.test_hakeeper_client import Cluster, _beat
from tests.nodehost.test_hakeeper_ticks import rig as ticking


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a tick, and the wait is longer than the test."""
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: True)
    monkeypatch.setattr(bounds, "HAKEEPER_TOGETHER_S", 1e6)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("quiet")
async def test_who_comes_meanwhile_goes_with_the_first() -> None:
    host, _ = ticking()
    together = Together(host)
    first, gone, last = [asyncio.ensure_future(together.wait()) for _ in range(3)]
    await turns()
    gone.cancel()
    await turns()
    assert not first.done()
    together._go()
    await turns()
    assert first.done()
    assert last.done(), "that one of them is gone is nothing to the others"
    another = asyncio.ensure_future(together.wait())
    await turns()
    assert not another.done(), "the next waits anew"
    together._go()
    await another


async def test_nobody_waits_where_the_leader_is_not_or_where_a_tick_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_TOGETHER_S", 1e6)
    quiet = True
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: quiet)
    follower, _ = ticking(leads=False)
    await Together(follower).wait()
    await Together(FakeHost(FakeNetwork(), "s1")).wait()
    leader, _ = ticking()
    quiet = False
    await Together(leader).wait()


@pytest.mark.usefixtures("quiet")
async def test_heartbeats_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader's own and another store's; what is no heartbeat waits for nobody."""
    cluster = Cluster()
    host = cluster.hosts["s1"]
    host.leads = True
    client = cluster.clients["s1"]
    proposed: list[bytes] = []
    propose = host.propose

    async def noted(shard: int, command: bytes, timeout_s: float) -> object:
        proposed.append(command)
        return await propose(shard, command, timeout_s)  # type: ignore[arg-type]

    monkeypatch.setattr(host, "propose", noted)
    own, other = _beat(1, 101), _beat(2, 102)
    tasks = [
        asyncio.ensure_future(client.propose(own, 3.0)),
        asyncio.ensure_future(
            client._serve_heartbeat(
                cluster.hosts["s2"].identity, Proposed(other, proposals.encode(other))
            )
        ),
    ]
    await turns()
    assert proposed == []
    await client.propose(proposals.AllocateIds("key", 1, "request"), 3.0)
    assert len(proposed) == 1
    client.together._go()
    await turns()
    assert len(proposed) == 3
    assert all(task.done() for task in tasks)


async def test_the_ticks_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HAKEEPER_TOGETHER_S", 1e6)
    host, shell = ticking()
    assert host.local is not None
    await shell.tick_once()
    monkeypatch.setattr("logservice.hakeeper.repair.check.quiet", lambda _: True)
    host.cluster_version.learn(NEWEST)
    host.local.rsm.state.cluster_version = NEWEST
    host.local.applied.clear()
    tick = asyncio.ensure_future(shell.tick_once(bounds.HAKEEPER_TICKS_PER_ENTRY_MAX))
    await turns()
    assert host.local.applied == []
    shell._together._go()
    assert await tick
    assert len(host.local.applied) == 1
