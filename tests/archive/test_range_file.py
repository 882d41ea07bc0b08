"""A range as Parquet: what is written is what is read, and damage is an error of ours."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logservice_client import Gap, GapReason, Records
from logservice_wire.block import Block, encode_block
from logservice_wire.digest import Digester, digest_text
from logservice_wire.errors import CodecMissing

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.manifest import GapRun
from logservice.archive.range_file import RangeWriter, digest_of_object, read_batches


def some_items(rng: random.Random, count: int, first_lsn: int) -> list[Records | Gap]:
    items: list[Records | Gap] = []
    lsn = first_lsn
    for number in range(count):
        if rng.random() < 0.2:
            size = rng.choice((1, 7, 3000))
            reason = rng.choice((GapReason.FENCED, GapReason.SEQUENCE))
            items.append(Gap(lsn, size, 1, reason))
        else:
            records = [rng.randbytes(rng.choice((0, 1, 9, 500))) for _ in range(rng.randint(1, 50))]
            block = Block.parse(encode_block(records, 1000 + number))
            skipped = rng.randrange(len(records)) if number == 0 else 0
            size = len(records) - skipped
            items.append(Records(lsn, size, 1, block, skipped))
        lsn += size
    return items


def written(items: list[Records | Gap]) -> tuple[bytes, RangeWriter, str]:
    file = io.BytesIO()
    writer = RangeWriter(file, items[0].first_lsn)
    for item in items:
        writer.add(item)
    digest = writer.finish()
    assert len(file.getvalue()) == writer.file.size
    return file.getvalue(), writer, digest


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ARCHIVE_ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(bounds, "ARCHIVE_READ_ROWS", 77)
    items = some_items(random.Random(seed), 60, 5)
    content, writer, digest = written(items)
    wanted = Digester(5, items[-1].next_lsn)
    rows = []
    for item in items:
        if isinstance(item, Gap):
            wanted.add_gap(item.first_lsn, item.record_count, item.reason.value)
            rows += [(None, item.reason.value, None)] * item.record_count
        else:
            wanted.add_block(item.first_lsn - item.skipped, item.block)
            rows += [(one, None, item.timestamp_us) for one in item.records()]
    assert digest == digest_text(wanted.digest())
    assert digest_of_object(io.BytesIO(content), 5, items[-1].next_lsn) == digest
    read = [row for batch in read_batches(io.BytesIO(content)) for row in batch.to_pylist()]
    assert [row["lsn"] for row in read] == list(range(5, items[-1].next_lsn))
    assert [(row["record"], row["gap"]) for row in read] == [row[:2] for row in rows]
    times = [row["written"] and round(row["written"].timestamp() * 1e6) for row in read]
    assert times == [row[2] for row in rows]
    assert sum(gap.count for gap in writer.gaps) == writer.digester.gap_lsns
    assert pq.ParquetFile(io.BytesIO(content)).metadata.num_row_groups > 1


def test_adjacent_gaps_are_one_run() -> None:
    items: list[Records | Gap] = [
        Gap(1, 2, 1, GapReason.FENCED),
        Gap(3, 1, 1, GapReason.FENCED),
        Gap(4, 1, 2, GapReason.SEQUENCE),
    ]
    _, writer, _ = written(items)
    assert writer.gaps == [GapRun(1, 3, 1), GapRun(4, 1, 3)]


def test_a_reason_of_a_newer_program_is_refused() -> None:
    with pytest.raises(CodecMissing, match="the gap at LSN 1 has an unknown reason: it is too new"):
        written([Gap(1, 2, 1, GapReason.UNKNOWN)])


def test_damage_is_noticed() -> None:
    """Whatever byte is another one: an error of ours, or the digest of what was written."""
    rng = random.Random(1)
    items = some_items(rng, 20, 1)
    content, _, digest = written(items)
    end_lsn = items[-1].next_lsn
    noticed = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        try:
            found = digest_of_object(io.BytesIO(damaged), 1, end_lsn)
        except ArchiveDamaged:
            noticed += 1
        else:
            noticed += found != digest
    assert noticed > 200, "bytes of footers that nobody reads may change; the SHA-256 covers them"
    for size in (0, 1, 8, len(content) // 2, len(content) - 1):
        with pytest.raises(ArchiveDamaged):
            digest_of_object(io.BytesIO(content[:size]), 1, end_lsn)
    for bounds_of in ((1, end_lsn + 1), (1, end_lsn - 1), (2, end_lsn)):
        with pytest.raises(ArchiveDamaged):
            digest_of_object(io.BytesIO(content), *bounds_of)


@pytest.mark.parametrize("columns", [["lsn"], ["lsn", "record", "gap", "written", "other"]])
def test_other_columns_are_refused(columns: list[str]) -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([1]) for name in columns}), file)
    with pytest.raises(ArchiveDamaged):
        digest_of_object(io.BytesIO(file.getvalue()), 1, 2)


def test_a_record_in_a_gap_and_an_lsn_without_anything_are_refused() -> None:
    content, _, _ = written([Records(1, 1, 1, Block.parse(encode_block([b"a"], 0)), 0)])
    table = pq.read_table(io.BytesIO(content))
    for name, value in (("gap", pa.array([1], pa.int32())), ("record", pa.nulls(1, pa.binary()))):
        other = table.set_column(table.column_names.index(name), name, value)
        file = io.BytesIO()
        pq.write_table(other, file, use_dictionary=False)
        with pytest.raises(ArchiveDamaged, match="gap"):
            digest_of_object(io.BytesIO(file.getvalue()), 1, 2)
