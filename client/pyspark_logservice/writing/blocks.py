"""Blocks of one task: its rows by log, cut into blocks, kept until all of them have been seen.

Theory of operation. Nothing is appended before the task's input has ended: only then is it known
that no row of it is refused, and what it all is. Blocks wait in memory, and beyond SPOOL_BYTES in a
file that the system forgets with the process. No row is touched one by one: rows of a log are
picked by a mask, and a block ends where a search in the column of offsets says.

INV-SPARK-CUT: where blocks end follows from the rows of a log and their order alone. How Spark
batches the rows does not show, so a retry with the same rows in the same order has the same blocks.

INV-SPARK-CONTENT: `content` is the same for two attempts only if each log's blocks are, in bytes.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_client.arrow import columns_of
from logservice_wire.block import block_of_columns
from logservice_wire.bounds import RECORD_BYTES_MAX
from logservice_wire.errors import TooLarge

from pyspark_logservice.writing.columns import VALUE, ColumnError

BLOCK_VALUE_BYTES: Final = 1024 * 1024
"""Bytes of values in a block, but for a longer value, which is alone: a few milliseconds of a
network and a disk. Another number makes a retry across an upgrade a differing one."""

BLOCK_RECORDS: Final = 65_536
"""Records in a block: a reader holds a block whole. The same goes for this number."""

SPOOL_BYTES: Final = 64 * 1024 * 1024
"""What a task keeps in memory; Spark gives a task's Python process a share of a gigabyte or so."""

_CONTENT_BYTES: Final = 32

Part = tuple[int, int, int]
"""A block in the spool: where it begins, bytes of its offsets, bytes of its values."""


class Blocks:
    """What one task writes. Close it."""

    def __init__(self, routing: str, logs: Mapping[int | str, int], only: int) -> None:
        """routing: the column that names a row's log, "" for none. logs: what it may say, and the
        id of that log. only: the log without such a column.
        """
        self._routing = routing
        self._logs = logs
        self._only = only
        self._piles: dict[int, _Pile] = {}
        self._spool = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115  # see `close`

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch. Raises ColumnError and TooLarge; then the task writes
        nothing.
        """
        values = _values(batch)
        if not self._routing:
            self._pile(self._only).add(values)
            return
        column = batch.column(batch.schema.get_field_index(self._routing))
        for found in pc.unique(column):
            said = found.as_py()
            if said not in self._logs:
                raise ColumnError(
                    f"column {self._routing!r}: {said!r} is none of the logs that the option "
                    "'shards' lists"
                )
            mine = values.filter(pc.equal(column, found))
            self._pile(self._logs[said]).add(mine)

    def content(self) -> bytes:
        """What stands for all of it; nothing can be added afterwards."""
        digest = blake2b(digest_size=_CONTENT_BYTES)
        for log, pile in sorted(self._piles.items()):
            pile.end()
            digest.update(log.to_bytes(8, "little") + pile.digest.digest())
        return digest.digest()

    def logs(self) -> tuple[int, ...]:
        """The logs that get something."""
        return tuple(sorted(log for log, pile in self._piles.items() if pile.parts))

    def count(self, log: int) -> int:
        """Blocks of a log."""
        return len(self._piles[log].parts) if log in self._piles else 0

    def records(self, log: int) -> int:
        """Records of a log."""
        return self._piles[log].records

    def block(self, log: int, index: int, stamp_us: int) -> bytes:
        """A block of a log, from 0."""
        at, offsets_bytes, values_bytes = self._piles[log].parts[index]
        self._spool.seek(at)
        data = memoryview(self._spool.read(offsets_bytes + values_bytes))
        return block_of_columns(data[:offsets_bytes], data[offsets_bytes:], stamp_us)

    def close(self) -> None:
        """Forget all of it."""
        self._spool.close()

    def _pile(self, log: int) -> _Pile:
        if log not in self._piles:
            self._piles[log] = _Pile(self._spool)
        return self._piles[log]


class _Pile:
    """The blocks of one log, in order, and the rows of the one that is not full."""

    def __init__(self, spool: tempfile.SpooledTemporaryFile[bytes]) -> None:
        self.parts: list[Part] = []
        self.records = 0
        self.digest = blake2b()
        self._spool = spool
        self._waiting: list[pa.Array] = []
        self._waiting_records = 0
        self._waiting_bytes = 0

    def add(self, values: pa.BinaryArray) -> None:
        if not len(values):
            return
        begun = 0
        for end, size in self._cuts(values):
            if end > begun:
                self._waiting.append(values.slice(begun, end - begun))
                self._waiting_records += end - begun
                self._waiting_bytes += size
            begun = end
            if end < len(values):
                self.end()

    def _cuts(self, values: pa.BinaryArray) -> Iterator[tuple[int, int]]:
        """Where blocks end in `values`, and at last their end; each with the bytes since the last.
        `end` has been called between two of them.
        """
        offsets = memoryview(values.buffers()[1]).cast("i")
        first, count, at = values.offset, len(values), 0
        while at < count:
            start = offsets[first + at]
            room = BLOCK_VALUE_BYTES - self._waiting_bytes
            most = min(count, at + BLOCK_RECORDS - self._waiting_records)
            end = bisect_right(offsets, start + room, first + at + 1, first + most + 1) - first - 1
            if end <= at and not self._waiting_records:
                end = at + 1  # longer than a block of several is
            end = max(end, at)
            yield end, offsets[first + end] - start
            at = end

    def end(self) -> None:
        """The waiting rows are a block, if there are any."""
        if not self._waiting_records:
            return
        offsets, values = columns_of(pa.concat_arrays(self._waiting))
        at = self._spool.seek(0, 2)
        self._spool.write(offsets)
        self._spool.write(values)
        self.parts.append((at, len(offsets), len(values)))
        for column in (offsets, values):
            self.digest.update(len(column).to_bytes(8, "little"))
            self.digest.update(column)
        self.records += self._waiting_records
        self._waiting, self._waiting_records, self._waiting_bytes = [], 0, 0


def _values(batch: pa.RecordBatch) -> pa.BinaryArray:
    """The values of a batch as bytes, none of them null or too large."""
    column = batch.column(batch.schema.get_field_index(VALUE))
    if column.null_count:
        raise ColumnError("column 'value' is null in a row: a record is bytes")
    longest = pc.max(pc.binary_length(column)).as_py() or 0
    if longest > RECORD_BYTES_MAX:
        raise TooLarge(
            f"column 'value' has {longest} bytes in a row, of at most {RECORD_BYTES_MAX}",
            name="record_bytes",
            value=longest,
            limit=RECORD_BYTES_MAX,
        )
    return column.cast(pa.binary())
