"""The read bench reads what it says it reads: one shard of 48, and the same bytes bare."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bench.storage.reading import (
    PIECES,
    SHARDS,
    bench_read,
    build,
    pieces_of,
    read_pieces,
    read_sequentially,
    read_shard,
)
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.record import record_bytes

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
