"""A half mirror on real processes: its stores are killed, all of them and while it is promoted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from logservice_client import LogClient, Shard
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError, Outcome, Reason
from logservice_wire.v1 import log_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.test_archive_restore import SETTINGS
from tests.local_stores import started_cluster

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

OWN = b"1" * 16
COUNT = 10
"""Records of a block."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


def block(lsn: int) -> bytes:
    return encode_block([b"%d" % one * 2_000 for one in range(lsn, lsn + COUNT)], lsn)


def digest_of(base: int, end: int) -> bytes:
    digester = Digester(base, end)
    for lsn in range(1, end, COUNT):
        if lsn + COUNT > base:
            digester.add_block(lsn, Block.parse(block(lsn)))
    return digester.digest()


def _passes(error: LogServiceError) -> bool:
    return error.retryable or error.outcome is Outcome.UNKNOWN


async def bring(log: Shard, end: int, truncated: int = 0) -> None:
    """What the source has up to `end`."""
    while (lsn := (await log.status(timeout=60)).restoring.next_lsn) < end:
        request = log_pb2.RestoreBlocksRequest(
            lineage=OWN,
            first_lsn=lsn,
            blocks=[log_pb2.RestoredBlock(block=block(one)) for one in (lsn, lsn + COUNT)],
        )
        try:
            await log.restore_blocks(request, timeout=60)
        except LogServiceError as error:
            if not (_passes(error) or error.reason is Reason.WRONG_EXPECTED_LSN):
                raise
    if truncated:
        await log.restore_blocks(
            log_pb2.RestoreBlocksRequest(lineage=OWN, truncated_lsn=truncated), timeout=60
        )


async def promote(log: Shard, base: int, end: int) -> None:
    digest = digest_of(base, end)
    for _ in range(100):
        try:
            answer = await log.finish_restore(
                OWN, base_lsn=base, end_lsn=end, digest=digest, next_timestamp=50, timeout=60
            )
            if answer.open:
                return
        except LogServiceError as error:
            if not _passes(error):
                raise
            await asyncio.sleep(0.2)
    raise AssertionError("it did not open")


def test_inv_mirror_1_whoever_is_killed(cluster: LocalCluster) -> None:
    asyncio.run(_killed(cluster))


async def _killed(cluster: LocalCluster) -> None:
    async with LogClient(cluster.endpoints()) as client:
        log = client.shard(await client.hakeeper.create_shard(name="m"))
        await log.connect(timeout=60)
        await log.begin_restore(
            log_pb2.BeginRestoreRequest(
                lineage=log_pb2.Lineage(number=1, id=OWN),
                base_lsn=1,
                writer_epoch=1,
                next_timestamp=1,
                mirror=True,
            )
        )
        await bring(log, 201, truncated=57)
        # One that was away while more was truncated than it has.
        leader = (await log.status()).position.leader_store
        away = next(name for name in cluster.stores if name != leader)
        await asyncio.to_thread(cluster.kill, away)
        await bring(log, 601, truncated=333)
        await asyncio.to_thread(cluster.start, away)
        for name in list(cluster.stores):
            await asyncio.to_thread(cluster.kill, name)
        for name in list(cluster.stores):
            await asyncio.to_thread(cluster.start, name)
        status = await log.status(timeout=90)
        found = status.restoring
        assert (found.mirror, found.base_lsn, found.next_lsn) == (True, 334, 601)
        assert (await log.digest(334, 601, patience=60)).digest == digest_of(334, 601)
        await bring(log, 701, truncated=400)
        # The leader dies while it is promoted: the next one digests its own log.
        leader = (await log.status(timeout=60)).position.leader_store
        promoting = asyncio.ensure_future(promote(log, 401, 701))
        await asyncio.to_thread(cluster.kill, leader)
        await promoting
        await asyncio.to_thread(cluster.start, leader)
        status = await log.status(timeout=60)
        assert not status.HasField("restoring")
        assert (status.position.first_lsn, status.position.lineage.fork_lsn) == (401, 700)
        epoch = await log.acquire_writer("db", expected_epoch=status.writer_epoch, timeout=60)
        assert epoch == (1 << 32) + 2
        assert await log.append(b"behind", timeout=60) == 701
        assert (await log.digest(401, 701, patience=60)).digest == digest_of(401, 701)
