"""A short chaos run as part of the ordinary tests; the long ones are ``make chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import LocalCluster
from tests.chaos.nemesis import Fault, Step, Wanted
from tests.chaos.run import Options, run
from tests.chaos.world import World


@pytest.mark.long
@pytest.mark.processes
async def test_killed_and_paused_stores_lose_nothing(tmp_path: Path) -> None:
    options = Options(
        seed=1,
        wanted=Wanted(kills=2, pauses=1, stops=1),
        stores=3,
        clients=1,
        writers=4,
        shards=1,
        batch_max=8,
        record_bytes=60,
        pause_s=0.01,
        keep_records=1000,
        min_records=500,
        directory=tmp_path,
    )
    result = await run(options, lambda world, note: None)
    assert result.problems == []
    assert (result.kills, result.pauses) == (2, 1)
    for verdict in result.verdicts.values():
        assert verdict.violations == []
        assert verdict.counts["final reads"] == 3
        assert verdict.counts["acked records"] > 0


@pytest.mark.processes
async def test_a_store_is_stopped_in_good_order_although_it_was_started_a_moment_ago(
    tmp_path: Path,
) -> None:
    """Plan of seed 2008433406: the signal met a process that was still loading its modules."""
    cluster = LocalCluster.create(tmp_path / "cluster", stores=1, shards=1)
    world = World(cluster, [], [1])
    try:
        cluster.start("store-1")
        await world.disturb(Step(Fault.STOP, (0,), before_s=0.0, down_s=0.0))
        assert world.problems == []
    finally:
        cluster.down()
