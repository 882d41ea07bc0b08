"""A whole store says how much of each part of its memory budget is in use."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from logservice.config import memory_limits
from logservice.memory_budget import PARTS
from logservice.server.monitor.port.metrics import store_families
from logservice.server.store import Store
from tests.server.test_store import Client, configured
from tests.waiting import eventually

SHARED = {"proposals", "unwritten", "peer_queues", "peer_requests"}


@pytest.mark.asyncio
async def test_every_part_has_a_gauge_and_the_limits_add_up(tmp_path: Path) -> None:
    config = configured(tmp_path / "data")
    store = Store(config)
    try:
        await store.start()
        client = Client(store)
        await client.shard_ready(1)
        assert store._monitor is not None
        reporter = store._monitor.reporter

        def shown(name: str) -> dict[str, float]:
            return {
                sample.labels["part"]: sample.value
                for family in store_families(reporter.status(0))
                for sample in family.samples
                if sample.name == name
            }

        limits = shown("logservice_memory_part_limit_bytes")
        assert limits == memory_limits(config)
        assert list(limits) == [part.name for part in PARTS]
        assert set(shown("logservice_memory_part_bytes")) == set(limits)
        assert shown("logservice_memory_part_refused_total") == dict.fromkeys(SHARED, 0)
        assert shown("logservice_memory_part_bytes")["caches"] > 0
        assert store._parts is not None
        host = store._parts.host
        host.unwritten.take("somebody", 1000)
        assert shown("logservice_memory_part_bytes")["unwritten"] >= 1000
        host.unwritten.give_back("somebody", 1000)
        await eventually(lambda: shown("logservice_memory_part_bytes")["unwritten"] == 0)
        await client.channel.close()
    finally:
        await store.stop()


@pytest.mark.asyncio
async def test_the_keys_of_the_configuration_are_in_force(tmp_path: Path) -> None:
    """Each key of the budget reaches what it bounds."""
    config = configured(tmp_path / "data")
    sizes = {
        "proposal_bytes_max": 71 << 20,
        "unwritten_bytes_max": 72 << 20,
        "peer_queue_bytes_max": 73 << 20,
        "peer_request_bytes_max": 74 << 20,
    }
    limits = msgspec.structs.replace(config.limits, **sizes)
    store = Store(msgspec.structs.replace(config, limits=limits))
    try:
        await store.start()
        assert store._parts is not None
        assert store._transport is not None
        host, transport = store._parts.host, store._transport
        found = [host.proposals, host.unwritten, transport.queues, transport.requests]
        assert [part.limit for part in found] == list(sizes.values())
    finally:
        await store.stop()
