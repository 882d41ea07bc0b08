"""Digest: a range of a log in 32 bytes, the same for two ranges when a reader is told the same.

Theory of operation. This file alone decides what the digest of the LSNs [from, to) is; a store
(`Digest`), an archive and a test all compute it here (docs/digest.md has it step by step).
It covers what a reader of the range is told, and nothing else: for each LSN the bytes of its
record, or that there is none and why. How records are grouped in blocks and entries, terms, indexes
and who appended them are left out. So the same log has the same digest on every replica, restored
from an archive, and in another cluster that cut its blocks elsewhere.

A range is digested in *pieces*. A piece ends behind the LSN with which it has PIECE_LSNS LSNs, or
PIECE_BYTES bytes of records, or at the end of the range: the contents decide that, never a reader.
A piece is three SHA-256 digests (the records' bytes, their lengths, the gaps), with wide blocks
four, and each piece's digest covers the one before it. So a reader can stop behind any piece and go
on elsewhere, at another replica even, with 32 bytes (`Digester.chain`). At the end one more digest
covers the bounds.

A *wide* block (version 2 of a block) is digested unopened: a store cannot and need not know what
its records are. Of each run of its records a fourth digest has the LSNs, which records of the
body they are, and a digest of the body; so what is told of them is covered to the byte, and other
columns, another codec or other records give another digest. The body counts as bytes of the piece
once, with the first record of the run. A block that was cut and one that was not give the same:
runs that follow one another in one body are one run.

No record is touched by Python code: the lengths of a block are one subtraction of big integers, and
where a piece ends is a binary search in its offsets.

INV-DIGEST-1: equal runs of LSNs give equal digests, whatever blocks they are in (wide ones:
however they are cut) and wherever the computation was interrupted; a changed, moved, added or
missing byte, LSN or reason gives another.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from bisect import bisect_left
from typing import Final

from logservice_wire.block import Block

DIGEST_BYTES: Final = 32

PIECE_LSNS: Final = 65_536
"""LSNs of a piece. Part of the definition: another number gives other digests."""

PIECE_BYTES: Final = 8 * 1024 * 1024
"""A piece ends with the record with which it has so many bytes of records; part of the definition.
As one record is no larger, a piece has less than twice as many."""

START: Final = bytes(DIGEST_BYTES)
"""The chain before the first piece."""


class Covers(enum.IntEnum):
    """What a digest covers; the number is part of what is digested.

    A new one is a member here and a stream more in `Digester._close_piece`. The next one, 1, is for
    the records with the times at which they were appended.
    """

    RECORDS = 0
    """Records and gaps."""


_DEFINITION: Final = 1
"""The version of the definition; it is digested, so another one gives other digests."""
_PIECE: Final = struct.Struct("<16sBBQQ")
_GAP: Final = struct.Struct("<QQI")
_WIDE: Final = struct.Struct("<QQI")
_PIECE_TAG: Final = b"logservice piece"
_RANGE_TAG: Final = b"logservice range"
_LENGTH_BYTES: Final = 4


class Digester:
    """The digest of [from_lsn, to_lsn), fed in the order of LSNs; see the module's text.

    Feed `add_block` and `add_gap` until `done`. LSNs outside the range are left out, so a block
    that reaches over an end is fed whole.
    """

    def __init__(
        self, from_lsn: int, to_lsn: int, *, at_lsn: int = 0, chain: bytes = START
    ) -> None:
        """`at_lsn`, `chain`: go on behind a piece, with that computation's `chain_lsn`, `chain`.

        Raises ValueError for a range without LSNs, or a state that is none of it.
        """
        at_lsn = at_lsn or from_lsn
        if not 1 <= from_lsn < to_lsn or not from_lsn <= at_lsn <= to_lsn:
            raise ValueError(f"no range: from {from_lsn} to {to_lsn}, at {at_lsn}")
        if len(chain) != DIGEST_BYTES or (at_lsn == from_lsn and chain != START):
            raise ValueError("no state of this range")
        self.from_lsn = from_lsn
        self.to_lsn = to_lsn
        self.next_lsn = at_lsn
        """The LSN that is fed next."""
        self.chain_lsn = at_lsn
        """The LSN behind the last whole piece."""
        self.chain = chain
        """The digest of all whole pieces."""
        self.records = 0
        self.gap_lsns = 0
        self.value_bytes = 0
        self.chain_counts = (0, 0, 0)
        """`records`, `gap_lsns` and `value_bytes` of the whole pieces."""
        self._gap_lsn = self._gap_reason = 0
        self._body = b""
        self._body_lsn = self._body_first = 0
        self._begin_piece()

    def end_here(self) -> None:
        """The range ends at `next_lsn`. For who knows its end only when it is there: begin with a
        `to_lsn` that is never reached.
        """
        if self.next_lsn == self.from_lsn:
            raise ValueError("a range without LSNs")
        self.to_lsn = self.next_lsn
        if self.next_lsn > self._begun_lsn:
            self._close_full_piece()

    @property
    def done(self) -> bool:
        """Whether all of the range was fed."""
        return self.next_lsn == self.to_lsn

    def digest(self) -> bytes:
        """The digest of the range, which is `done`."""
        if not self.done:
            raise ValueError(f"fed up to {self.next_lsn} of {self.to_lsn}")
        head = _PIECE.pack(_RANGE_TAG, _DEFINITION, Covers.RECORDS, self.from_lsn, self.to_lsn)
        return hashlib.sha256(head + self.chain).digest()

    def add_block(self, first_lsn: int, block: Block) -> None:
        """The records of a valid block whose first record has `first_lsn`.

        Raises ValueError when LSNs before it are missing.
        """
        if block.wide:
            self._add_wide(first_lsn, block)
            return
        values = block.columns().values
        self.add_columns(first_lsn, len(values), values.offsets, values.column, values.data)

    def add_columns(
        self,
        first_lsn: int,
        count: int,
        offsets: memoryview,
        column: memoryview,
        values: memoryview,
    ) -> None:
        """`add_block` for `count` records that are in no block. `offsets` are int32 numbers that
        never descend, one more than records; `column` is the same as little-endian bytes; record i
        is ``values[offsets[i]:offsets[i + 1]]``.
        """
        start = self._skipped(first_lsn, count)
        stop = min(count, self.to_lsn - first_lsn)
        while start < stop:
            self._end_run()
            end = self._piece_end(offsets, start, stop)
            low, high = offsets[start], offsets[end]
            self._values.update(values[low:high])
            self._lengths.update(
                _lengths(column[_LENGTH_BYTES * start : _LENGTH_BYTES * (end + 1)], end - start)
            )
            self.records += end - start
            self.value_bytes += high - low
            self._bytes += high - low
            self.next_lsn += end - start
            self._close_full_piece()
            start = end

    def add_gap(self, first_lsn: int, count: int, reason: int) -> None:
        """`count` LSNs without records. `reason` is the number of log.proto's GapReason.

        Raises ValueError when LSNs before it are missing, or for a reason that is none.
        """
        if not 1 <= reason < 1 << 32:
            raise ValueError(f"{reason} is no reason of a gap")
        left = min(count, self.to_lsn - first_lsn) - self._skipped(first_lsn, count)
        while left > 0:
            taken = min(left, self._begun_lsn + PIECE_LSNS - self.next_lsn)
            if self._gap_reason != reason:
                self._end_run()
                self._gap_lsn, self._gap_reason = self.next_lsn, reason
            self.gap_lsns += taken
            self.next_lsn += taken
            self._close_full_piece()
            left -= taken

    def _add_wide(self, first_lsn: int, block: Block) -> None:
        start = self._skipped(first_lsn, block.record_count)
        stop = min(block.record_count, self.to_lsn - first_lsn)
        if start >= stop:
            return
        whole = hashlib.sha256(block.form)
        whole.update(block.body)
        body = whole.digest()
        while start < stop:
            number = block.first + start
            run_end = self._body_first + self.next_lsn - self._body_lsn
            if (self._body, run_end) != (body, number):
                self._end_run()
                self._body, self._body_lsn, self._body_first = body, self.next_lsn, number
                self._bytes += len(block.body)
            # A body is smaller than a piece, so the next piece takes more of it than one record.
            room = 1 if self._bytes >= PIECE_BYTES else self._begun_lsn + PIECE_LSNS - self.next_lsn
            taken = min(stop - start, room)
            self.records += taken
            self.next_lsn += taken
            start += taken
            self._close_full_piece()

    def _skipped(self, first_lsn: int, count: int) -> int:
        """How many LSNs of a run were fed already, or lie below the range."""
        if first_lsn > self.next_lsn:
            raise ValueError(f"LSNs {self.next_lsn} to {first_lsn} are missing")
        return min(self.next_lsn - first_lsn, count)

    def _piece_end(self, offsets: memoryview, start: int, stop: int) -> int:
        """The number behind the last record of the block that the present piece has."""
        limit = min(stop, start + self._begun_lsn + PIECE_LSNS - self.next_lsn)
        full = offsets[start] + PIECE_BYTES - self._bytes
        return min(bisect_left(offsets, full, start + 1, limit + 1), limit)

    def _begin_piece(self) -> None:
        self._begun_lsn = self.next_lsn
        self._bytes = 0
        self._values = hashlib.sha256()
        self._lengths = hashlib.sha256()
        self._gaps = hashlib.sha256()
        self._wide: hashlib._Hash | None = None

    def _end_run(self) -> None:
        """What follows is another run: adjacent gaps with one reason are one run, and adjacent
        records of one body.
        """
        if self._gap_reason:
            count = self.next_lsn - self._gap_lsn
            self._gaps.update(_GAP.pack(self._gap_lsn, count, self._gap_reason))
            self._gap_reason = 0
        if self._body:
            self._wide = self._wide or hashlib.sha256()
            count = self.next_lsn - self._body_lsn
            self._wide.update(_WIDE.pack(self._body_lsn, count, self._body_first) + self._body)
            self._body = b""

    def _close_full_piece(self) -> None:
        if (
            self.next_lsn - self._begun_lsn < PIECE_LSNS
            and self._bytes < PIECE_BYTES
            and not self.done
        ):
            return
        self._end_run()
        head = _PIECE.pack(_PIECE_TAG, _DEFINITION, Covers.RECORDS, self._begun_lsn, self.next_lsn)
        streams = [self._values, self._lengths, self._gaps]
        streams += [self._wide] if self._wide is not None else []
        self.chain = hashlib.sha256(
            b"".join((head, self.chain, *(stream.digest() for stream in streams)))
        ).digest()
        self.chain_lsn = self.next_lsn
        self.chain_counts = (self.records, self.gap_lsns, self.value_bytes)
        self._begin_piece()


def digest_text(digest: bytes, covers: Covers = Covers.RECORDS) -> str:
    """How a digest is written for people and in files: what it covers, the version, the bytes."""
    return f"{covers.name.lower()}-{_DEFINITION}:{digest.hex()}"


def _lengths(column: memoryview, count: int) -> bytes:
    """The differences of `count` + 1 ascending int32 numbers, as u32: all at once, as lanes of one
    big integer. No lane borrows from the next, because no difference is negative.
    """
    numbers = int.from_bytes(column, "little")
    lower = numbers & ((1 << (8 * _LENGTH_BYTES * count)) - 1)
    upper = numbers >> (8 * _LENGTH_BYTES)
    return (upper - lower).to_bytes(_LENGTH_BYTES * count, "little")
