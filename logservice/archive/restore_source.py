"""restore_source: the contents of archived objects, as what a restored log takes.

Theory of operation. An object is read batch by batch. A batch is cut where the gap, the time of
writing or the append time changes: in between lie records that could have been in one block. What
blocks there were is not archived, and no digest covers it; so records of one time share blocks of
about RESTORE_BLOCK_BYTES. A wide block was archived as it is, and comes back as it was. Only runs
are touched by Python code, never records: the columns of a run are slices of Arrow's buffers.

Objects are hostile input, also with a manifest that fits them: every column is checked, and what
cannot be of a log is ArchiveDamaged.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_client import GapReason
from logservice_client.read_result import gap_too_new
from logservice_wire.block import Block, block_of_columns
from logservice_wire.digest import Digester
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.archive.damage import ArchiveDamaged
from logservice.archive.manifest import Manifest, Row
from logservice.archive.range_file import Rows, read_rows
from logservice.archive.verifying import check_bytes, opened
from logservice.sealing_keys import Keys

_OFFSET_BYTES: Final = 4
_NO_VALUES: Final = memoryview(b"")
_NO_OFFSETS: Final = _NO_VALUES.cast("i")
_REASONS: Final = frozenset(one.value for one in GapReason if one is not GapReason.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Run:
    """`count` LSNs from `first_lsn` on: a gap for a reason of log.proto's GapReason, or (gap 0)
    a wide block, or records, record i of which is ``values[offsets[i]:offsets[i + 1]]``.
    append_time_us: 0 for none.
    """

    first_lsn: int
    count: int
    gap: int
    append_time_us: int
    written_us: int = 0
    offsets: memoryview = _NO_OFFSETS
    values: memoryview = _NO_VALUES
    wide: Block | None = None

    def feed(self, digester: Digester) -> None:
        """Digest it."""
        if self.gap:
            digester.add_gap(self.first_lsn, self.count, self.gap)
        elif self.wide is not None:
            digester.add_block(self.first_lsn, self.wide)
        else:
            column = self.offsets.cast("B")
            digester.add_columns(self.first_lsn, self.count, self.offsets, column, self.values)

    def part(self, from_lsn: int, to_lsn: int) -> Run | None:
        """What of it lies in [from_lsn, to_lsn); None for nothing."""
        low = max(from_lsn, self.first_lsn)
        high = min(to_lsn, self.first_lsn + self.count)
        if low >= high:
            return None
        start = low - self.first_lsn
        if self.wide is not None:
            cut = Block.parse(self.wide.cut(start, start + high - low))
            return Run(low, high - low, 0, self.append_time_us, self.written_us, wide=cut)
        offsets = self.offsets if self.gap else self.offsets[start : start + high - low + 1]
        return Run(
            low, high - low, self.gap, self.append_time_us, self.written_us, offsets, self.values
        )

    def blocks(self) -> Iterator[log_pb2.RestoredBlock]:
        """What RestoreBlocks takes. Raises ArchiveDamaged for a record that no log can have."""
        time_us = self.append_time_us
        if self.gap:
            gap: Any = self.gap
            yield log_pb2.RestoredBlock(gap=gap, record_count=self.count, append_time_us=time_us)
            return
        if self.wide is not None:
            data = bytes(self.wide.data)
            yield log_pb2.RestoredBlock(block=data, append_time_us=time_us)
            return
        start, offsets = 0, self.offsets
        while start < self.count:
            # Up to the record with which the block has its size; that one, too, if it is the first.
            wanted = offsets[start] + bounds.RESTORE_BLOCK_BYTES
            end = bisect_left(offsets, wanted, start + 2, self.count + 1) - 1
            block = self._block(start, max(end, start + 1))
            yield log_pb2.RestoredBlock(block=block, append_time_us=time_us)
            start = max(end, start + 1)

    def _block(self, start: int, end: int) -> bytes:
        low, high = self.offsets[start], self.offsets[end]
        column = self.offsets[start : end + 1].cast("B")
        if low:
            numbers = pa.Array.from_buffers(
                pa.int32(), end - start + 1, [None, pa.py_buffer(column)]
            )
            column = memoryview(pc.subtract(numbers, pa.scalar(low, pa.int32())).buffers()[1])
            column = column[: (end - start + 1) * _OFFSET_BYTES]
        try:
            return block_of_columns(column, self.values[low:high], self.written_us)
        except LogServiceError as error:
            raise ArchiveDamaged(
                detail=f"records from LSN {self.first_lsn + start} on: {error}"
            ) from error


def check_object(manifest: Manifest, row: Row) -> None:
    """Raises ArchiveDamaged unless the bytes of a row's object are those that were archived."""
    with manifest.open(row) as file:
        check_bytes(file, row)


