"""Byte form of a log shard's state: what `Snapshot.state` holds for it.

Canonical (INV-RSM-CANON): equal states give equal bytes, because everything unordered is written
sorted, and `decode_state` accepts no other order. So replicas can be compared by their snapshots.

``magic u32, version u16, zero u16, crc32 u32 of the rest``; then ``applied index, next LSN,
truncation LSN, requested LSN, writer epoch, next timestamp u64; holder bytes, writer's owner bytes
u16; holds, sessions, rejected ranges u32``; in version 3 ``index of the Close, LSN behind the last
record u64``, 0 while the log is open, and ``number of the lineage, fork LSN u64, lineage, parent 16
bytes``, 0 for a log that was never continued by force, and ``newest append time u64``, and ``base
LSN, end LSN u64, digest 32 bytes`` of a log that is being restored, else 0 (of a mirror the base
alone); then the holder, the writer's owner, and

- per hold, by name: ``lsn u64, name bytes u16, owner bytes u16``, in version 3 ``revision u64,
  time to live in seconds u32``, name, owner;
- per session, by id: ``id, last sequence, last used u64, owner 16 bytes, nonce 16 bytes, window
  length u32``, and per remembered sequence, oldest first, ``lsn u64, count u32, fingerprint u64``,
  in version 3 ``append time u64``;
- in version 3, ``named sessions u32``, and per named session, by id: ``id, last sequence, last used
  u64, window length u32, content 32 bytes, stamp i64, append time when it was last used u64, time
  to live in seconds u32, index of the entry that forgot it u64, owner bytes, name bytes u16``,
  owner, name, and its remembered sequences as above;
- per rejected range, by LSN: ``first LSN u64, count u64, reason u8``.

A state is written in the oldest version that can say it, and is refused in another: version 3 is
that of a closed log, of one with a hold that has a revision, of one that was continued by force, or
of one with named sessions or append times. So a log that never used what cluster version 2 brought
has the bytes that 0.1.0 writes.

`decode_state` checks the invariants of `rsm.state` and `rsm.sessions` too: a state that no log
could have produced is SnapshotCorrupt, never a replica that misbehaves later.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from logservice_wire.digest import DIGEST_BYTES
from logservice_wire.errors import Reason

from logservice import lineage
from logservice.bounds import (
    HOLD_TTL_S_MAX,
    HOLD_TTL_S_MIN,
    HOLDS_MAX,
    HOLDS_PER_OWNER_MAX,
    IDENTITY_BYTES_MAX,
    NAME_BYTES_MAX,
    NAMED_SESSIONS_MAX,
    NAMED_SESSIONS_PER_OWNER_MAX,
    RESTORED_LSN_MAX,
    SESSION_WINDOW,
    SESSIONS_MAX,
    SESSIONS_PER_OWNER_MAX,
)
from logservice.checksum import crc32
from logservice.ids import Index, Lsn, SessionId
from logservice.owner import NO_NONCE
from logservice.rsm.commands import SESSION_CONTENT_BYTES
from logservice.rsm.named_sessions import NamedSession, NamedSessions, row_problem
from logservice.rsm.restoring import Restoring
from logservice.rsm.sessions import Remembered, Session, SessionTable
from logservice.rsm.state import TIMESTAMP_MAX, Hold, LogState, RejectedRange
from logservice.snapshot import SnapshotCorrupt

_MAGIC: Final = 0x4D53524C
_VERSIONS: Final = {1: 2, 2: 3}
"""Cluster version -> version of the states that only it can have."""

_FIRST, _SECOND = _VERSIONS.values()
_PREFIX: Final = struct.Struct("<IHHI")
_HEAD: Final = struct.Struct("<QQQQQQHHIII")
_CLOSED: Final = struct.Struct("<QQ")
_LINEAGE: Final = struct.Struct("<QQ16s16s")
_TIME: Final = struct.Struct("<Q")
_RESTORING: Final = struct.Struct(f"<QQ{DIGEST_BYTES}s")
_HOLD: Final = struct.Struct("<QHH")
_REVISION: Final = struct.Struct("<QI")
_SESSION: Final = struct.Struct("<QQQ16s16sI")
_COUNT: Final = struct.Struct("<I")
_NAMED: Final = struct.Struct(f"<QQQI{SESSION_CONTENT_BYTES}sqQIQHH")
_REMEMBERED: Final = "QIQ"
_REMEMBERED_TIMED: Final = "QIQQ"
_GAP: Final = struct.Struct("<QQB")

_REASON_CODES: Final[dict[Reason, int]] = {
    Reason.FENCED: 1,
    Reason.WRONG_EXPECTED_LSN: 2,
    Reason.SEQUENCE_GAP: 3,
    Reason.SESSION_EXPIRED: 4,
    Reason.CORRUPT_BLOCK: 5,
    Reason.SEQUENCE_REUSED: 6,
}
"""Why a block can be refused when it is applied. The numbers are on disk."""

_REASONS: Final = {code: reason for reason, code in _REASON_CODES.items()}


def encode_state(state: LogState) -> bytes:
    """The byte form that the header describes."""
    holder, owner = state.writer_holder.encode(), state.writer_owner.encode()
    version = _version(state)
    newer = version == _SECOND
    history = state.lineage
    fields = len(_REMEMBERED_TIMED if newer else _REMEMBERED)
    parts = [
        _HEAD.pack(
            state.applied_index,
            state.next_lsn,
            state.truncated_lsn,
            state.requested_lsn,
            state.writer_epoch,
            state.next_timestamp,
            len(holder),
            len(owner),
            len(state.holds),
            len(state.sessions),
            len(state.rejected),
        ),
        _CLOSED.pack(state.closed_index, state.closed_lsn) if newer else b"",
        _LINEAGE.pack(history.number, history.fork_lsn, history.id, history.parent)
        if newer
        else b"",
        _TIME.pack(state.append_time_us) if newer else b"",
        _restoring(state) if newer else b"",
        holder,
        owner,
    ]
    for name, hold in sorted(state.holds.items()):
        data, whose = name.encode(), hold.owner.encode()
        parts.append(_HOLD.pack(hold.lsn, len(data), len(whose)))
        if newer:
            parts.append(_REVISION.pack(hold.revision, hold.ttl_s))
        parts += (data, whose)
    for session, row in state.sessions:
        parts.append(
            _SESSION.pack(
                session, row.last_sequence, row.last_used, row.owner, row.nonce, len(row.window)
            )
        )
        flat = [number for remembered in row.window for number in remembered[:fields]]
        parts.append(_window(newer, len(row.window)).pack(*flat))
    if newer:
        parts += _named(state)
    parts += [
        _GAP.pack(gap.first_lsn, gap.record_count, _REASON_CODES[gap.reason])
        for gap in state.rejected
    ]
    body = b"".join(parts)
    return _PREFIX.pack(_MAGIC, version, 0, crc32(body)) + body


def decode_state(data: bytes) -> LogState:
    """Inverse of `encode_state`; raises SnapshotCorrupt for anything else."""
    try:
        magic, version, zero, crc = _PREFIX.unpack_from(data)
        _check(magic == _MAGIC and zero == 0, "magic")
        _check(version in (_FIRST, _SECOND), f"version {version}")
        _check(crc32(data[_PREFIX.size :]) == crc, "checksum")
        state = _Reader(data, _PREFIX.size).state(newer=version == _SECOND)
        _check(version == _version(state), f"version {version} says nothing more")
        return state
    except (struct.error, UnicodeDecodeError) as error:
        raise SnapshotCorrupt(f"state of a log shard: {error}") from error


def _version(state: LogState) -> int:
    """The oldest version that can say it."""
    newer = (
        state.closed_index
        or state.lineage.number
        or state.append_time_us
        or len(state.named)
        or any(hold.revision for hold in state.holds.values())
    )
    return _SECOND if newer else _FIRST


def _named(state: LogState) -> list[bytes]:
    parts = [_COUNT.pack(len(state.named))]
    for session, row in state.named:
        owner, name = row.identity.encode(), row.name.encode()
        parts += (
            _NAMED.pack(
                session,
                row.last_sequence,
                row.last_used,
                len(row.window),
                row.content,
                row.stamp_us,
                row.used_us,
                row.ttl_s,
                row.forgotten,
                len(owner),
                len(name),
            ),
            owner,
            name,
        )
        parts.append(_window(True, len(row.window)).pack(*chain.from_iterable(row.window)))
    return parts


def _restoring(state: LogState) -> bytes:
    promised = state.restoring
    if promised is None:
        return bytes(_RESTORING.size)
    return _RESTORING.pack(promised.base_lsn, promised.end_lsn, promised.digest)


@lru_cache(maxsize=2 * (SESSION_WINDOW + 1))
def _window(newer: bool, length: int) -> struct.Struct:
    """The layout of a session's window. To make one costs more than to use it."""
    return struct.Struct("<" + (_REMEMBERED_TIMED if newer else _REMEMBERED) * length)


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise SnapshotCorrupt(f"state of a log shard: {what}")


