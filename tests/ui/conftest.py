"""One cluster and one browser for all tests of the page."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from logservice_client.sync import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.ui.looking import MARKUP, SETTINGS, SHARDS
from tools.chromium import Chromium, program


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    if program() is None:
        if os.environ.get("LOGSERVICE_REQUIRE_BROWSER"):
            pytest.fail("no Chromium")
        pytest.skip("no Chromium here; `make test-ui` installs it")
    running = LocalCluster.create(
        tmp_path_factory.mktemp("cluster") / "c", shards=SHARDS, settings=SETTINGS
    )
    try:
        running.up(90)
        running.wait_ready(90, 3)
        with SyncLogClient(",".join(running.endpoints())) as client:
            shard = client.shard(3)
            shard.acquire_writer(MARKUP)
            shard.append([b"x" * 100] * 50)
            shard.set_hold(MARKUP, 11)
            shard.truncate(40)
        yield running
    finally:
        kill_stores(running)


@pytest.fixture(scope="session")
def browser(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running
