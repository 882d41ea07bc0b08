"""The rows of an archived range, as Arrow batches for Spark; in a task.

An object is read whole, and checked, before a row of it is handed on: tens of megabytes. Its rows
are those of all LSNs of its range, in order, so a part of the range is a slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from logservice_client.arrow import repeated
from logservice_client.read_result import GapReason

from pyspark_logservice.archive import ArchivedRange, ArchiveError, Place
from pyspark_logservice.batches import COLUMN_TYPES
from pyspark_logservice.wanted import Numbers

BATCH_ROWS: Final = 65_536
"""Rows of an object that are decoded at a time."""

_COLUMNS: Final = {"lsn": "lsn", "timestamp": "written", "value": "record", "gap": "gap"}
"""What an object calls the columns of the source."""


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
    """Rows for ``start <= lsn < end`` of a range; the arguments are those of `BatchMaker`.
    Raises ArchiveError.
    """
    file = _opened(place, row)
    asked = {_COLUMNS[name] for name in columns if name in _COLUMNS} | {"lsn", "gap"}
    if times_us is not None:
        asked.add("written")
    schema = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in columns])
    lsn = row.first_lsn
    for read in file.iter_batches(BATCH_ROWS, columns=sorted(asked)):
        first, lsn = lsn, lsn + read.num_rows
        _check_lsns(row, read.column("lsn"), first)
        low, high = max(start, first), min(end, lsn)
        if low >= high:
            continue
        batch = read.slice(low - first, high - low)
        if only:
            batch = batch.filter(pc.is_in(batch.column("lsn"), pa.array(only, pa.int64())))
        if times_us is not None:
            batch = batch.filter(_times_mask(batch.column("written"), times_us))
        elif not include_gaps:
            batch = batch.filter(pc.is_null(batch.column("gap")))
        if batch.num_rows:
            made = [_column(name, batch, shard) for name in columns]
            yield pa.RecordBatch.from_arrays(made, schema=schema)
    if lsn != row.end_lsn:
        raise ArchiveError(f"{row.path} ends at LSN {lsn}, and its row at {row.end_lsn}")


def first_appended_at(place: Place, row: ArchivedRange, time_us: int) -> int:
    """The first LSN of the range that was appended then or later; its end when none was."""
    times = _opened(place, row).read(columns=["append_time"])["append_time"].cast(pa.int64())
    later = pc.index(pc.greater_equal(times, time_us), True).as_py()
    return row.first_lsn + int(later) if later >= 0 else row.end_lsn


def _opened(place: Place, row: ArchivedRange) -> pq.ParquetFile:
    """INV-ARCHIVED-3."""
    content = place.read(row.path)
    if content is None:
        raise ArchiveError(f"{row.path} is gone")
    if len(content) != row.object_bytes or hashlib.sha256(content).hexdigest() != row.sha256:
        raise ArchiveError(f"{row.path} is damaged: it is not what was archived")
    try:
        return pq.ParquetFile(pa.BufferReader(content))
    except pa.ArrowException as error:
        raise ArchiveError(f"{row.path}: {error}") from error


def _check_lsns(row: ArchivedRange, lsns: pa.Array, first: int) -> None:
    if not len(lsns) or (lsns[0].as_py(), lsns[-1].as_py()) != (first, first + len(lsns) - 1):
        raise ArchiveError(f"{row.path}: LSN {first} is not where it should be")


def _column(name: str, batch: pa.RecordBatch, shard: int) -> pa.Array:
    count = batch.num_rows
    match name:
        case "shard":
            return repeated(shard, count, pa.int64())
        case "gap":
            return _gap_names(batch.column("gap"))
    return batch.column(_COLUMNS[name])


def _gap_names(reasons: pa.Array) -> pa.Array:
    found = reasons.dictionary_encode()
    names = [GapReason(number).name.lower() for number in found.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(found.indices)


def _times_mask(written: pa.Array, wanted: Numbers) -> pa.Array:
    """Which rows have a wanted timestamp; null where there is none, which `filter` leaves out."""
    times = written.cast(pa.int64())
    if wanted.only is not None:
        return pc.and_(pc.is_in(times, pa.array(wanted.only, pa.int64())), pc.is_valid(times))
    mask = pc.is_valid(times)
    if wanted.first is not None:
        mask = pc.and_(mask, pc.greater_equal(times, wanted.first))
    if wanted.behind is not None:
        mask = pc.and_(mask, pc.less(times, wanted.behind))
    return mask
