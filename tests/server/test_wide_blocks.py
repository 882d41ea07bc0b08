"""Wide blocks (version 2) over real gRPC: no store opens one, whatever it does with it, and below
cluster version 2 none is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient, NotReady, Shard
from logservice_client.read_result import Records
from logservice_wire import block as blocks
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import CorruptBlock, LogServiceError, Reason
from logservice_wire.v1 import log_pb2

from logservice.archive.branching import Wanted
from tests.archive.test_branching import branched
from tests.archive.test_restoring import Archive
from tests.server.served import Served, typed
from tests.wire.test_wide_block import LIES

pytestmark = pytest.mark.asyncio(loop_scope="module")

VALUES = [b"v%d" % number for number in range(10)]
KEYS = [None if number % 3 else b"k%d" % number for number in range(10)]
HEADERS = [{"number": b"%d" % number} for number in range(10)]
TIMES = list(range(100, 110))
COLUMNS: dict[str, Any] = {"keys": KEYS, "headers": HEADERS, "times_us": TIMES}
CODECS = (None, "zstd", "lz4")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Served) -> AsyncIterator[LogClient]:
    async with LogClient([store.address for store in served.stores]) as running:
        yield running


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Nobody in this process can open a wide block, until `undo`."""

    def opened(*_: object) -> None:
        raise AssertionError("somebody opened a block")

    monkeypatch.setattr(blocks, "decompress", opened)
    monkeypatch.setattr(blocks, "Cursor", opened)
    return monkeypatch


async def written(log: Shard) -> int:
    """Wide blocks of every codec between plain ones; returns the LSN behind them."""
    for codec in CODECS:
        await log.append_columns(VALUES, **COLUMNS, codec=codec)
        await log.append([b"plain", b""])
    return await log.append(b"last") + 1


async def data_of(log: Shard, lsn: int) -> list[tuple[int, bytes]]:
    """The blocks from `lsn` on, byte for byte."""
    found: list[tuple[int, bytes]] = []
    async for item in log.follow(lsn, until_tail=True):
        assert isinstance(item, Records)
        found.append((item.first_lsn, bytes(item.block.data)))
    return found


async def told(log: Shard, lsn: int) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    async for item in log.follow(lsn, until_tail=True):
        assert isinstance(item, Records)
        columns = item.columns()
        of_each = (columns.records(), columns.keys(), columns.headers(), columns.times_us())
        found += enumerate(zip(*of_each, strict=True), item.first_lsn)
    return found


async def test_a_block_goes_through_unopened_and_unchanged(
    served: Served, client: LogClient, unopened: pytest.MonkeyPatch
) -> None:
    """INV-BLOCK-OPAQUE: append, forwarding, reading, digesting."""
    log = client.shard(await served.new_shard())
    shard = log.shard_id
    data = encode_columns(VALUES, 77, **COLUMNS, codec="zstd")
    assert await log.append_block(data) == 1
    follower = next(one for one in served.stores if one is not served.leader(shard))
    answer = await follower.log.Append(log_pb2.AppendRequest(shard_id=shard, block=data))
    assert (answer.lsn, answer.record_count) == (11, 10)
    assert await data_of(log, 1) == [(1, data), (11, data)]
    found = {str(await log.digest(3, 18, address=store.address)) for store in served.stores}
    assert len(found) == 1
    unopened.undo()
    assert await told(log, 9) == [
        (lsn, (VALUES[at], KEYS[at], HEADERS[at], TIMES[at]))
        for lsn, at in [(9, 8), (10, 9), *((11 + at, at) for at in range(10))]
    ]
    assert (await log.read(9)).records() == VALUES[8:] + VALUES


async def test_a_branch_an_archive_and_what_is_restored_have_the_same_blocks(
    served: Served, client: LogClient, unopened: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """INV-BLOCK-OPAQUE: copying, archiving, verifying, planning, restoring; and cutting, where the
    copy begins and ends within a block.
    """
    log = client.shard(await served.new_shard())
    end = await written(log)
    archive = Archive(client, log.shard_id, tmp_path)
    await archive.ship()
    restored = client.shard(await served.new_shard())
    assert await archive.restorer(restored, archive.plan()).run()
    branch = client.shard(await served.new_shard())
    assert await branched(log, branch)
    wanted = await data_of(log, 1)
    assert await data_of(branch, 1) == wanted
    wide = [one for one in wanted if blocks.is_wide(one[1])]
    assert [one for one in await data_of(restored, 1) if blocks.is_wide(one[1])] == wide
    digest = str(await log.digest(1, end))
    assert str(await restored.digest(1, end)) == str(await branch.digest(1, end)) == digest

    part = client.shard(await served.new_shard())
    assert await branched(log, part, Wanted(from_lsn=4, end_lsn=31))
    cut = client.shard(await served.new_shard())
    assert await archive.restorer(cut, archive.plan(from_lsn=4, end_lsn=31)).run()
    digest = str(await log.digest(4, 31))
    assert str(await part.digest(4, 31)) == str(await cut.digest(4, 31)) == digest
    unopened.undo()
    of_source = [one for one in await told(log, 1) if 4 <= one[0] <= 30]
    for copy in (part, cut):
        found = await told(copy, 4)
        plain = [(lsn, one[:3]) for lsn, one in found]
        assert plain == [(lsn, one[:3]) for lsn, one in of_source]
        assert found == of_source, "and the times, of the records and of the blocks"
    assert await told(restored, 1) == await told(log, 1)


async def test_a_body_that_lies_is_the_error_of_its_item_alone(
    served: Served, client: LogClient
) -> None:
    """Stores take it, for they do not look; a reader is told, and reads what lies behind."""
    log = client.shard(await served.new_shard())
    for lie in LIES.values():
        await log.append_block(lie())
    assert await log.append(b"behind") == 2 * len(LIES) + 1
    refused = 0
    async for item in log.follow(1, until_tail=True):
        assert isinstance(item, Records)
        try:
            found = item.columns()
            found.records(), found.keys(), found.headers()
        except CorruptBlock:
            refused += 1
    assert refused == len(LIES)
    assert item.records() == [b"behind"]


async def test_below_cluster_version_2_the_writer_is_told_and_the_others_go_on() -> None:
    async with (
        Served(1, cluster_version=1) as old,
        LogClient([old.stores[0].address]) as client,
    ):
        log = client.shard(await old.new_shard())
        data = encode_columns(VALUES, 77, keys=KEYS)
        assert await log.append(b"before") == 1
        wide, plain = await asyncio.gather(
            log.append_block(data), log.append(b"beside"), return_exceptions=True
        )
        assert isinstance(wide, NotReady)
        assert (wide.number("cluster_version"), wide.number("needed")) == (1, 2)
        assert plain == 2, "the block of somebody else does not hold it up"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await old.stores[0].log.Append(log_pb2.AppendRequest(shard_id=log.shard_id, block=data))
        error: LogServiceError = typed(caught.value)
        assert error.reason is Reason.NOT_READY
        assert await log.append_columns([b"alone"]) == 3, "values alone are a plain block"
        assert (await log.read(1)).records() == [b"before", b"beside", b"alone"]
