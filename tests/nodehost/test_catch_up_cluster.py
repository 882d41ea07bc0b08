"""Catching up between real NodeHosts, with a limit that a small log feels: appends go on, what was
sent is not sent again, and truncation does not begin it anew for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logservice.ids import Lsn, ReplicaId
from logservice.nodehost.replica.catch_up import CatchUpBudget
from logservice.rsm import commands
from tests.nodehost.cluster import SHARD, request
from tests.nodehost.test_truncation_node_host import BLOCK, TruncatingCluster, TruncatingStore
from tests.owners import APP
from tests.waiting import eventually

TURN = 8 * len(BLOCK)
RATE = 32 * TURN
BLOCKS = 200
MISSING = BLOCKS * len(BLOCK)
AWAY = 3


class Limited(TruncatingCluster):
    """Three stores with the shard, of which store 3 is away while the log grows."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.others = [1, 2]
        for store in self.truncating.values():
            store.catch_up = {
                "catch_up_bytes_per_s": RATE,
                "catch_up_behind_bytes": 2 * TURN,
                "catch_up_turn_bytes": TURN,
            }

    async def back(self) -> None:
        """Store 3 comes back."""
        await self.stores[AWAY].up()
        self.introduce()

    def budgets(self) -> list[CatchUpBudget]:
        return [self.host(number).catch_up for number in self.others]

    def sent(self) -> int:
        return sum(budget.sent_bytes for budget in self.budgets())

    def position(self) -> int:
        """The newest LSN that the replica on store 3 has applied; 0 while it does not run."""
        host = self.stores[AWAY].host
        replica = host.replicas.running.get(SHARD) if host is not None else None
        return replica.log_bounds[1] if replica is not None else 0

    async def halfway(self, part: float = 0.3) -> None:
        await eventually(lambda: self.position() > 10 + part * BLOCKS)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Limited]:
    made = Limited(tmp_path)
    await made.up()
    leader = await made.leader()
    if leader == AWAY:
        await made.host(leader).router.transfer_leadership(SHARD, ReplicaId(1), 10.0)
        await eventually(lambda: made.replica(1).ready_to_lead)
    await made.append(10)
    await made.stores[AWAY].down()
    for _ in range(BLOCKS // 4):
        await made.append(4)  # an entry each, which is less than a turn
    yield made
    await made.down()


async def test_a_member_that_was_away_gets_everything_while_appends_go_on(
    cluster: Limited,
) -> None:
    await cluster.back()
    host = cluster.host(await cluster.leader())
    last = 10 + BLOCKS
    while cluster.position() < 10 + BLOCKS:
        last += 1
        await host.append(SHARD, request(1, b"%08d" % last + BLOCK), 30.0)
        await asyncio.sleep(0.02)
    assert last > 10 + BLOCKS + 3, "appends went on"
    await cluster.level()
    assert await cluster.records(AWAY, 1) == list(range(1, last + 1))
    assert sum(budget.delayed for budget in cluster.budgets()) > MISSING // TURN // 2
    assert MISSING * 0.5 < cluster.sent() < (last - 10) * len(BLOCK) * 1.5


async def test_a_cut_in_the_middle_does_not_begin_it_anew(cluster: Limited) -> None:
    """What the member stored stays, over a restart of its store, and is not sent again."""
    await cluster.back()
    await cluster.halfway()
    await cluster.stores[AWAY].down()
    before = cluster.sent()
    await cluster.back()
    stored = cluster.replica(AWAY).reader
    assert stored.next_lsn(stored.last_index()) > 10 + 0.3 * BLOCKS, "what was stored is there"
    await cluster.level()
    assert await cluster.records(AWAY, 1) == list(range(1, 10 + BLOCKS + 1))
    assert before > 0.2 * MISSING
    assert cluster.sent() < 1.5 * MISSING


async def test_another_leader_in_the_middle_does_not_begin_it_anew(cluster: Limited) -> None:
    await cluster.back()
    await cluster.halfway()
    old = await cluster.leader()
    new = 3 - old
    before = cluster.sent()
    await cluster.host(old).router.transfer_leadership(SHARD, ReplicaId(new), 10.0)
    await eventually(lambda: cluster.replica(new).ready_to_lead)
    await cluster.level()
    assert await cluster.records(AWAY, 1) == list(range(1, 10 + BLOCKS + 1))
    assert cluster.host(new).catch_up.sent_bytes > 0
    assert before > 0.2 * MISSING
    assert cluster.sent() < 1.5 * MISSING


async def test_truncation_that_overtakes_it_again_and_again_does_not_keep_it_from_the_end(
    cluster: Limited,
) -> None:
    """The leader keeps next to nothing for members, so each truncation sends a snapshot, which is
    small. What is left to fetch shrinks by every truncation, so there is an end.
    """
    for store in cluster.truncating.values():
        if store.host is not None:
            _keep_nothing(store)
    for budget in cluster.budgets():
        budget.change(4 * TURN)
    await cluster.back()
    _keep_nothing(cluster.truncating[AWAY])
    host = cluster.host(await cluster.leader())
    overtaken = 0
    for lsn in range(20, 10 + BLOCKS, 20):
        overtaken += cluster.position() < lsn
        await host.propose(SHARD, commands.encode(commands.Truncate(APP, Lsn(lsn), 0)), 30.0)
        await cluster.visit()
    assert overtaken > 2
    assert host.replicas.running[SHARD].first_lsn > 150, "the leader kept nothing for it"
    await cluster.level()
    last = cluster.replica(AWAY).log_bounds[1]
    first = cluster.replica(AWAY).first_lsn
    assert await cluster.records(AWAY, first) == list(range(first, last + 1))


def _keep_nothing(store: TruncatingStore) -> None:
    """Its worker keeps no more than an entry for members that are behind."""
    store.worker.keeper._kept_bytes_max = len(BLOCK)


async def test_a_log_that_needs_the_member_for_its_majority_waits_for_no_limit(
    cluster: Limited,
) -> None:
    """The other follower is lost: nothing is committed before the member has caught up."""
    for budget in cluster.budgets():
        budget.change(1)
    leader = await cluster.leader()
    await cluster.stores[3 - leader].down()
    cluster.others = [leader]
    await cluster.back()
    await eventually(lambda: cluster.replica(leader).ready_to_lead)
    await cluster.append(1)
    assert await cluster.records(AWAY, 1) == list(range(1, 10 + BLOCKS + 2))
