"""range_file: a range of a log as Parquet, and back.

Theory of operation. An object has one row for each LSN of its range, in their order: a record, or
the reason of a gap. Blocks come as a reader gets them; their two columns are what Arrow wants, so
no record is touched on the way, and the digest of the range is computed beside it
(`logservice_wire.digest`). What is read back is fed to the same digest: equal means that a reader
is told the same.

Columns: lsn; record (null in a gap, and where a block is); gap (null for a record, else the number
of log.proto's GapReason); written, which is when the client made the block; append_time, which is
null for a log that has none; block.

A *wide* block, which only readers open, is archived as it is (INV-BLOCK-OPAQUE): its bytes stand
in the column `block` of its first LSN, and the rows of its other LSNs have neither record nor gap.
Where the range begins or ends within it, it is cut. So it comes back with all its columns, byte for
byte.

An object is hostile input: what it opens to is known before it is opened (INV-ARCHIVE-BOMB).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from logservice_client import Gap, Records
from logservice_client.arrow import lsns, repeated, values
from logservice_client.read_result import too_new_at
from logservice_wire.block import Block
from logservice_wire.digest import Digester, digest_text
from logservice_wire.errors import CodecMissing, LogServiceError
from logservice_wire.parquet_pages import PLAIN, PagesRefused, check_footer, check_pages

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.manifest import GapRun
from logservice.archive.sealing import Sealing
from logservice.sealing_keys import Keys

_TIME: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("record", pa.binary()),
        pa.field("gap", pa.int32()),
        pa.field("written", _TIME),
        pa.field("append_time", _TIME),
        pa.field("block", pa.binary()),
    ]
)

_ENDLESS: Final = (1 << 63) - 1
_OFFSET_BYTES: Final = 4


class HashedFile:
    """What is written to a file, counted and hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        """Write to `file`."""
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> None:
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        """Of all bytes so far."""
        return self._hash.hexdigest()


class _Sink:
    """The file that Arrow writes to."""

    def __init__(self, target: HashedFile | Sealing) -> None:
        self._target = target
        self.closed = False
        self.abandoned = False

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if not self.abandoned:
            self._target.write(view)
        return len(view)

    def flush(self) -> None:
        """Whoever opened the file makes it durable."""

    def close(self) -> None:
        self.closed = True


