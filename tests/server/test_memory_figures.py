"""A whole store says how much of each part of its memory budget is in use."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from logservice_wire.v1 import admin_pb2

from logservice import bounds
from logservice.config import memory_limits
from logservice.memory_budget import FULL_ALARM, PARTS
from logservice.server.monitor.port.metrics import store_families
from logservice.server.store import Store
from tests.server.test_store import Client, configured
from tests.waiting import eventually

PAID_FOR = {part.name for part in PARTS} - {"caches"}


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
        assert shown("logservice_memory_part_refused_total") == dict.fromkeys(PAID_FOR, 0)
        assert shown("logservice_memory_part_bytes")["caches"] > 0
        assert store._parts is not None
        host = store._parts.host
        host.unwritten.take("somebody", 1000)
        assert shown("logservice_memory_part_bytes")["unwritten"] >= 1000
        host.unwritten.give_back("somebody", 1000)
        await eventually(lambda: shown("logservice_memory_part_bytes")["unwritten"] == 0)
        own = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest())
        assert [(one.part, one.limit_bytes) for one in own.memory] == list(limits.items())
        assert {one.part: one.key for one in own.memory} == {one.name: one.key for one in PARTS}
        await client.channel.close()
    finally:
        await store.stop()


@pytest.mark.asyncio
async def test_a_part_for_whose_room_somebody_paid_is_an_alarm_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reaches MEMORY_FULL_TELL_S. Each part has its own count, and says what it is."""
    store = Store(configured(tmp_path / "data"))
    try:
        await store.start()
        client = Client(store)
        await client.shard_ready(1)
        assert store._memory is not None
        assert store._monitor is not None
        memory, now_s = store._memory, [1000.0]
        monkeypatch.setattr(memory, "_clock", lambda: now_s[0])
        assert memory.alarms() == []
        parts, port, transport = memory._parts, memory._port, memory._transport
        assert port._connections is not None
        parts.host.proposals.refused += 1
        parts.host.unwritten.refused += 1
        transport.queues.refused += 1
        transport.requests.refused += 1
        transport._budget.cuts += 1
        port.answers.refused += 1
        port.lines.refused["bytes"] += 1
        port.lines.refused["deadline"] += 1
        port._connections.counts.undelivered_cut += 1
        memory._admin.cut += 1
        found = memory.alarms()
        assert [one.split(": ")[:2] for one in found] == [
            [FULL_ALARM, part.name] for part in PARTS if part.name in PAID_FOR
        ]
        assert all(one.endswith("had to pay 1 times") for one in found)
        now_s[0] += bounds.MEMORY_FULL_TELL_S - 1
        assert memory.alarms() == found
        port.answers.refused += 1
        now_s[0] += 1
        (left,) = store._monitor.reporter.status(0).alarms
        assert left.startswith(f"{FULL_ALARM}: answers: 0 of 2048 MiB now")
        own = await client.admin.GetStoreStatus(admin_pb2.GetStoreStatusRequest())
        assert {one.part: one.refused for one in own.memory} == {
            **dict.fromkeys(PAID_FOR, 1),
            "answers": 2,
            "caches": 0,
        }
        now_s[0] += bounds.MEMORY_FULL_TELL_S
        assert memory.alarms() == []
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
