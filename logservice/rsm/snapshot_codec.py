"""Byte form of a log shard's state: what `Snapshot.state` holds for it.

Canonical (INV-RSM-CANON): equal states give equal bytes, because everything unordered is written
sorted, and `decode_state` accepts no other order. So replicas can be compared by their snapshots.

``magic u32, version u16, zero u16, crc32 u32 of the rest``; then ``applied index, next LSN,
truncation LSN, requested LSN, writer epoch, next timestamp u64; holder bytes u16; holds, sessions,
rejected ranges u32``; then the holder, and

- per hold, by name: ``lsn u64, name bytes u16``, name;
- per session, by id: ``id, last sequence, last used u64, window length u32``, and per remembered
  sequence, oldest first, ``lsn u64, count u32``;
- per rejected range, by LSN: ``first LSN u64, count u64, reason u8``.

`decode_state` checks the invariants of `rsm.state` and `rsm.sessions` too: a state that no log
could have produced is SnapshotCorrupt, never a replica that misbehaves later.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from logservice_wire.errors import Reason

from logservice.bounds import HOLDS_MAX, NAME_BYTES_MAX, SESSION_WINDOW, SESSIONS_MAX
from logservice.checksum import crc32
from logservice.ids import Index, Lsn, SessionId
from logservice.rsm.queries import RejectedRange
from logservice.rsm.sessions import Session, SessionTable
from logservice.rsm.state import LogState
from logservice.snapshot import SnapshotCorrupt

TIMESTAMP_MAX: Final = 2**63 - 1
"""Last timestamp: what fits a signed 64-bit number, which is what databases keep."""

_MAGIC: Final = 0x4D53524C
_VERSION: Final = 1
_PREFIX: Final = struct.Struct("<IHHI")
_HEAD: Final = struct.Struct("<QQQQQQHIII")
_HOLD: Final = struct.Struct("<QH")
_SESSION: Final = struct.Struct("<QQQI")
_GAP: Final = struct.Struct("<QQB")

_REASON_CODES: Final[dict[Reason, int]] = {
    Reason.FENCED: 1,
    Reason.WRONG_EXPECTED_LSN: 2,
    Reason.SEQUENCE_GAP: 3,
    Reason.SESSION_EXPIRED: 4,
    Reason.CORRUPT_BLOCK: 5,
}
"""Why a block can be refused when it is applied. The numbers are on disk."""

_REASONS: Final = {code: reason for reason, code in _REASON_CODES.items()}


def encode_state(state: LogState) -> bytes:
    """The byte form above."""
    holder = state.writer_holder.encode()
    parts = [
        _HEAD.pack(
            state.applied_index, state.next_lsn, state.truncated_lsn, state.requested_lsn,
            state.writer_epoch, state.next_timestamp, len(holder), len(state.holds),
            len(state.sessions), len(state.rejected),
        ),
        holder,
    ]  # fmt: skip
    for name, lsn in sorted(state.holds.items()):
        data = name.encode()
        parts += (_HOLD.pack(lsn, len(data)), data)
    for session, row in state.sessions:
        parts.append(_SESSION.pack(session, row.last_sequence, row.last_used, len(row.window)))
        flat = [number for pair in row.window for number in pair]
        parts.append(struct.pack("<" + "QI" * len(row.window), *flat))
    parts += [
        _GAP.pack(gap.first_lsn, gap.record_count, _REASON_CODES[gap.reason])
        for gap in state.rejected
    ]
    body = b"".join(parts)
    return _PREFIX.pack(_MAGIC, _VERSION, 0, crc32(body)) + body


def decode_state(data: bytes) -> LogState:
    """Inverse of `encode_state`; raises SnapshotCorrupt for anything else."""
    try:
        magic, version, zero, crc = _PREFIX.unpack_from(data)
        _check(magic == _MAGIC and version == _VERSION and zero == 0, "magic or version")
        _check(crc32(data[_PREFIX.size :]) == crc, "checksum")
        return _Reader(data, _PREFIX.size).state()
    except (struct.error, UnicodeDecodeError) as error:
        raise SnapshotCorrupt(f"state of a log shard: {error}") from error


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise SnapshotCorrupt(f"state of a log shard: {what}")


class _Reader:
    """Reads one state; every length is checked against the bytes before anything is built from
    it.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def state(self) -> LogState:
        (
            applied, next_lsn, truncated, requested, epoch, timestamp, holder_bytes, holds,
            sessions, gaps,
        ) = self._take(_HEAD)  # fmt: skip
        _check(truncated <= requested < next_lsn, "truncation LSN")
        _check(1 <= timestamp <= TIMESTAMP_MAX, "timestamp")
        state = LogState(
            applied_index=Index(applied), next_lsn=Lsn(next_lsn), truncated_lsn=Lsn(truncated),
            requested_lsn=Lsn(requested), writer_epoch=epoch, next_timestamp=timestamp,
            writer_holder=self._text(holder_bytes),
        )  # fmt: skip
        _check(epoch > 0 or holder_bytes == 0, "holder without an epoch")
        self._read_holds(state, holds)
        self._read_sessions(state, sessions)
        self._read_gaps(state, gaps)
        _check(self._position == len(self._data), "trailing bytes")
        return state

    def _read_holds(self, state: LogState, count: int) -> None:
        _check(count <= HOLDS_MAX, "too many holds")
        previous = ""
        for _ in range(count):
            lsn, size = self._take(_HOLD)
            name = self._text(size)
            _check(name > previous, "holds out of order")
            _check(lsn > state.truncated_lsn, "hold below the truncation LSN")
            state.holds[name] = Lsn(lsn)
            previous = name

    def _read_sessions(self, state: LogState, count: int) -> None:
        _check(count <= SESSIONS_MAX, "too many sessions")
        rows: dict[SessionId, Session] = {}
        previous = 0
        for _ in range(count):
            session, last_sequence, last_used, length = self._take(_SESSION)
            _check(previous < session <= last_used <= state.applied_index, "sessions out of order")
            _check(length == min(last_sequence, SESSION_WINDOW), "session window")
            numbers = self._take(struct.Struct("<" + "QI" * length))
            window = deque(
                ((Lsn(lsn), n) for lsn, n in zip(numbers[::2], numbers[1::2], strict=True)),
                maxlen=SESSION_WINDOW,
            )
            end = 1
            for lsn, records in window:
                _check(lsn >= end and records > 0, "session window out of order")
                end = lsn + records
            _check(end <= state.next_lsn, "session beyond the tail")
            rows[SessionId(session)] = Session(last_sequence, Index(last_used), window)
            previous = session
        state.sessions = SessionTable(rows)

    def _read_gaps(self, state: LogState, count: int) -> None:
        room = (len(self._data) - self._position) // _GAP.size
        _check(count <= room, "rejected ranges cut short")
        end = 1
        for _ in range(count):
            first_lsn, records, code = self._take(_GAP)
            _check(code in _REASONS, "unknown reason")
            _check(first_lsn >= end and records > 0, "rejected ranges out of order")
            end = first_lsn + records
            _check(state.truncated_lsn + 1 < end <= state.next_lsn, "rejected range out of the log")
            state.rejected.append(RejectedRange(Lsn(first_lsn), records, _REASONS[code]))

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        values: tuple[int, ...] = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return values

    def _text(self, size: int) -> str:
        _check(size <= NAME_BYTES_MAX, "name too long")
        end = self._position + size
        _check(end <= len(self._data), "name cut short")
        text = self._data[self._position : end].decode()
        self._position = end
        return text