class RangeWriter:
    """Writes one object. Feed `add` in the order of LSNs, then `finish`."""

    def __init__(
        self, file: BinaryIO, first_lsn: int, *, keys: Keys | None = None, name: str = ""
    ) -> None:
        """The range begins with `first_lsn`. `keys`: it is sealed, under `name`."""
        self.digester = Digester(first_lsn, _ENDLESS)
        self.gaps: list[GapRun] = []
        self.file = HashedFile(file)
        self._sealing = None if keys is None else Sealing(self.file, keys, name)
        self._sink = _Sink(self._sealing or self.file)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._sink, mode="w"),
            SCHEMA,
            compression="zstd",
            use_dictionary=["gap", "written", "append_time"],
            column_encoding={"lsn": "DELTA_BINARY_PACKED", **dict.fromkeys(PLAIN, "PLAIN")},
            write_statistics=["lsn"],
        )
        self.append_time_us: tuple[int, int] | None = None
        """Of the first and the last LSN; None when one was without."""
        self._timed = True
        self._batches: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def next_lsn(self) -> int:
        """The LSN that is added next."""
        return self.digester.next_lsn

    def add(self, item: Records | Gap) -> None:
        """Raises CodecMissing for a gap whose reason is newer than this program."""
        count = item.record_count
        if isinstance(item, Gap):
            reason = item.reason_number
            self.digester.add_gap(item.first_lsn, count, reason)
            self._note_gap(item.first_lsn, count, reason)
            columns = [pa.nulls(count, pa.binary()), repeated(reason, count, pa.int32())]
            written, block = pa.nulls(count, _TIME), pa.nulls(count, pa.binary())
        else:
            self.digester.add_block(item.first_lsn - item.skipped, item.block)
            nothing, written = (
                pa.nulls(count, pa.binary()),
                repeated(item.timestamp_us, count, _TIME),
            )
            record, block = nothing, nothing
            if item.block.wide:
                block = _first_row(item.block.cut(item.skipped, item.skipped + count), count)
            else:
                record = values(item.columns())
            columns = [record, pa.nulls(count, pa.int32())]
        time_us = item.append_time_us
        appended = repeated(time_us, count, _TIME) if time_us else pa.nulls(count, _TIME)
        self._note_time(time_us)
        self._batches.append(
            pa.RecordBatch.from_arrays(
                [lsns(item.first_lsn, count), *columns, written, appended, block],
                schema=SCHEMA,
            )
        )
        self._waiting_bytes += 32 * count + (
            len(item.block.data) if isinstance(item, Records) else 0
        )
        if self._waiting_bytes >= bounds.ARCHIVE_ROW_GROUP_BYTES:
            self._write_group()

    def finish(self) -> str:
        """The end of the file; returns the digest of the range as text."""
        self._write_group()
        self._writer.close()
        if self._sealing is not None:
            self._sealing.end()
        self.digester.end_here()
        return digest_text(self.digester.digest())

    def abandon(self) -> None:
        """Nothing more is written; what is not finished never will be. Arrow would write the end of
        the file by itself, some time later.
        """
        self._sink.abandoned = True
        self._writer.close()

    def _note_time(self, append_time_us: int) -> None:
        self._timed = self._timed and append_time_us > 0
        first = append_time_us if self.append_time_us is None else self.append_time_us[0]
        self.append_time_us = (first, append_time_us) if self._timed else None

    def _note_gap(self, first_lsn: int, count: int, reason: int) -> None:
        last = self.gaps[-1] if self.gaps else None
        if last and (last.first_lsn + last.count, last.reason) == (first_lsn, reason):
            self.gaps[-1] = GapRun(last.first_lsn, last.count + count, reason)
        else:
            self.gaps.append(GapRun(first_lsn, count, reason))

    def _write_group(self) -> None:
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, SCHEMA))
            self._batches = []
            self._waiting_bytes = 0


