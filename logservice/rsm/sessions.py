"""Sessions: a client's numbered appends, applied at most once and in order.

This file alone decides what a `(session, sequence)` pair means. A session is the index of its
OpenSession entry, the nonce in that entry and the identity that asked for it; whoever does not name
all three names no session. With `last` the newest accepted sequence:

- ``sequence == last + 1``: new; accepted unless a later rule refuses it, which leaves `last` alone;
- ``last - SESSION_WINDOW < sequence <= last``: a repetition; the original LSNs are returned, if the
  block is the one that was accepted, else SEQUENCE_REUSED: this block is not applied and never is;
- older, or no such session: SESSION_EXPIRED; the outcome of the first attempt is not known any
  more;
- ``sequence > last + 1``: SEQUENCE_GAP; definitely not applied.

Blocks are told apart by a fingerprint: their length and the checksum in their header. The leader
has verified that checksum, so the bytes are not read again.

INV-RSM-SESSION: the window holds (LSN, count, fingerprint, append time) of exactly the sequences
``last - len(window) + 1 .. last``, and `len(window)` is `min(last, SESSION_WINDOW)`.

INV-RSM-OWNER: a session is changed by blocks of its owner that carry its nonce, and by nothing
else.

Sessions are evicted only when a new session needs room; log entries decide which, never a clock, so
eviction is deterministic. An owner has at most SESSIONS_PER_OWNER_MAX sessions: a further one
replaces its own session that was unused for the longest. In a full table the owner with the most
sessions loses its longest unused one; when nobody has more than the opener, that is the opener. A
session gives way to another one of the same owner only if none of the last SESSION_IDLE_ENTRIES
entries named it. Otherwise there is no room: BUSY.

INV-RSM-SHARE: a session gives way to another owner's only if its own owner has more sessions than
the other one. So with n owners each keeps the SESSIONS_MAX // n sessions that it used last,
whatever the others do: their entries make no session older than its siblings.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from logservice_wire.block import CRC_OFFSET
from logservice_wire.errors import Reason

from logservice.bounds import (
    SESSION_IDLE_ENTRIES,
    SESSION_WINDOW,
    SESSIONS_MAX,
    SESSIONS_PER_OWNER_MAX,
)
from logservice.ids import Index, Lsn, SessionId
from logservice.invariants import invariant
from logservice.outcome import Applied, Outcome, Rejected
from logservice.owner import Claim

SESSION_EXPIRED = Rejected(Reason.SESSION_EXPIRED)
"""No such session, or the sequence is older than its window."""

Remembered = tuple[Lsn, int, int, int]
"""What became of a sequence: first LSN, record count, fingerprint of its block, append time."""

_CRC: Final = struct.Struct("<I")
_CRC_END: Final = CRC_OFFSET + _CRC.size


def fingerprint(block: bytes | memoryview) -> int:
    """Tells a block from another one; 64 bits, made of its length and its own checksum."""
    size = len(block)
    # Bytes too short to be a block have no checksum. Edges refuse them; apply must not fail.
    return size << 32 | (_CRC.unpack_from(block, CRC_OFFSET)[0] if size >= _CRC_END else 0)


class Session:
    """One row of the table. `last_used`: index of the newest entry that named the session."""

    __slots__ = ("last_sequence", "last_used", "nonce", "owner", "window")

    def __init__(
        self,
        owner: bytes,
        nonce: bytes,
        last_sequence: int,
        last_used: Index,
        window: deque[Remembered] | None = None,
    ) -> None:
        """A session as it was at `last_used`; a new one has no sequence and an empty window."""
        self.owner = owner
        self.nonce = nonce
        self.last_sequence = last_sequence
        self.last_used = last_used
        self.window: deque[Remembered] = deque(maxlen=SESSION_WINDOW) if window is None else window

    def is_of(self, claim: Claim) -> bool:
        """Whether `claim` names the owner and the nonce.

        The nonce does not protect one identity from another, so it need not be compared in constant
        time.
        """
        return claim.owner == self.owner and claim.nonce == self.nonce

    def touch(self, index: Index, append_time_us: int) -> None:
        """The entry `index`, of that append time, names it."""
        self.last_used = index

    def accept(self, lsn: Lsn, count: int, block: bytes | memoryview, append_time_us: int) -> None:
        """The next sequence, `block`, was applied at `lsn`."""
        self.last_sequence += 1
        self.window.append((lsn, count, fingerprint(block), append_time_us))

    def repetition(self, sequence: int, block: bytes | memoryview) -> Outcome:
        """The answer to `block` under a `sequence` at or below `last_sequence`."""
        age = self.last_sequence - sequence
        if age >= len(self.window) or age < 0:
            return SESSION_EXPIRED
        lsn, count, known, append_time_us = self.window[-1 - age]
        if known != fingerprint(block):
            return Rejected(Reason.SEQUENCE_REUSED, {"lsn": str(lsn)})
        return Applied(lsn=lsn, count=count, value=append_time_us, duplicate=True)


class _Owned:
    """Sessions of one owner, by age: a heap of (last use, session). A pair is brought up to date
    only when it comes to the top. All of it is derived from the rows.
    """

    __slots__ = ("ages",)

    def __init__(self) -> None:
        self.ages: list[tuple[Index, SessionId]] = []

    def oldest(self, rows: dict[SessionId, Session]) -> SessionId:
        """The session unused for the longest; of several, the one opened first."""
        ages = self.ages
        while True:
            used, session = ages[0]
            now_used = rows[session].last_used
            if now_used == used:
                return session
            heapreplace(ages, (now_used, session))


class SessionTable:
    """All sessions of a shard, at most SESSIONS_MAX."""

    __slots__ = ("_owned", "_rows")

    def __init__(self, rows: dict[SessionId, Session] | None = None) -> None:
        """`rows` as read from a snapshot; the table takes them over."""
        self._rows: dict[SessionId, Session] = {} if rows is None else rows
        self._owned: dict[bytes, _Owned] = {}
        for session, row in self._rows.items():
            self._owned.setdefault(row.owner, _Owned()).ages.append((row.last_used, session))
        for owned in self._owned.values():
            heapify(owned.ages)

    def __len__(self) -> int:
        """Sessions in the table."""
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[SessionId, Session]]:
        """Rows by session id: an order that does not depend on how the table came about."""
        return iter(sorted(self._rows.items()))

    def get(self, session: SessionId) -> Session | None:
        """The row, None when unknown."""
        return self._rows.get(session)

    def count_of(self, owner: bytes) -> int:
        """Sessions of one owner."""
        owned = self._owned.get(owner)
        return len(owned.ages) if owned is not None else 0

    def open(self, index: Index, owner: bytes, nonce: bytes) -> bool:
        """Open the session whose OpenSession entry is `index`; False when there is no room."""
        if not self._make_room(index, owner):
            return False
        session = SessionId(index)
        self._rows[session] = Session(owner, nonce, 0, index)
        heappush(self._owned.setdefault(owner, _Owned()).ages, (index, session))
        return True

    def _make_room(self, index: Index, owner: bytes) -> bool:
        count = self.count_of(owner)
        giving = owner
        if count < SESSIONS_PER_OWNER_MAX:
            if len(self._rows) < SESSIONS_MAX:
                return True
            most, giving = max((len(owned.ages), who) for who, owned in self._owned.items())
            if most <= count:
                giving = owner
        owned = self._owned[giving]
        victim = owned.oldest(self._rows)
        if giving == owner:
            if index - self._rows[victim].last_used <= SESSION_IDLE_ENTRIES:
                return False
        else:
            invariant(len(owned.ages) > count, "INV-RSM-SHARE", most=len(owned.ages), count=count)
        heappop(owned.ages)
        del self._rows[victim]
        if not owned.ages:
            del self._owned[giving]
        return True


def sequence_gap(last_sequence: int) -> Rejected:
    """A sequence before this one is missing."""
    return Rejected(Reason.SEQUENCE_GAP, {"last": str(last_sequence)})
