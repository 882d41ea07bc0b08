"""The record of the log: a header of 32 bytes, and a piece of WAL or a timeline's history behind
it.

=====  =====  ==========================================================================
bytes  type   field
=====  =====  ==========================================================================
0-3    4s     ``PGWL``
4      u8     version of this format: 1
5      u8     kind: 1 WAL, 2 history file of a timeline
6      u8     size of a segment, as a power of two
7      u8     zero
8-11   u32    timeline
12-15  u32    zero
16-23  u64    identifier of the database system
24-31  u64    position of the first byte; of a history file, where its timeline's WAL begins
=====  =====  ==========================================================================

Numbers are big-endian. There is no checksum: a block of the log has one, and every record of WAL
has one of its own.

INV-PG-ORDER: within a timeline, a piece of WAL begins where the one before it ended. A timeline
other than the first one in the log begins with its history, and at the start of the segment in
which it left the timeline before it. `Order` checks it, for whoever reads the log.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from examples.postgres.wal_position import (
    SEGMENT_LOG2_MAX,
    SEGMENT_LOG2_MIN,
    position_text,
    segment_start,
)

VERSION: Final = 1
WAL: Final = 1
HISTORY: Final = 2
MAGIC: Final = b"PGWL"
_HEADER: Final = struct.Struct(">4sBBBBIIQQ")
HEADER_BYTES: Final = _HEADER.size


class ChunkError(Exception):
    """A record that is no chunk, or not the one that has to follow."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One record. `data`: WAL, or the text of a history file."""

    kind: int
    segment_log2: int
    timeline: int
    system: int
    start: int
    data: bytes

    @property
    def end(self) -> int:
        """The position behind it: where WAL goes on."""
        return self.start + (len(self.data) if self.kind == WAL else 0)

    def encode(self) -> bytes:
        """The record."""
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            self.kind,
            self.segment_log2,
            0,
            self.timeline,
            0,
            self.system,
            self.start,
        )
        return header + self.data

    def __str__(self) -> str:
        what = "WAL" if self.kind == WAL else "history"
        return f"{what} of timeline {self.timeline} at {position_text(self.start)}"


def decode(record: bytes) -> Chunk:
    """The chunk of a record. Raises ChunkError."""
    if len(record) < HEADER_BYTES or record[:4] != MAGIC:
        raise ChunkError("a record of the log is no piece of PostgreSQL's WAL")
    _, version, kind, log2, zero, timeline, zeros, system, start = _HEADER.unpack_from(record)
    if version != VERSION:
        raise ChunkError(f"a record of version {version}; this program knows {VERSION}")
    found = Chunk(kind, log2, timeline, system, start, record[HEADER_BYTES:])
    right = (
        kind in (WAL, HISTORY)
        and SEGMENT_LOG2_MIN <= log2 <= SEGMENT_LOG2_MAX
        and zero == zeros == 0
        and timeline > 0
        and len(found.data) > 0
        and found.end < 1 << 64
    )
    if not right:
        raise ChunkError("a record of the log has a header that no program writes")
    return found


class Order:
    """Checks that chunks follow each other (INV-PG-ORDER). Feed it every chunk of a range."""

    def __init__(self) -> None:
        self._last: Chunk | None = None

    def check(self, chunk: Chunk) -> None:
        """Raises ChunkError when it is not the one that has to follow."""
        last, self._last = self._last, chunk
        if last is None:
            return
        if (chunk.system, chunk.segment_log2) != (last.system, last.segment_log2):
            raise ChunkError(f"{chunk} is of another database system than {last}")
        if chunk.kind == HISTORY:
            right = (
                chunk.timeline > last.timeline
                and chunk.start <= last.end
                and chunk.start == segment_start(chunk.start, chunk.segment_log2)
            )
        else:
            right = chunk.timeline == last.timeline and chunk.start == last.end
        if not right:
            raise ChunkError(f"{chunk} follows {last}, which ends at {position_text(last.end)}")
