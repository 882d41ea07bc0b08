"""Blocks of one task: its rows by log, cut into blocks, kept until all of them have been seen.

Theory of operation. Nothing is appended before the task's input has ended: only then is it known
that no row of it is refused, and what it all is. Blocks wait in memory, and beyond SPOOL_BYTES in a
file that the system forgets with the process. No row is touched one by one: rows of a log are
picked by a mask, and a block ends where a search in the column of sizes says.

INV-SPARK-CUT: where blocks end follows from the rows of a log and their order alone. How Spark
batches the rows does not show, so a retry with the same rows in the same order has the same blocks.

INV-SPARK-CONTENT: `content` is the same for two attempts only if each log's blocks have the same
rows in the same order: values, keys, headers and times, also where one of these is null.

It is made of rows, and not of the bytes that are appended: of the columns before a codec sees them.
Two versions of a codec's library may make different bytes of the same columns, and a retry may run
on another machine, or with another option `compression`. That is safe because nothing of what a
block says depends on the codec: its records and its cut do not (sizes are of what is not
compressed, and so is the limit for a row). Whoever finds that the log has block k of the same
content in other bytes leaves it at that (`writer`). A null time is in the content as a null, and in
the block as the stamp, which is the log's own and the same for all attempts.

A frame that has only values has the content that it had before there were other columns, so a
micro-batch that was begun then can be finished.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from logservice_client.arrow import parts_of, validity
from logservice_wire.block import Flag
from logservice_wire.column_block import Buffer, Parts, block_of_parts
from logservice_wire.errors import TooLarge

from pyspark_logservice.writing.columns import TIMESTAMP, ColumnError
from pyspark_logservice.writing.rows import checked, ends

BLOCK_VALUE_BYTES: Final = 1024 * 1024
"""Bytes of values in a block, and of keys and headers, but for a longer row, which is alone: a few
milliseconds of a network and a disk. Another number makes a retry across an upgrade a differing
one."""

BLOCK_RECORDS: Final = 65_536
"""Records in a block: a reader holds a block whole. The same goes for this number."""

SPOOL_BYTES: Final = 64 * 1024 * 1024
"""What a task keeps in memory; Spark gives a task's Python process a share of a gigabyte or so."""

_CONTENT_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A block in the spool: `count` records, whose pieces lie one behind the other from `at` on.
    stamped: behind them lies a bitmap of the records that have a time; the others get the stamp.
    """

    at: int
    count: int
    flags: Flag
    sizes: tuple[int, ...]
    stamped: bool


class Blocks:
    """What one task writes. Close it."""

    def __init__(
        self,
        routing: str,
        logs: Mapping[int | str, int],
        only: int,
        *,
        more: Sequence[str] = (),
        codec: str | None = None,
    ) -> None:
        """routing: the column that names a row's log, "" for none. logs: what it may say, and the
        id of that log. only: the log without such a column. more: the columns beside the values
        that each block gets. codec: None, "zstd" or "lz4".
        """
        self._routing = routing
        self._logs = logs
        self._only = only
        self._more = more
        self._codec = codec
        self._piles: dict[int, _Pile] = {}
        self._spool = tempfile.SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115  # see `close`

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch. Raises ColumnError and TooLarge; then the task writes
        nothing.
        """
        rows = checked(batch, self._more)
        if not self._routing:
            self._pile(self._only).add(rows)
            return
        column = batch.column(batch.schema.get_field_index(self._routing))
        for found in pc.unique(column):
            said = found.as_py()
            if said not in self._logs:
                raise ColumnError(
                    f"column {self._routing!r}: {said!r} is none of the logs that the option "
                    "'shards' lists"
                )
            mine = rows.filter(pc.equal(column, found))
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
        """A block of a log, from 0. Raises CodecMissing."""
        part = self._piles[log].parts[index]
        self._spool.seek(part.at)
        data = memoryview(self._spool.read(sum(part.sizes)))
        bounds = pairwise(accumulate(part.sizes, initial=0))
        pieces = [data[low:high] for low, high in bounds]
        parts = Parts.of_pieces(part.count, part.flags, pieces)
        if part.stamped:
            parts = replace(parts, times=_stamped(parts, pieces[-1], stamp_us))
        try:
            return block_of_parts(parts, stamp_us, self._codec)
        except TooLarge:
            if self._codec is None:
                raise
            # The longest rows, where a codec only adds to them.
            return block_of_parts(parts, stamp_us)

    def close(self) -> None:
        """Forget all of it."""
        self._spool.close()

    def _pile(self, log: int) -> _Pile:
        if log not in self._piles:
            self._piles[log] = _Pile(self._spool, self._more)
        return self._piles[log]


class _Pile:
    """The blocks of one log, in order, and the rows of the one that is not full."""

    def __init__(self, spool: tempfile.SpooledTemporaryFile[bytes], more: Sequence[str]) -> None:
        self.parts: list[Part] = []
        self.records = 0
        # With no columns but values nothing comes before them: so it was before there were any.
        self.digest = blake2b(",".join(more).encode())
        self._spool = spool
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_records = 0
        self._waiting_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Raises TooLarge."""
        if not rows.num_rows:
            return
        begun = 0
        for end, size in self._cuts(ends(rows)):
            if end > begun:
                self._waiting.append(rows.slice(begun, end - begun))
                self._waiting_records += end - begun
                self._waiting_bytes += size
            begun = end
            if end < rows.num_rows:
                self.end()

    def _cuts(self, sizes: memoryview) -> Iterator[tuple[int, int]]:
        """Where blocks end in rows with those `ends`, and at last their end; each with the bytes
        since the last. `end` has been called between two of them.
        """
        count, at = len(sizes) - 1, 0
        while at < count:
            start = sizes[at]
            room = BLOCK_VALUE_BYTES - self._waiting_bytes
            most = min(count, at + BLOCK_RECORDS - self._waiting_records)
            end = bisect_right(sizes, start + room, at + 1, most + 1) - 1
            if end <= at and not self._waiting_records:
                end = at + 1  # longer than a block of several is
            end = max(end, at)
            yield end, sizes[end] - start
            at = end

    def end(self) -> None:
        """The waiting rows are a block, if there are any."""
        if not self._waiting_records:
            return
        rows = pa.Table.from_batches(self._waiting).combine_chunks().to_batches()[0]
        given = None
        if TIMESTAMP in rows.schema.names:
            at, times = rows.schema.get_field_index(TIMESTAMP), rows[TIMESTAMP]
            given = validity(times)
            rows = rows.set_column(at, TIMESTAMP, pc.fill_null(times, pa.scalar(0, times.type)))
        parts = parts_of(rows)
        pieces: list[Buffer] = [*parts.pieces(), *([] if given is None else [given])]
        place = self._spool.seek(0, 2)
        for piece in pieces:
            self._spool.write(piece)
            self.digest.update(len(piece).to_bytes(8, "little"))
            self.digest.update(piece)
        sizes = tuple(map(len, pieces))
        self.parts.append(Part(place, parts.count, parts.flags, sizes, given is not None))
        self.records += self._waiting_records
        self._waiting, self._waiting_records, self._waiting_bytes = [], 0, 0


def _stamped(parts: Parts, given: memoryview, stamp_us: int) -> Buffer:
    """The times, with the stamp for those that are not given."""
    buffers = [pa.py_buffer(given), pa.py_buffer(parts.times)]
    times = pc.fill_null(pa.Array.from_buffers(pa.int64(), parts.count, buffers), stamp_us)
    return memoryview(times.buffers()[1]).cast("B")[: 8 * parts.count]