def _first_row(block: bytes, count: int) -> pa.BinaryArray:
    """A column of `count` rows that has the block in the first one, and null in the others."""
    return pa.concat_arrays([pa.array([block], pa.binary()), pa.nulls(count - 1, pa.binary())])


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an object that belong together: ``low <= row < high`` of `batch`, records and gaps;
    or a wide block, which begins in row `low` and may go on in the next batches.
    """

    batch: pa.RecordBatch
    low: int
    high: int
    block: Block | None = None

    @property
    def count(self) -> int:
        """LSNs."""
        return self.high - self.low if self.block is None else self.block.record_count

    def column(self, name: str) -> pa.Array:
        """Of the rows that are in the batch."""
        return self.batch.column(name).slice(self.low, self.high - self.low)


def read_rows(file: BinaryIO, first_lsn: int, end_lsn: int) -> Iterator[Rows]:
    """The rows of an object about [first_lsn, end_lsn). Raises ArchiveDamaged unless there is one
    for each LSN, and every block that begins has all its rows; CodecMissing for a block of a newer
    program.
    """
    lsn, left = first_lsn, 0
    for batch in read_batches(file):
        if lsn + len(batch) > end_lsn or not batch.column("lsn").equals(lsns(lsn, len(batch))):
            raise ArchiveDamaged(detail=f"LSNs do not go on with {lsn}, or go beyond {end_lsn}")
        column, at = batch.column("block"), 0
        begins = pc.indices_nonzero(pc.is_valid(column)).to_pylist()
        for begin in [*begins, len(batch)]:
            inside = min(left, begin - at)
            if inside:
                _check_empty(batch, at, at + inside, lsn)
                left, at = left - inside, at + inside
            if left and begin < len(batch):
                raise ArchiveDamaged(detail=f"a block within a block at LSN {lsn + begin}")
            if at < begin:
                yield Rows(batch, at, begin)
            if begin < len(batch):
                block = _block_in(column[begin], lsn + begin)
                _check_empty(batch, begin, begin + 1, lsn)
                yield Rows(batch, begin, begin + 1, block)
                left, at = block.record_count - 1, begin + 1
        lsn += len(batch)
    if left or lsn != end_lsn:
        raise ArchiveDamaged(detail=f"it ends at LSN {lsn} of {end_lsn + left}")


def _check_empty(batch: pa.RecordBatch, low: int, high: int, lsn: int) -> None:
    for name in ("record", "gap"):
        part = batch.column(name).slice(low, high - low)
        if part.null_count != len(part):
            raise ArchiveDamaged(detail=f"a {name} within a block at LSN {lsn + low}")


def _block_in(cell: pa.BinaryScalar, lsn: int) -> Block:
    try:
        block = Block.parse(memoryview(cell.as_buffer()).cast("B"))
    except CodecMissing as error:
        raise too_new_at(lsn, 1, error) from error
    except LogServiceError as error:
        raise ArchiveDamaged(detail=f"the block at LSN {lsn}: {error}") from error
    if not block.wide:
        raise ArchiveDamaged(detail=f"the block at LSN {lsn} is of records that are no columns")
    return block


def read_batches(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The rows of an object. Raises ArchiveDamaged for what is none."""
    try:
        check_footer(file)
        parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
        found = parquet.schema_arrow
        if (found.names, found.types) != (SCHEMA.names, SCHEMA.types):
            raise ArchiveDamaged(detail=f"columns {', '.join(map(str, found))}")
        check_pages(
            file, parquet.metadata, plain=PLAIN, bytes_max=bounds.ARCHIVE_ROW_GROUP_BYTES_MAX
        )
        yield from parquet.iter_batches(batch_size=bounds.ARCHIVE_READ_ROWS)
    except (pa.ArrowException, OSError, UnicodeDecodeError, PagesRefused) as error:
        raise ArchiveDamaged(detail=f"no Parquet file of ours: {error}") from error


def digest_of_object(file: BinaryIO, first_lsn: int, end_lsn: int) -> str:
    """The digest of the range as the object has it. Raises ArchiveDamaged."""
    digester = Digester(first_lsn, end_lsn)
    for rows in read_rows(file, first_lsn, end_lsn):
        if rows.block is not None:
            if digester.next_lsn + rows.count > end_lsn:
                raise ArchiveDamaged(detail=f"it goes beyond LSN {end_lsn}")
            digester.add_block(digester.next_lsn, rows.block)
            continue
        record, gap, at = rows.column("record"), rows.column("gap"), 0
        runs = pc.run_end_encode(gap)
        for run_end, reason in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            part = record.slice(at, run_end - at)
            try:
                _feed(digester, part, reason)
            except ValueError as error:
                raise ArchiveDamaged(detail=str(error)) from error
            at = run_end
    return digest_text(digester.digest())


def _feed(digester: Digester, part: pa.BinaryArray, reason: int | None) -> None:
    count = len(part)
    if reason is not None:
        if part.null_count != count:
            raise ValueError("a record in a gap")
        digester.add_gap(digester.next_lsn, count, reason)
        return
    if part.null_count:
        raise ValueError("an LSN with neither record nor gap")
    _, offsets, data = part.buffers()
    begin = part.offset * _OFFSET_BYTES
    column = memoryview(offsets)[begin : begin + (count + 1) * _OFFSET_BYTES].cast("B")
    content = memoryview(data) if data is not None else memoryview(b"")
    digester.add_columns(digester.next_lsn, count, column.cast("i"), column, content)
