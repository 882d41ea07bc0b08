"""A log that comes back from its archive: the same LSNs, and nobody takes it for the old one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from logservice_client import Gap, LogClient, Records, Shard
from logservice_wire.block import encode_block
from logservice_wire.errors import (
    Fenced,
    Truncated,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.folder import Folder
from logservice.archive.lag import Metrics
from logservice.archive.manifest import Manifest, mark
from logservice.archive.restore_plan import Plan, make_plan
from logservice.archive.restoring import Restorer
from logservice.archive.settings import ArchiveSection
from logservice.archive.shipping import Shipper
from tests.server.served import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")

Told = dict[int, tuple[object, ...]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[LogClient]:
    async with LogClient([store.address for store in served.stores]) as running:
        yield running


class Killed(BaseException):
    """The process ends here."""


class Archive:
    """The archive of one log of the cluster."""

    def __init__(self, client: LogClient, shard: int, folder: Path) -> None:
        self.shard = client.shard(shard)
        self.files = Folder(folder)
        mark(self.files, "c")
        self.manifest = Manifest(self.files, shard)

    async def ship(self, **more: Any) -> None:
        settings = ArchiveSection(folder="-", **{"object_bytes": 4000, **more})
        shipper = Shipper(self.shard, "wal", "c", self.manifest, settings, Metrics())
        while await shipper.ship(to_tail=True):
            pass

    def plan(self, **more: Any) -> Plan:
        return make_plan(self.files, self.shard.shard_id, None, **more)

    def restorer(self, into: Shard, plan: Plan | None = None, **more: Any) -> Restorer:
        return Restorer(into, self.files, plan or self.plan(), **more)


async def told(shard: Shard, from_lsn: int) -> Told:
    """What a reader is told of each LSN: the record, or why there is none; and when."""
    found: Told = {}
    async for item in shard.follow(from_lsn, until_tail=True):
        if isinstance(item, Gap):
            for lsn in range(item.first_lsn, item.next_lsn):
                found[lsn] = (item.reason, item.append_time_us)
        else:
            assert isinstance(item, Records)
            for lsn, record in enumerate(item.records(), item.first_lsn):
                found[lsn] = (record, item.timestamp_us, item.append_time_us)
    return found


async def written(client: LogClient, shard: int) -> Shard:
    """A log with records, gaps, a writer, a truncated beginning, and timestamps given out."""
    log = client.shard(shard)
    await log.append([b"early %d" % number for number in range(10)])
    assert await log.acquire_writer("db") == 1
    for number in range(20):
        block = encode_block([b"%d-%d" % (number, at) * 20 for at in range(number + 1)], 77 + number)
        await log.append_block(block)
    await log.truncate(10)
    await log.allocate_timestamps(100)
    return log


async def gap(served: Served, shard: int, count: int) -> None:
    """LSNs without records: a block that passes admission and is refused when it is applied."""
    leader = served.leader(shard)
    replica = leader.host.replicas.running[shard]  # type: ignore[index]
    admission = replica.intake._admission
    assert admission is not None
    known, admission.admit = admission.admit, lambda *_, **__: ADMIT  # type: ignore[method-assign]
    try:
        with pytest.raises(Exception, match="FENCED"):
            await leader.log.Append(
                log_pb2.AppendRequest(
                    shard_id=shard, block=encode_block([b"x"] * count, 5), writer_epoch=99
                )
            )
    except AssertionError:
        raise
    finally:
        admission.admit = known  # type: ignore[method-assign]


async def test_a_restored_log_is_the_same_and_goes_on(
    served: Served, client: LogClient, tmp_path: Path
) -> None:
    """G10. And litestream's 781: an append gets the next LSN, and the archive ships from there at
    once, not only when some old mark is passed.
    """
    shard = await served.new_shard()
    log = await written(client, shard)
    archive = Archive(client, shard, tmp_path)
    await archive.ship()
    before = await told(log, 11)
    plan = archive.plan()
    assert (plan.base_lsn, plan.end_lsn, plan.timed) == (11, 221, True)
    other = client.shard(await served.new_shard())
    assert await archive.restorer(other).run()
    assert await told(other, 11) == before
    assert str(await other.digest(11, 221)) == str(await log.digest(11, 221))
    with pytest.raises(Truncated) as truncated:
        await other.read(10)
    assert truncated.value.number("first_lsn") == 11
    status = await other.status()
    assert not status.HasField("restoring")
    assert (status.position.lineage.number, status.position.lineage.fork_lsn) == (1, 220)
    assert (status.writer_epoch, status.writer_holder) == (2**32 + 1, "")
    # The old writer is refused, also when it says nothing of a lineage.
    stranger = (await client_of(served)).shard(other.shard_id)
    for epoch in (0, 1):
        stranger.writer_epoch = epoch
        with pytest.raises(Fenced):
            await stranger.append(b"old")
    assert await stranger.acquire_writer("db", expected_epoch=2**32 + 1) == 2**32 + 2
    assert await stranger.append(b"next") == 221
    assert (await stranger.allocate_timestamps()).start == 101 + bounds.LINEAGE_TIMESTAMP_STEP
    again = Archive(client, other.shard_id, tmp_path)
    await again.ship()
    rows = list(again.manifest.rows())
    assert (rows[0].missing, rows[0].end_lsn, rows[-1].end_lsn) == (True, 11, 222)
    assert {(row.lineage_number, row.lineage) for row in rows} == {
        (1, status.position.lineage.id.hex())
    }
    third = client.shard(await served.new_shard())
    assert await again.restorer(third).run()
    assert (await told(third, 11)).keys() == {*before, 221}
    assert (await third.status()).position.lineage.number == 2


async def client_of(served: Served) -> LogClient:
    return LogClient([store.address for store in served.stores])