@contextmanager
def object_runs(manifest: Manifest, row: Row, keys: Keys | None) -> Iterator[Iterator[Run]]:
    """The runs of a row's object."""
    with (
        manifest.open(row) as file,
        opened(file, row, manifest.path(row.object), keys) as plain,
    ):
        yield runs(plain, row.first_lsn, row.end_lsn)


def runs(file: BinaryIO, first_lsn: int, end_lsn: int) -> Iterator[Run]:
    """The runs of an object about [first_lsn, end_lsn). Raises ArchiveDamaged, CodecMissing."""
    lsn, time_us = first_lsn, 0
    for rows in read_rows(file, first_lsn, end_lsn):
        for run in _runs(rows, lsn):
            if not time_us <= run.append_time_us:
                raise ArchiveDamaged(detail=f"append time at LSN {run.first_lsn}")
            time_us = run.append_time_us
            yield run
        lsn += rows.count


def _runs(rows: Rows, lsn: int) -> Iterator[Run]:
    gap = rows.column("gap")
    written = rows.column("written").cast(pa.int64())
    appended = rows.column("append_time").cast(pa.int64())
    record = rows.column("record")
    if rows.block is not None:
        time_us, block = appended[0].as_py() or 0, rows.block
        _check_time(time_us, lsn)
        yield Run(lsn, rows.count, 0, time_us, block.timestamp_us, wide=block)
        return
    at = 0
    for end in _ends(gap, written, appended):
        reason, time_us = gap[at].as_py(), appended[at].as_py() or 0
        part = record.slice(at, end - at)
        _check_time(time_us, lsn + at)
        if reason is not None:
            if part.null_count != len(part) or reason < 1:
                raise ArchiveDamaged(detail=f"a gap for reason {reason} at LSN {lsn + at}")
            if reason not in _REASONS:
                raise gap_too_new(lsn + at, end - at)
            yield Run(lsn + at, end - at, reason, time_us)
        else:
            written_us = written[at].as_py()
            if part.null_count or written_us is None:
                raise ArchiveDamaged(detail=f"neither record nor gap at LSN {lsn + at}")
            yield _records(part, lsn + at, time_us, written_us)
        at = end


def _check_time(time_us: int, lsn: int) -> None:
    if not 0 <= time_us <= bounds.APPEND_TIME_US_MAX:
        raise ArchiveDamaged(detail=f"append time {time_us} at LSN {lsn}")


def _records(part: pa.BinaryArray, lsn: int, time_us: int, written_us: int) -> Run:
    _, offsets, data = part.buffers()
    begin = part.offset * _OFFSET_BYTES
    column = memoryview(offsets)[begin : begin + (len(part) + 1) * _OFFSET_BYTES].cast("B")
    content = memoryview(data) if data is not None else memoryview(b"")
    return Run(lsn, len(part), 0, time_us, written_us, column.cast("i"), content)


def _ends(*columns: pa.Array) -> list[int]:
    """Where any of the columns changes, and the end."""
    found: set[int] = set()
    for column in columns:
        found.update(pc.run_end_encode(column).run_ends.to_pylist())
    return sorted(found)
