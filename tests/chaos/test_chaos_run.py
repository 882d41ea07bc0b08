"""A short chaos run as part of the ordinary tests; the long ones are ``make chaos``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.nemesis import Wanted
from tests.chaos.run import Options, run


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