def _lives(ttl_s: int) -> bool:
    return HOLD_TTL_S_MIN <= ttl_s <= HOLD_TTL_S_MAX


class _Reader:
    """Reads one state; every length is checked against the bytes before anything is built from
    it.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def state(self, *, newer: bool) -> LogState:
        (
            applied,
            next_lsn,
            truncated,
            requested,
            epoch,
            timestamp,
            holder_bytes,
            owner_bytes,
            holds,
            sessions,
            gaps,
        ) = self._take(_HEAD)
        closed_index, closed_lsn = self._take(_CLOSED) if newer else (0, 0)
        history = self._lineage() if newer else lineage.FIRST
        (append_time_us,) = self._take(_TIME) if newer else (0,)
        restoring = self._restoring() if newer else None
        promised = (
            next_lsn if restoring is None else max(next_lsn, restoring.base_lsn, restoring.end_lsn)
        )
        _check(history.fork_lsn < promised, "fork beyond the tail")
        _check(restoring is None or history.number > 0, "a restore without a lineage")
        end = closed_lsn if closed_index else next_lsn
        _check(closed_index <= applied, "index of the Close")
        _check(closed_index > 0 or closed_lsn == 0, "an end without a Close")
        _check(append_time_us < 2**63, "append time")
        _check(truncated <= requested < end <= next_lsn, "truncation LSN")
        _check(1 <= timestamp <= TIMESTAMP_MAX, "timestamp")
        state = LogState(
            applied_index=Index(applied),
            next_lsn=Lsn(next_lsn),
            truncated_lsn=Lsn(truncated),
            requested_lsn=Lsn(requested),
            writer_epoch=epoch,
            next_timestamp=timestamp,
            writer_holder=self._text(holder_bytes),
            writer_owner=self._text(owner_bytes, IDENTITY_BYTES_MAX),
            closed_index=Index(closed_index),
            closed_lsn=Lsn(closed_lsn),
            lineage=history,
            append_time_us=append_time_us,
            restoring=restoring,
        )
        _check(epoch > 0 or holder_bytes == 0, "holder without an epoch")
        _check((holder_bytes > 0) == (owner_bytes > 0), "holder without an owner")
        self._read_holds(state, holds, newer=newer)
        self._read_sessions(state, sessions, newer=newer)
        if newer:
            self._read_named(state)
        self._read_gaps(state, gaps)
        in_use = sessions or len(state.named) or holder_bytes
        _check(restoring is None or not in_use, "a restoring log in use")
        if restoring is not None and restoring.mirror:
            _check(epoch > 0, "a mirror without an epoch")
            _check(not state.served or truncated + 1 == restoring.base_lsn, "base of a mirror")
        _check(
            restoring is None
            or (restoring.mirror and state.served)
            or not (state.holds or requested),
            "a restoring log in use",
        )
        _check(self._position == len(self._data), "trailing bytes")
        return state

    def _restoring(self) -> Restoring | None:
        base_lsn, end_lsn, digest = self._take(_RESTORING)
        _check(end_lsn > 0 or not any(digest), "a restore without an end")
        if not base_lsn and not end_lsn:
            return None
        high = end_lsn or RESTORED_LSN_MAX
        _check(1 <= base_lsn < high <= RESTORED_LSN_MAX, "range of a restore")
        return Restoring(Lsn(base_lsn), Lsn(end_lsn), digest)

    def _lineage(self) -> lineage.Lineage:
        number, fork_lsn, own, parent = self._take(_LINEAGE)
        found = lineage.Lineage(number, own, parent, Lsn(fork_lsn))
        _check(
            found == lineage.FIRST or not lineage.problem(number, own, parent), "lineage of the log"
        )
        return found

    def _read_holds(self, state: LogState, count: int, *, newer: bool) -> None:
        _check(count <= HOLDS_MAX, "too many holds")
        previous = ""
        owned: Counter[str] = Counter()
        for _ in range(count):
            lsn, size, owner_bytes = self._take(_HOLD)
            revision, ttl_s = self._take(_REVISION) if newer else (0, 0)
            name = self._text(size)
            owner = self._text(owner_bytes, IDENTITY_BYTES_MAX)
            owned[owner] += 1
            _check(owner != "" and owned[owner] <= HOLDS_PER_OWNER_MAX, "holds of one identity")
            _check(name > previous, "holds out of order")
            _check(lsn > state.truncated_lsn, "hold below the truncation LSN")
            _check(revision <= state.applied_index, "revision of a hold")
            _check(not ttl_s or (revision > 0 and _lives(ttl_s)), "time to live of a hold")
            state.put_hold(name, Hold(Lsn(lsn), owner, Index(revision), ttl_s))
            previous = name

    def _read_sessions(self, state: LogState, count: int, *, newer: bool) -> None:
        _check(count <= SESSIONS_MAX, "too many sessions")
        rows: dict[SessionId, Session] = {}
        owned: Counter[bytes] = Counter()
        previous = 0
        for _ in range(count):
            session, last_sequence, last_used, owner, nonce, length = self._take(_SESSION)
            owned[owner] += 1
            _check(nonce != NO_NONCE, "session without a nonce")
            _check(owned[owner] <= SESSIONS_PER_OWNER_MAX, "sessions of one identity")
            _check(previous < session <= last_used <= state.applied_index, "sessions out of order")
            _check(length == min(last_sequence, SESSION_WINDOW), "session window")
            window = self._remembered(state, length, newer=newer)
            rows[SessionId(session)] = Session(
                owner, nonce, last_sequence, Index(last_used), window
            )
            previous = session
        state.sessions = SessionTable(rows)

    def _read_named(self, state: LogState) -> None:
        (count,) = self._take(_COUNT)
        _check(count <= NAMED_SESSIONS_MAX, "too many named sessions")
        rows: dict[SessionId, NamedSession] = {}
        owned: Counter[str] = Counter()
        names: set[tuple[str, str]] = set()
        previous = 0
        for _ in range(count):
            (
                session,
                last,
                used,
                length,
                content,
                stamp,
                used_us,
                ttl_s,
                forgotten,
                owner_bytes,
                name_bytes,
            ) = self._take(_NAMED)
            owner, name = self._text(owner_bytes, IDENTITY_BYTES_MAX), self._text(name_bytes)
            owned[owner] += not forgotten
            names.add((owner, name))
            _check(owner != "" and name != "", "named session without a name")
            _check(owned[owner] <= NAMED_SESSIONS_PER_OWNER_MAX, "named sessions of one identity")
            _check(previous < session <= used <= state.applied_index, "sessions out of order")
            _check(state.sessions.get(session) is None, "a session that is there twice")
            _check(used_us <= state.append_time_us, "append time of a session")
            _check(not forgotten or used < forgotten <= state.applied_index, "forgotten session")
            _check(length <= SESSION_WINDOW, "session window")
            row = rows[SessionId(session)] = NamedSession(
                owner,
                name,
                last,
                Index(used),
                self._remembered(state, length, newer=True),
                content=content,
                stamp_us=stamp,
                ttl_s=ttl_s,
                used_us=used_us,
                forgotten=Index(forgotten),
            )
            problem = row_problem(row)
            _check(not problem, problem)
            _check(length == min(row.appended, SESSION_WINDOW), "session window")
            _check(not forgotten or not row.appended, "blocks of a forgotten session")
            previous = session
        _check(len(names) == count, "a name that is there twice")
        state.named = NamedSessions(rows)

    def _remembered(self, state: LogState, length: int, *, newer: bool) -> deque[Remembered]:
        """The window of a session."""
        numbers = self._take(_window(newer, length))
        columns = [numbers[at :: 3 + newer] for at in range(3 + newer)]
        times = columns[3] if newer else (0,) * length
        window: deque[Remembered] = deque(
            (
                (Lsn(lsn), records, known, time)
                for lsn, records, known, time in zip(*columns[:3], times, strict=True)
            ),
            maxlen=SESSION_WINDOW,
        )
        end, before_us = 1, 0
        for lsn, records, _, time in window:
            _check(lsn >= end and records > 0, "session window out of order")
            _check(before_us <= time <= state.append_time_us, "append time of a session")
            end, before_us = lsn + records, time
        _check(end <= state.end_lsn, "session beyond the tail")
        return window

    def _read_gaps(self, state: LogState, count: int) -> None:
        room = (len(self._data) - self._position) // _GAP.size
        _check(count <= room, "rejected ranges cut short")
        end = 1
        for _ in range(count):
            first_lsn, records, code = self._take(_GAP)
            _check(code in _REASONS, "unknown reason")
            _check(first_lsn >= end and records > 0, "rejected ranges out of order")
            end = first_lsn + records
            _check(state.truncated_lsn + 1 < end <= state.end_lsn, "rejected range out of the log")
            state.rejected.append(RejectedRange(Lsn(first_lsn), records, _REASONS[code]))

    def _take(self, layout: struct.Struct) -> tuple[Any, ...]:
        values: tuple[Any, ...] = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return values

    def _text(self, size: int, limit: int = NAME_BYTES_MAX) -> str:
        _check(size <= limit, "name too long")
        end = self._position + size
        _check(end <= len(self._data), "name cut short")
        text = self._data[self._position : end].decode()
        self._position = end
        return text
