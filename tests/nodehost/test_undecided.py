"""Replicas differ while too few answer: how long that lasts, and that it is not forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logservice import bounds
from logservice.ids import Index, ReplicaId, ShardId
from logservice.nodehost.replica.replica import Replica
from tests.nodehost.cluster import SHARD, request
from tests.nodehost.compared import RECORDS, Compared, compared, spoil
from tests.waiting import eventually


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Compared]:
    async with compared(tmp_path) as cluster:
        yield cluster


async def test_two_that_differ_wait_for_the_third(cluster: Compared) -> None:
    await cluster.fill()
    leader = await cluster.leader()
    wrong, away = [n for n in cluster.stores if n != leader]
    cluster.forge(wrong, 17)
    await cluster.stores[away].down()
    comparer = await cluster.compare()
    assert comparer.counts["undecided"] == 1
    assert comparer.undecided == [SHARD]
    assert all(SHARD not in cluster.host(n).halts.all() for n in (leader, wrong))
    await comparer.run_once()
    assert comparer.counts["undecided"] == 1
    # The next leader knows that something has to be decided.
    assert SHARD in cluster.comparers[wrong]._undecided
    await cluster.stores[away].up()
    cluster.introduce()
    cluster.equip(away)
    await cluster.level(RECORDS)
    comparer = await cluster.compare()
    assert SHARD in cluster.host(wrong).halts.all()
    assert comparer.undecided == []


async def test_nobody_decides_for_too_long(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.fill()
    leader = await cluster.leader()
    wrong, away = [n for n in cluster.stores if n != leader]
    cluster.forge(wrong, 17)
    await cluster.stores[away].down()
    monkeypatch.setattr(bounds, "COMPARE_UNDECIDED_S_MAX", -1.0)
    comparer = await cluster.compare()
    assert comparer.counts["contested"] == 1
    assert SHARD in cluster.host(leader).halts.all()
    assert SHARD in cluster.host(wrong).halts.all()


async def test_what_is_undecided_is_looked_at_again_alone(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a large shard would take hours to come to that range again, and meanwhile a copy of
    one side would decide.
    """
    monkeypatch.setattr(bounds, "COMPARE_RANGE_ENTRIES", 4)
    await cluster.fill()
    leader = await cluster.leader()
    wrong, away = [n for n in cluster.stores if n != leader]
    cluster.forge(wrong, 33)
    await cluster.stores[away].down()
    comparer = await cluster.compare()
    before = comparer.counts["ranges"]
    assert before > 8, "all ranges up to the one that differs"
    comparer.timer.due_s = cluster.host(leader).clock.monotonic() + 3600
    for looks in (1, 2, 3):
        await comparer.run_once()
        assert comparer.counts["ranges"] == before + looks
    await cluster.stores[away].up()
    cluster.introduce()
    cluster.equip(away)
    await cluster.level(RECORDS)
    await comparer.run_once()
    assert SHARD in cluster.host(wrong).halts.all()
    assert comparer.undecided == []
    assert comparer.counts["ranges"] > before + 4, "what is behind it follows"
    assert (comparer.counts["undecided"], comparer.counts["wrong"]) == (1, 1)


async def test_an_undecided_state_is_looked_at_again_alone(cluster: Compared) -> None:
    await cluster.fill()
    leader = await cluster.leader()
    wrong, away = [n for n in cluster.stores if n != leader]
    spoil(cluster, wrong, 3)
    await cluster.stores[away].down()
    comparer = await cluster.compare()
    assert comparer.counts["undecided"] == 1
    before = comparer.counts["ranges"]
    comparer.timer.due_s = cluster.host(leader).clock.monotonic() + 3600
    await comparer.run_once()
    assert (comparer.counts["ranges"], comparer.undecided) == (before, [SHARD])
    await cluster.stores[away].up()
    cluster.introduce()
    cluster.equip(away)
    await cluster.level(RECORDS)
    await comparer.run_once()
    assert SHARD in cluster.host(wrong).halts.all()
    assert (comparer.counts["ranges"], comparer.undecided) == (before, [])


async def test_what_is_undecided_is_looked_at_again_during_a_pass(
    cluster: Compared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass is over another shard, whose ranges may take days."""
    monkeypatch.setattr(bounds, "COMPARE_RANGE_ENTRIES", 4)
    large = ShardId(2)
    for number in cluster.stores:
        await cluster.host(number).replicas.start(
            large, ReplicaId(number), cluster.membership(), join=False
        )
    await cluster.fill()
    leader = await cluster.leader()
    host = cluster.host(leader)
    other = await cluster.leader(large)
    if other != leader:
        await cluster.host(other).router.transfer_leadership(large, ReplicaId(leader), 30.0)
        await eventually(lambda: host.replicas.running[large].ready_to_lead)
    for number in range(RECORDS):
        await host.append(large, request(block=b"record %3d" % number), 30.0)
    wrong, away = [n for n in cluster.stores if n != leader]
    cluster.forge(wrong, 5)
    await cluster.stores[away].down()
    monkeypatch.setattr(bounds, "COMPARE_RETRY_S", 0.0)
    looked: list[tuple[ShardId, Index]] = []
    comparer = cluster.comparers[leader]
    compare_range = comparer._range

    async def watched(replica: Replica, others: Any, low: Index, through: Index) -> Any:
        looked.append((replica.shard, low))
        if len(looked) == 12:
            monkeypatch.setattr(bounds, "COMPARE_UNDECIDED_S_MAX", -1.0)
        return await compare_range(replica, others, low, through)

    monkeypatch.setattr(comparer, "_range", watched)
    await comparer.run_once()
    assert comparer.counts["passes"] == 1
    assert comparer.counts["contested"] == 1
    assert SHARD in host.halts.all()
    assert large not in host.halts.all()
    ours = [low for shard, low in looked if shard == SHARD]
    assert ours[1:] == [5] * (len(ours) - 1), "the range that differs, and no other"
    first = next(at for at, (shard, _) in enumerate(looked) if shard == large)
    last = max(at for at, (shard, _) in enumerate(looked) if shard == SHARD)
    assert last >= 11
    shards = [shard for shard, _ in looked[first : last + 1]]
    assert shards == [large, SHARD] * (len(shards) // 2), "after every range of the other shard"
    assert looked[-1][0] == large, "it goes on to its end"
    assert comparer._compared.keys() == set(), "one member was away"
