"""GetTruncation: page by page, and only what is stuck when that is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from logservice_wire.v1 import admin_pb2, log_pb2

from logservice import bounds
from logservice.ids import ShardId
from logservice.owner import ANONYMOUS
from tests.server.served import Served, ServedStore, block

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def store() -> AsyncIterator[tuple[ServedStore, int]]:
    async with Served(1) as served:
        for _ in range(5):
            last = await served.new_shard()
        yield served.stores[0], last


async def asked(store: ServedStore, **fields: Any) -> Any:
    return await store.admin.GetTruncation(admin_pb2.GetTruncationRequest(**fields))


async def appended(store: ServedStore, shard: int, count: int) -> None:
    for _ in range(count):
        await store.log.Append(log_pb2.AppendRequest(shard_id=shard, block=block(b"x" * 100)))


async def test_pages_join_without_a_gap(store: tuple[ServedStore, int]) -> None:
    served, last = store
    whole = [one.shard_id for one in (await asked(served)).replicas]
    assert whole == list(range(last - 4, last + 1))
    for limit in (1, 2, 5, 100):
        found: list[int] = []
        begin = 0
        while True:
            page = await asked(served, from_shard=begin, limit=limit)
            assert len(page.replicas) <= limit
            found += [one.shard_id for one in page.replicas]
            begin = page.next_shard
            if not begin:
                break
        assert found == whole
    assert (await asked(served, from_shard=last + 1)).replicas == []


async def test_a_page_has_a_bound(
    store: tuple[ServedStore, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, last = store
    monkeypatch.setattr(
        "logservice.server.services.truncation_standing.TRUNCATION_PAGE_REPLICAS", 3
    )
    for limit in (0, 4, 2**32 - 1):
        page = await asked(served, limit=limit)
        assert (len(page.replicas), page.next_shard) == (3, last - 1)
    assert bounds.TRUNCATION_PAGE_REPLICAS > 0


async def test_a_visit_shows_what_it_freed(store: tuple[ServedStore, int]) -> None:
    served, shard = store
    await appended(served, shard, 20)
    (before,) = (await asked(served, from_shard=shard)).replicas
    assert before.decision == ""
    await served.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=15))
    (before,) = (await asked(served, from_shard=shard)).replicas
    assert before.truncatable_bytes > 0
    for _ in range(3):
        for worker in served.workers:
            await worker.run_once()
    (after,) = (await asked(served, from_shard=shard)).replicas
    assert (after.truncated_lsn, after.requested_lsn, after.installed_lsn) == (15, 15, 15)
    assert after.freed_bytes >= before.truncatable_bytes
    assert after.truncatable_bytes == 0
    assert after.retained_bytes < before.retained_bytes
    assert after.decision in ("installed", "nothing_truncated")
    assert after.exports >= 1
    assert after.export_bytes > 0
    assert after.newest_export_index > after.installed_index
    assert (await asked(served, stuck=True)).replicas == []


async def test_a_hold_that_keeps_a_truncation_back_is_named(store: tuple[ServedStore, int]) -> None:
    served, shard = store
    await appended(served, shard, 20)
    await served.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="backup", lsn=8))
    assert (await asked(served, stuck=True)).replicas == []
    await served.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=15))
    (found,) = (await asked(served, stuck=True)).replicas
    assert (found.shard_id, found.truncated_lsn, found.requested_lsn) == (shard, 7, 15)
    assert (found.hold_name, found.hold_lsn, found.hold_owner) == ("backup", 8, ANONYMOUS)


async def test_a_halted_replica_is_stuck(store: tuple[ServedStore, int]) -> None:
    served, shard = store
    replicas = served.host.replicas
    replicas.halt(replicas.running[ShardId(shard)], "its data is damaged")
    (found,) = (await asked(served, stuck=True)).replicas
    assert (found.shard_id, found.decision) == (shard, "halted")
    assert "damaged" in found.error
