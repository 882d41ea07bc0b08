"""A fake cluster and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from logservice_client import LogClient

from tests.client.fake_server import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = await FakeCluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[LogClient]:
    async with LogClient(cluster.endpoints) as client:
        yield client
