"""The rows of an archived range, as Arrow batches for Spark; in a task.

An object is read whole, and checked, before a row of it is handed on: tens of megabytes. Its rows
are those of all LSNs of its range, in order, so a part of the range is a slice. Where a wide block
is, it stands in the row of its first LSN, and is opened here: its keys, headers and times come out
of it, too, and are null for other records.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from logservice_client.arrow import lsns, repeated, times, values
from logservice_client.read_result import GapReason, corrupt_at, too_new_at
from logservice_wire.block import Block
from logservice_wire.bounds import ARCHIVE_LSNS_MAX, ARCHIVE_OPENED_BYTES_MAX
from logservice_wire.errors import CodecMissing, CorruptBlock
from logservice_wire.parquet_pages import PLAIN, PagesRefused, check_footer, check_pages

from pyspark_logservice.archive import ArchivedRange, ArchiveError, Place
from pyspark_logservice.batches import COLUMN_TYPES, MORE, times_mask
from pyspark_logservice.wanted import Numbers

BATCH_ROWS: Final = 65_536
"""Rows that are handed on at a time."""


def batches(
    place: Place,
    shard: int,
    row: ArchivedRange,
    start: int,
    end: int,
    *,
    include_gaps: bool,
    columns: Sequence[str],
    only: Sequence[int] = (),
    times_us: Numbers | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows for ``start <= lsn < end`` of a range; the arguments are those of `BatchMaker`. Raises
    ArchiveError, and CorruptBlock and CodecMissing for wide blocks.
    """
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
    asked = {"lsn", "gap", "block"}
    asked |= {"record"} if "value" in columns else set()
    asked |= {"written"} if "timestamp" in columns or times_us is not None else set()
    more = tuple(name for name in columns if name in MORE)
    for first, part in _parts(_read(place, row, asked), row, start, end, more):
        mask = pc.is_null(part["gap"])
        if times_us is not None:
            mask = times_mask(part["written"], times_us)
        elif include_gaps:
            mask = None
        if only:
            wanted = pc.is_in(lsns(first, part.num_rows), pa.array(only, pa.int64()))
            mask = wanted if mask is None else pc.and_(mask, wanted)
        kept = part if mask is None else part.filter(mask)
        if kept.num_rows:
            made = [_column(name, kept, shard) for name in columns]
            yield pa.RecordBatch.from_arrays(made, schema=schema)


def first_appended_at(place: Place, row: ArchivedRange, time_us: int) -> int:
    """The first LSN of the range that was appended then or later; its end when none was."""
    appended = _read(place, row, {"append_time"})["append_time"].cast(pa.int64())
    later = pc.index(pc.greater_equal(appended, time_us), True).as_py()
    return row.first_lsn + int(later) if later >= 0 else row.end_lsn


def _read(place: Place, row: ArchivedRange, columns: set[str]) -> pa.Table:
    """INV-ARCHIVED-3, INV-ARCHIVE-BOMB."""
    count = row.end_lsn - row.first_lsn
    if count > ARCHIVE_LSNS_MAX:
        raise ArchiveError(f"{row.path} is said to have {count} LSNs")
    content = place.read(row.path, row.object_bytes)
    if content is None:
        raise ArchiveError(f"{row.path} is gone")
    if len(content) != row.object_bytes or hashlib.sha256(content).hexdigest() != row.sha256:
        raise ArchiveError(f"{row.path} is damaged: it is not what was archived")
    try:
        check_footer(io.BytesIO(content))
        file = pq.ParquetFile(pa.BufferReader(content))
        if file.metadata.num_rows != count:
            raise PagesRefused(f"{file.metadata.num_rows} rows, of {count}")
        opened = check_pages(
            io.BytesIO(content), file.metadata, plain=PLAIN, bytes_max=ARCHIVE_OPENED_BYTES_MAX
        )
        if opened > ARCHIVE_OPENED_BYTES_MAX:
            raise PagesRefused(f"it opens to {opened} bytes")
        found = file.read(columns=sorted(columns & set(file.schema_arrow.names)))
    except (pa.ArrowException, PagesRefused) as error:
        raise ArchiveError(f"{row.path}: {error}") from error
    if len(found) != count:
        raise ArchiveError(
            f"{row.path} has {len(found)} rows for LSNs {row.first_lsn} to {row.end_lsn - 1}"
        )
    return found


def _parts(
    table: pa.Table, row: ArchivedRange, start: int, end: int, more: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The asked rows in pieces, each with its first LSN; columns lsn, gap, what of record and
    written there is, and of wide blocks those of `more`.
    """
    wide = []
    if "block" in table.column_names:  # older objects have none
        wide = pc.indices_nonzero(pc.is_valid(table["block"])).to_pylist()
        blocks = table["block"]
        table = table.drop_columns(["block"])
    low, high = max(start, row.first_lsn) - row.first_lsn, min(end, row.end_lsn) - row.first_lsn
    at = 0
    for number in wide:
        try:
            block = Block.parse(blocks[number].as_buffer())
        except CodecMissing as error:
            raise too_new_at(row.first_lsn + number, 1, error) from error
        yield from _plain(table, row, max(low, at), min(high, number))
        at = number + len(block)
        if at > len(table):
            raise ArchiveError(f"{row.path}: a block is longer than its range")
        begin, behind = max(low, number), min(high, at)
        if begin < behind:
            first = row.first_lsn + begin
            try:
                made = _opened(table, block, number, begin, behind, more)
            except CorruptBlock as error:
                raise corrupt_at(first, behind - begin, error) from error
            yield first, made
    yield from _plain(table, row, max(low, at), high)


def _plain(
    table: pa.Table, row: ArchivedRange, low: int, high: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    if low >= high:
        return
    first = row.first_lsn + low
    for batch in table.slice(low, high - low).to_batches(max_chunksize=BATCH_ROWS):
        if (batch["lsn"][0].as_py(), batch["lsn"][-1].as_py()) != (first, first + len(batch) - 1):
            raise ArchiveError(f"{row.path}: LSN {first} is not where it should be")
        yield first, batch
        first += len(batch)


def _opened(
    table: pa.Table, block: Block, number: int, begin: int, behind: int, more: Sequence[str]
) -> pa.RecordBatch:
    """The rows from number `begin` on of a wide block that stands in row `number`."""
    columns = block.columns().part(begin - number, behind - number)
    found = {"record": values, "written": times}
    rows = table.slice(begin, behind - begin).combine_chunks()
    made = [
        found[name](columns) if name in found else rows[name].combine_chunks()
        for name in rows.column_names
    ]
    made += [MORE[name](columns) for name in more]
    return pa.RecordBatch.from_arrays(made, [*rows.column_names, *more])


def _column(name: str, batch: pa.RecordBatch, shard: int) -> pa.Array:
    match name:
        case "shard":
            return repeated(shard, batch.num_rows, pa.int64())
        case "gap":
            return _gap_names(batch["gap"])
        case _ if name in MORE:
            if name not in batch.schema.names:
                return pa.nulls(batch.num_rows, COLUMN_TYPES[name])
            return batch[name]
    return batch[{"lsn": "lsn", "timestamp": "written", "value": "record"}[name]]


def _gap_names(reasons: pa.Array) -> pa.Array:
    found = reasons.dictionary_encode()
    names = [GapReason(number).name.lower() for number in found.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(found.indices)
