"""EntryRead: reading entries of one replica from one segment.

Made on the loop thread, where the index is; `run` may be called on any thread, because it touches
only what it was given and a file that is held open for it (`SegmentFiles.pin`). So reading never
stops the event loop, and what it reads is neither removed nor overwritten meanwhile (INV-GC-3).

The disk is asked for adjacent records at once, over the records of other replicas between them if
the gap is small. They are copied in smaller parts, and a large payload by itself, only once: that
saves a copy, and blocks so large that malloc may have to map them anew each time (from 128 KiB on,
until it has seen a larger one freed).

Both checksums of every record are verified, and that it is the record that the index means. An
encrypted payload is opened then, on the thread that reads. A read
that fails names the first entry that cannot be read: the entries before it are good, so a repair
begins there.

`Fetch` is a whole read: several segments, and what a sequential reader will want next. The disk is
asked for all of it before the first byte is waited for: the pieces of one replica lie far apart in
segments that many share, and a disk that is given one piece at a time is idle between them.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from logservice.bounds import (
    LOGDB_READ_COPY_BYTES_MAX,
    LOGDB_READ_GAP_BYTES_MAX,
    LOGDB_READ_SPAN_BYTES_MAX,
)
from logservice.checksum import crc32
from logservice.entry import Entry, EntryKind
from logservice.ids import Index
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.encryption import Opener
from logservice.logdb.format.record import (
    ASSOCIATED_BYTES,
    ENCRYPTED_VERSION,
    RECORD,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RECORD_VERSION,
    RecordCorrupt,
    RecordKind,
    decode_header,
    payload_view,
)
from logservice.logdb.index.index import Chunk
from logservice.logdb.io.vfs import Vfs

_KINDS: Final = {int(kind): kind for kind in EntryKind}
_ENTRY: Final = int(RecordKind.ENTRY)

_COPY_GAP_BYTES_MAX: Final = LOGDB_READ_COPY_BYTES_MAX // 16
"""Copied over rather than left out by another system call, which costs about as much."""


@dataclass(slots=True)
class EntryRead:
    """Entries of `key` (shard, replica) from index `first` on: where each one is in `segment`.
    lengths: of the payloads as they lie there. opener: opens them, as they are all encrypted; None:
    all are plain (INV-ENC-2).
    """

    key: tuple[int, int]
    segment: int
    seed: int
    handle: int
    first: int
    offsets: array[int]
    lengths: array[int]
    opener: Opener | None

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.first + len(self.offsets) - 1

    def spans(
        self,
        span_max: int = LOGDB_READ_SPAN_BYTES_MAX,
        gap_max: int = LOGDB_READ_GAP_BYTES_MAX,
    ) -> Iterator[tuple[int, int, int, int]]:
        """(position of the first entry, position after the last, offset, bytes) of each part that
        lies together; larger than `span_max` is only a single record. By default, what the disk is
        asked for at a time.
        """
        low, start = 0, self.offsets[0]
        end = start
        for number, (offset, length) in enumerate(zip(self.offsets, self.lengths, strict=True)):
            # `record_bytes`, spelled out: this runs twice for every entry that is read.
            after = offset + RECORD_HEADER_BYTES + (length + 7 & ~7)
            if not end <= offset <= end + gap_max or after - start > span_max:
                if number > low:
                    yield low, number, start, end - start
                low, start = number, offset
            end = after
        yield low, len(self.offsets), start, end - start

    def ask(self, vfs: Vfs) -> None:
        """Let the disk begin to bring the bytes. What goes wrong is for `run` to find."""
        with contextlib.suppress(OSError):
            for _, _, start, size in self.spans():
                vfs.will_need(self.handle, size, start)

    def run(self, vfs: Vfs) -> list[tuple[int, Entry]]:
        """(write sequence, entry) of each, from a disk that was not asked before; raises
        RecordCorrupt, OSError.
        """
        found: list[tuple[int, Entry]] = []
        self.ask(vfs)
        self.add_to(found, vfs)
        return found

    def add_to(self, found: list[tuple[int, Entry]], vfs: Vfs) -> None:
        """`run`, of what the disk was asked for; when it raises, those before the one that cannot
        be read were added.
        """
        for low, high, start, size in self.spans(LOGDB_READ_COPY_BYTES_MAX, _COPY_GAP_BYTES_MAX):
            if size > LOGDB_READ_COPY_BYTES_MAX:
                header = vfs.pread(self.handle, RECORD_HEADER_BYTES, start)
                payload = vfs.pread(self.handle, self.lengths[low], start + RECORD_HEADER_BYTES)
                self._decode(header, start, low, high, found, payload)
            else:
                self._decode(vfs.pread(self.handle, size, start), start, low, high, found)

    def _decode(
        self,
        data: bytes,
        start: int,
        low: int,
        high: int,
        found: list[tuple[int, Entry]],
        large: bytes | None = None,
    ) -> None:
        """Add the entries at positions [low, high); `data` begins at `start` of the segment.
        large: the payload of the only one, which is not in `data` then.
        """
        unpack, view, add = RECORD.unpack_from, memoryview(data), found.append
        seed, key, index, opener = self.seed, self.key, self.first + low, self.opener
        expected = RECORD_VERSION if opener is None else ENCRYPTED_VERSION
        for at, length in zip(self.offsets[low:high], self.lengths[low:high], strict=True):
            offset = at - start
            body = offset + RECORD_HEADER_BYTES
            if body > len(data):
                self._refuse(data, offset, index, length)
            (
                magic,
                version,
                kind,
                size,
                shard,
                replica,
                sequence,
                own,
                term,
                lsn,
                count,
                detail,
                payload_crc,
                header_crc,
            ) = unpack(data, offset)
            payload = data[body : body + length] if large is None else large
            if (
                crc32(view[offset : body - 4], seed) != header_crc
                or crc32(payload, seed) != payload_crc
                or own != index
                or size != length
                or kind != _ENTRY
                or magic != RECORD_MAGIC
                or version != expected
                or (shard, replica) != key
                or detail not in _KINDS
                or len(payload) != length
            ):
                self._refuse(data + (large or b""), offset, index, length)
            if opener is not None:
                payload = opener(payload, view[offset : offset + ASSOCIATED_BYTES])
            add((sequence, Entry(term, own, lsn, count, _KINDS[detail], payload)))
            index += 1

    def _refuse(self, data: bytes, offset: int, index: int, length: int) -> NoReturn:
        """Raise RecordCorrupt with what is wrong with a record: looked at again, one by one."""
        view = memoryview(data)
        header = decode_header(view, offset, self.seed)
        here = header.kind, header.shard, header.replica, header.index, header.length
        if here != (RecordKind.ENTRY, *self.key, index, length) or header.detail not in _KINDS:
            raise RecordCorrupt("another record is in the entry's place")
        if header.encrypted != (self.opener is not None):
            raise RecordCorrupt("one of plain and encrypted, and the segment is the other")
        payload_view(view, offset, header, self.seed)
        raise RecordCorrupt("the record was another one when it was looked at again")


@dataclass(slots=True)
class Fetch:
    """A read of consecutive entries of one replica that are on the disk only.

    `reads` are the entries, `ahead` what the disk should begin to bring beyond them; the segments
    of both are pinned until `ReplicaLog.end_fetch`. asked: the disk was asked for `reads` before.
    chunks: of the index, whose columns `load` gives. first: the first entry that was asked for.

    entries, failed: the outcome of `run`. With `failed` (the read, the index of the first entry
    that cannot be read, and why) there are no entries.
    """

    vfs: Vfs
    first: Index
    reads: list[EntryRead] = field(default_factory=list)
    ahead: list[EntryRead] = field(default_factory=list)
    asked: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    load: Callable[[Chunk], EntryColumns | None] = lambda _: None
    columns: list[EntryColumns | None] = field(default_factory=list)
    entries: tuple[Entry, ...] = ()
    failed: tuple[EntryRead, Index, Exception] | None = None

    def run(self) -> None:
        """Read; any thread. What cannot be read is judged by `ReplicaLog.fetched`."""
        self.columns = [self.load(chunk) for chunk in self.chunks]
        for read in self.ahead if self.asked else (*self.reads, *self.ahead):
            read.ask(self.vfs)
        found: list[tuple[int, Entry]] = []
        for read in self.reads:
            before = len(found)
            try:
                read.add_to(found, self.vfs)
            except (RecordCorrupt, OSError) as error:
                self.failed = read, Index(read.first + len(found) - before), error
                return
        self.entries = tuple([entry for _, entry in found])
