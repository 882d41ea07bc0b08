"""The read bench reads what it says it reads: one shard of 48, and the same bytes bare."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from logservice_client import LogClient

from bench.load.closed_loop import measure
from bench.storage.reading import (
    PIECES,
    SHARDS,
    Ceiling,
    Filled,
    bench_read,
    block_reads,
    build,
    fill,
    linearizable_connections,
    linearizable_reads,
    pieces_of,
    read_pieces,
    read_sequentially,
    read_shard,
    verify,
)
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.record import record_bytes
from tests.server.served import Served

WANTED, STORE = 1 << 20, 20 << 20


def test_all_sides_read_a_shard(tmp_path: Path) -> None:
    store = build(str(tmp_path), WANTED, STORE)
    assert len(store.db.replicas()) == SHARDS
    for piece in PIECES:
        log, shape = store.db.log(ShardId(piece.shard), ReplicaId(1)), piece.shape
        pieces = pieces_of(log)
        assert len(pieces) == WANTED // shape.bytes
        assert {size for _, _, size in pieces} == {
            shape.entries * record_bytes(shape.payload_bytes)
        }
        apart = [high - low for (_, low, _), (_, high, _) in pairwise(pieces)]
        assert min(apart) > 10 * shape.bytes, "the others lie between them"
        assert read_shard(log) == WANTED
        assert read_pieces(tmp_path, pieces) == sum(size for _, _, size in pieces)
    assert read_sequentially(tmp_path, WANTED) >= WANTED
    store.close()


def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench_read(tmp_path, WANTED, STORE, 2)
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0].strip() for row in rows[2:]] == [
        "the files in order",
        "a shard in pieces of 32 KiB",
        "bare pieces of 32 KiB",
        "a shard in pieces of 64 KiB",
        "bare pieces of 64 KiB",
        "a shard in pieces of 256 KiB",
        "bare pieces of 256 KiB",
    ]
    assert [bool(row[4].strip()) for row in rows[2:]] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]


async def test_blocks_are_read_through_grpc_and_compared() -> None:
    async with Served(3) as served:
        shard = await served.new_shard()
        async with LogClient([store.address for store in served.stores]) as client:
            filled = await fill(client, shard, 10, 1000, 300_000)
            assert filled.appends == 30
            assert (await block_reads(client, filled)).mb_per_s > 0
            await verify(client, filled)
            other = (*filled.records[:-1], b"x" * 1000)
            with pytest.raises(RuntimeError, match="not what was appended"):
                await verify(client, Filled(shard, other, filled.appends, filled.first_lsn))
            more = Filled(shard, filled.records, filled.appends + 1, filled.first_lsn)
            with pytest.raises(RuntimeError, match="ends at"):
                await verify(client, more)
            with pytest.raises(RuntimeError, match="300 records were read"):
                await block_reads(client, more)


async def test_linearizable_reads_are_counted() -> None:
    async with Served(3) as served:
        shard = await served.new_shard()
        endpoints = [store.address for store in served.stores]
        async with LogClient(endpoints) as client:
            await client.shard(shard).append(b"first")
        leader = next(s.address for s in served.stores if s is served.leader(shard))
        for callers in (
            linearizable_reads(endpoints, shard, 8),
            linearizable_connections(endpoints, leader, shard, 2),
        ):
            async with callers as requests:
                assert (await measure(requests, warmup_s=0.0, seconds=0.2)).records > 0


async def test_the_ceiling_is_a_server_of_its_own() -> None:
    ceiling = Ceiling()
    try:
        assert (await ceiling.streamed(1 << 16, 1 << 20)).mb_per_s > 0
    finally:
        ceiling.close()
