"""Writing to stores below cluster version 2: refused at once, with nothing appended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest
from logservice_client import LogClient, SyncLogClient
from logservice_wire.errors import NotReady
from pyspark_logservice.writing.blocks import Blocks
from pyspark_logservice.writing.identity import Work
from pyspark_logservice.writing.options import WriteOptions
from pyspark_logservice.writing.writer import append_all

from tests.server.served import Served


def attempt(address: str, shard: int, more: Sequence[str], codec: str | None) -> None:
    options = WriteOptions(endpoints=address, logs=(str(shard),), rpc_timeout_s=10, codec=codec)
    blocks = Blocks("", {}, shard, more=more, codec=codec)
    try:
        blocks.add(pa.RecordBatch.from_pydict({"value": [b"v"], "key": [b"k"]}))
        with SyncLogClient(address) as client:
            append_all(client, options, Work("w", "w/0", 1, 0, "a test"), shard, blocks)
    finally:
        blocks.close()


@pytest.mark.parametrize(("more", "codec"), [(("key",), None), ((), "zstd"), ((), None)])
async def test_it_is_told(more: Sequence[str], codec: str | None) -> None:
    async with Served(1, cluster_version=1) as old:
        address = old.stores[0].address
        shard = await old.new_shard()
        with pytest.raises(NotReady) as caught:
            await asyncio.to_thread(attempt, address, shard, more, codec)
        error = caught.value
        assert (error.number("cluster_version"), error.number("needed")) == (1, 2)
        async with LogClient([address]) as client:
            assert (await client.shard(shard).read(1)).items == ()
