"""EntryRead: reading entries of one replica from one segment.

Made on the loop thread, where the index is; `run` may be called on any thread, because it touches
only what it was given and a file that is held open for it (`SegmentFiles.pin`). So reading never
stops the event loop, and what it reads is neither removed nor overwritten meanwhile (INV-GC-3).

Adjacent records are fetched in one system call, over the records of other replicas between them if
the gap is small. Both checksums of every record are verified.

`Fetch` is a whole read: several segments, and what a sequential reader will want next. The disk is
asked for all of it before the first byte is waited for: the pieces of one replica lie far apart in
segments that many share, and a disk that is given one piece at a time is idle between them.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from logservice.bounds import LOGDB_READ_GAP_BYTES_MAX, LOGDB_READ_SPAN_BYTES_MAX
from logservice.checksum import crc32
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.logdb.columns import EntryRun
from logservice.logdb.index import Chunk
from logservice.logdb.record import (
    RECORD,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_VERSION,
    RecordCorrupt,
    RecordKind,
    record_bytes,
)
from logservice.logdb.vfs import Vfs

_KINDS: Final = {int(kind): kind for kind in EntryKind}


@dataclass(slots=True)
class EntryRead:
    """Entries of `key` (shard, replica) from index `first` on: where each one is in `segment`."""

    key: tuple[int, int]
    segment: int
    seed: int
    handle: int
    first: int
    offsets: array[int]
    lengths: array[int]

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.first + len(self.offsets) - 1

    def spans(self) -> Iterator[tuple[int, int, int, int]]:
        """(position of the first entry, position after the last, offset, bytes) of each fetch."""
        offsets, lengths = self.offsets, self.lengths
        low, count = 0, len(offsets)
        while low < count:
            start = offsets[low]
            end = start + record_bytes(lengths[low])
            high = low + 1
            while high < count:
                offset = offsets[high]
                top = offset + record_bytes(lengths[high])
                if not 0 <= offset - end <= LOGDB_READ_GAP_BYTES_MAX:
                    break
                if top - start > LOGDB_READ_SPAN_BYTES_MAX:
                    break
                end = top
                high += 1
            yield low, high, start, end - start
            low = high

    def ask(self, vfs: Vfs) -> None:
        """Let the disk begin to bring the bytes. What goes wrong is for `run` to find."""
        with contextlib.suppress(OSError):
            for _, _, start, size in self.spans():
                vfs.will_need(self.handle, size, start)

    def run(self, vfs: Vfs) -> list[tuple[int, Entry]]:
        """(write sequence, entry) of each; raises RecordCorrupt, OSError."""
        found: list[tuple[int, Entry]] = []
        for low, high, start, size in self.spans():
            self._decode(vfs.pread(self.handle, size, start), start, low, high, found)
        return found

    def _decode(
        self, data: bytes, start: int, low: int, high: int, found: list[tuple[int, Entry]]
    ) -> None:
        """Add the entries at positions [low, high); `data` begins at `start` of the segment."""
        unpack, view = RECORD.unpack_from, memoryview(data)
        seed, key, index = self.seed, self.key, self.first + low
        for at, length in zip(self.offsets[low:high], self.lengths[low:high], strict=True):
            offset = at - start
            body = offset + RECORD_HEADER_BYTES
            try:
                (
                    magic, version, kind, size, shard, replica, sequence, own, term, lsn, count,
                    detail, payload_crc, header_crc,
                ) = unpack(data, offset)  # fmt: skip
            except struct.error as error:
                raise RecordCorrupt("record header beyond the end") from error
            if crc32(view[offset : body - 4], seed) != header_crc or magic != RECORD_MAGIC:
                raise RecordCorrupt("record header checksum")
            if version != RECORD_VERSION:
                raise RecordCorrupt(f"record version {version} kind {kind}")
            entry_kind = _KINDS.get(detail)
            if kind != RecordKind.ENTRY or entry_kind is None or own != index or size != length:
                raise RecordCorrupt("another record is in the entry's place")
            if (shard, replica) != key:
                raise RecordCorrupt("another record is in the entry's place")
            payload = data[body : body + length]
            if len(payload) != length:
                raise RecordCorrupt("record payload beyond the end")
            if crc32(payload, seed) != payload_crc:
                raise RecordCorrupt("record payload checksum")
            entry = Entry(Term(term), Index(index), Lsn(lsn), count, entry_kind, payload)
            found.append((sequence, entry))
            index += 1


@dataclass(slots=True)
class Fetch:
    """Consecutive entries of one replica that are on the disk: `reads`, and `ahead` of them what
    the disk should begin to bring. Whose segments are pinned until it was given back
    (`ReplicaLog.end_fetch`). asked: the disk was asked for `reads` before. chunks: of the index,
    whose columns are to be loaded by `load`.

    entries, failed: the outcome of `run`; with `failed` there are no entries.
    """

    vfs: Vfs
    reads: list[EntryRead] = field(default_factory=list)
    ahead: list[EntryRead] = field(default_factory=list)
    asked: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    load: Callable[[Chunk], EntryRun | None] = lambda _: None
    columns: list[EntryRun | None] = field(default_factory=list)
    entries: tuple[Entry, ...] = ()
    failed: tuple[EntryRead, Exception] | None = None

    @property
    def first(self) -> Index:
        """The first entry."""
        return Index(self.reads[0].first)

    def run(self) -> None:
        """Read; any thread. What cannot be read is judged by `ReplicaLog.fetched`."""
        self.columns = [self.load(chunk) for chunk in self.chunks]
        for read in self.ahead if self.asked else (*self.reads, *self.ahead):
            read.ask(self.vfs)
        found: list[Entry] = []
        for read in self.reads:
            try:
                found += [entry for _, entry in read.run(self.vfs)]
            except (RecordCorrupt, OSError) as error:
                self.failed = read, error
                return
        self.entries = tuple(found)
