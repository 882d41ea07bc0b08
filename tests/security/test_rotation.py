"""The short form of the rotation soak; see `rotation`."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.security.rotation import SETTINGS, soak

pytestmark = pytest.mark.processes


async def test_rotation_under_load_fails_nothing(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "cluster", settings=SETTINGS, tls=True)
    try:
        cluster.up()
        figures = await soak(cluster, seconds=0.0, every_s=1.0, steps=8)
    finally:
        kill_stores(cluster)
    assert figures.rotations >= 5
    assert figures.authorities >= 1
    assert figures.appended > 100
