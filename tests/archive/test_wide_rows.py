"""Wide blocks in an object of an archive: whole, cut at its ends, and what no archive has."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logservice_client import Gap, GapReason, Records
from logservice_wire.block import Block, encode_block
from logservice_wire.column_block import encode_columns
from logservice_wire.digest import Digester, digest_text

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.range_file import SCHEMA, RangeWriter, digest_of_object
from logservice.archive.restore_source import runs


def wide(rng: random.Random, count: int) -> Block:
    values = [rng.randbytes(rng.choice((0, 1, 9))) for _ in range(count)]
    keys = [rng.choice((None, b"", b"k")) for _ in values]
    codec = rng.choice((None, "zstd", "lz4"))
    return Block.parse(encode_columns(values, rng.randrange(99), keys=keys, codec=codec))


def some_items(rng: random.Random) -> list[Records | Gap]:
    """Runs, the first of which shows the end of its block."""
    items: list[Records | Gap] = []
    lsn = 5
    for number in range(40):
        kind, count = rng.random(), rng.choice((1, 2, 30, 200))
        if kind < 0.2:
            items.append(Gap(lsn, count, 1, GapReason.FENCED, 9))
        elif kind < 0.4:
            block = Block.parse(encode_block([b"x"] * count, number))
            items.append(Records(lsn, count, 1, block, 0, 9))
        else:
            items.append(Records(lsn, count, 1, wide(rng, count), 0, 9))
        lsn += count
    first = wide(rng, 50)
    items.insert(0, Records(2, 3, 1, Block.parse(first.data), 47, 8))
    return items


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that reach over row groups and batches included."""
    monkeypatch.setattr(bounds, "ARCHIVE_ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_ROWS", 77)
    items = some_items(random.Random(seed))
    first_lsn, end_lsn = items[0].first_lsn, items[-1].next_lsn
    file = io.BytesIO()
    writer = RangeWriter(file, first_lsn)
    wanted = Digester(first_lsn, end_lsn)
    for item in items:
        writer.add(item)
        if isinstance(item, Gap):
            wanted.add_gap(item.first_lsn, item.record_count, item.reason.value)
        else:
            wanted.add_block(item.first_lsn - item.skipped, item.block)
    assert writer.finish() == digest_text(wanted.digest())
    assert digest_of_object(file, first_lsn, end_lsn) == digest_text(wanted.digest())
    found = Digester(first_lsn, end_lsn)
    blocks = []
    for run in runs(file, first_lsn, end_lsn):
        run.feed(found)
        if run.wide is not None:
            (block,) = run.blocks()
            assert block.append_time_us == run.append_time_us
            blocks.append((run.first_lsn, block.block))
    assert digest_text(found.digest()) == digest_text(wanted.digest())
    assert blocks == [
        (item.first_lsn, item.block.cut(item.skipped, item.skipped + item.record_count))
        for item in items
        if isinstance(item, Records) and item.block.wide
    ]


def test_a_part_of_a_run_is_a_part_of_the_block() -> None:
    (run,) = runs(parquet(rows()), 5, 8)
    part = run.part(6, 100)
    assert part is not None
    (block,) = part.blocks()
    assert (part.first_lsn, part.count, block.block) == (6, 2, BLOCK.cut(1, 3))
    assert run.part(8, 9) is None


BLOCK = Block.parse(encode_columns([b"a", b"b", b"c"], 7, keys=[b"k", None, b""]))
DATA = bytes(BLOCK.data)


def rows(**columns: Any) -> pa.Table:
    """The rows of BLOCK, LSNs 5 to 7."""
    given: dict[str, Any] = {
        "lsn": [5, 6, 7],
        "record": [None] * 3,
        "gap": [None] * 3,
        "written": [7] * 3,
        "append_time": [9] * 3,
        "block": [DATA, None, None],
        **columns,
    }
    arrays = [pa.array(given[field.name], field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def parquet(table: pa.Table) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file, use_dictionary=False)
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": [DATA, DATA, None]},
        {"block": [DATA, None, DATA]},
        {"block": [None, DATA, None]},
        {"block": [None, None, None]},
        {"block": [DATA[:-1], None, None]},
        {"block": [b"", None, None]},
        {"block": [DATA[:60] + b"x" + DATA[61:], None, None]},
        {"block": [encode_block([b"a", b"b", b"c"], 7), None, None]},
        {"block": [encode_columns([b""] * 4, 7, codec="lz4"), None, None]},
        {"block": [encode_columns([b""] * 2, 7, codec="lz4"), None, None]},
        {"record": [b"a", None, None]},
        {"record": [None, None, b"c"]},
        {"gap": [1, None, None]},
        {"gap": [None, 1, None]},
        {"append_time": [-1, 9, 9]},
        {"append_time": [bounds.APPEND_TIME_US_MAX + 1] * 3},
        {"lsn": [5, 6, 8]},
    ],
    ids=str,
)
def test_rows_that_no_log_has_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArchiveDamaged):
        list(runs(parquet(rows(**wrong)), 5, 8))


@pytest.mark.parametrize("seed", range(100))
def test_fuzzed_objects_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(parquet(rows()).getvalue())
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    for read in (lambda file: list(runs(file, 5, 8)), lambda file: digest_of_object(file, 5, 8)):
        with contextlib.suppress(ArchiveDamaged):
            read(io.BytesIO(bytes(data)))
