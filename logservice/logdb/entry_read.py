"""EntryRead: reading entries of one replica from one segment.

Made on the loop thread, where the index is; `run` may be called on any thread, because it touches
only what it was given and a file that is held open for it (`SegmentFiles.pin`). So reading never
stops the event loop, and what it reads is neither removed nor overwritten meanwhile (INV-GC-3).

Adjacent records are fetched in one system call, over the records of other replicas between them if
the gap is small. Both checksums of every record are verified.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from logservice.bounds import LOGDB_READ_GAP_BYTES_MAX, LOGDB_READ_SPAN_BYTES_MAX
from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, Term
from logservice.invariants import invariant
from logservice.logdb.record import (
    RecordCorrupt,
    RecordKind,
    decode_header,
    payload_view,
    record_bytes,
)
from logservice.logdb.vfs import Vfs


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

    def warm(self, vfs: Vfs) -> None:
        """Bring the bytes into the page cache, so that `run` does not wait for the disk. What
        cannot be read is for `run` to find.
        """
        with contextlib.suppress(OSError):
            for _, _, start, size in self._ahead(vfs):
                vfs.pread(self.handle, size, start)

    def _ahead(self, vfs: Vfs) -> list[tuple[int, int, int, int]]:
        """All spans, which the disk begins to bring: a queue of requests instead of one at a time.
        Between them lie the records of other replicas.
        """
        spans = list(self.spans())
        if len(spans) > 1:
            for _, _, start, size in spans:
                vfs.will_need(self.handle, size, start)
        return spans

    def run(self, vfs: Vfs) -> list[tuple[int, Entry]]:
        """(write sequence, entry) of each; raises RecordCorrupt, OSError."""
        found: list[tuple[int, Entry]] = []
        for low, high, start, size in self._ahead(vfs):
            data = vfs.pread(self.handle, size, start)
            found += [
                self._decode(data, self.offsets[position] - start, position)
                for position in range(low, high)
            ]
        return found

    def _decode(self, data: bytes, offset: int, position: int) -> tuple[int, Entry]:
        header = decode_header(data, offset, self.seed)
        index = self.first + position
        if header.kind is not RecordKind.ENTRY or (
            (header.shard, header.replica), header.index, header.length
        ) != (self.key, index, self.lengths[position]):  # fmt: skip
            raise RecordCorrupt("another record is in the entry's place")
        payload = payload_view(data, offset, header, self.seed)
        invariant(isinstance(payload, bytes), "INV-LOG-BYTES")
        assert isinstance(payload, bytes)
        return header.write_sequence, Entry(
            Term(header.term), Index(index), Lsn(header.lsn), header.record_count,
            EntryKind(header.detail), payload,
        )  # fmt: skip
