"""Sessions: a client's numbered appends, applied at most once and in order.

This file alone decides what a `(session, sequence)` pair means. A session id is the index of its
OpenSession entry. With `last` the newest accepted sequence:

- ``sequence == last + 1``: new; accepted unless a later rule refuses it, which leaves `last` alone;
- ``last - SESSION_WINDOW < sequence <= last``: a repetition; the original LSNs are returned;
- older, or unknown session: SESSION_EXPIRED; what became of the first attempt is not known any
  more;
- ``sequence > last + 1``: SEQUENCE_GAP; definitely not applied.

INV-RSM-SESSION: the window holds the (LSN, count) of exactly the sequences
``last - len(window) + 1 .. last``, and `len(window)` is `min(last, SESSION_WINDOW)`.

Eviction is deterministic and by entries of the log, never by a clock: only when a new session needs
room, the one unused for the longest, and only if it was not named by any of the last
SESSION_IDLE_ENTRIES entries. Otherwise the table is full: BUSY.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from logservice_wire.errors import Reason

from logservice.bounds import SESSION_IDLE_ENTRIES, SESSION_WINDOW, SESSIONS_MAX
from logservice.ids import Index, Lsn, SessionId
from logservice.outcome import Applied, Outcome, Rejected

SESSION_EXPIRED = Rejected(Reason.SESSION_EXPIRED)
"""The session is unknown, or the sequence older than its window."""


class Session:
    """One row of the table. `last_used`: index of the newest entry that named the session."""

    __slots__ = ("last_sequence", "last_used", "window")

    def __init__(
        self, last_sequence: int, last_used: Index, window: deque[tuple[Lsn, int]] | None = None
    ) -> None:
        """A session as it was at `last_used`; a new one has no sequence and an empty window."""
        self.last_sequence = last_sequence
        self.last_used = last_used
        self.window: deque[tuple[Lsn, int]] = (
            deque(maxlen=SESSION_WINDOW) if window is None else window
        )

    def accept(self, lsn: Lsn, count: int) -> None:
        """The next sequence was applied at `lsn`."""
        self.last_sequence += 1
        self.window.append((lsn, count))

    def repetition(self, sequence: int) -> Outcome:
        """The answer to a `sequence` at or below `last_sequence`."""
        age = self.last_sequence - sequence
        if age >= len(self.window) or age < 0:
            return SESSION_EXPIRED
        lsn, count = self.window[-1 - age]
        return Applied(lsn=lsn, count=count, duplicate=True)


class SessionTable:
    """All sessions of a shard, at most SESSIONS_MAX."""

    __slots__ = ("_oldest_use", "_rows")

    def __init__(self, rows: dict[SessionId, Session] | None = None) -> None:
        """`rows` as read from a snapshot; the table takes them over."""
        self._rows: dict[SessionId, Session] = {} if rows is None else rows
        # A lower bound of every row's last_used: it spares a full table the scan for a victim, and
        # changes no answer, so it is not part of the state.
        self._oldest_use = Index(0)

    def __len__(self) -> int:
        """Sessions in the table."""
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[SessionId, Session]]:
        """Rows by session id: an order that does not depend on how the table came about."""
        return iter(sorted(self._rows.items()))

    def get(self, session: SessionId) -> Session | None:
        """The row, None when unknown."""
        return self._rows.get(session)

    def open(self, index: Index) -> bool:
        """Open the session whose OpenSession entry is `index`; False when there is no room."""
        if len(self._rows) >= SESSIONS_MAX and not self._evict(index):
            return False
        self._rows[SessionId(index)] = Session(0, index)
        return True

    def _evict(self, index: Index) -> bool:
        if index - self._oldest_use <= SESSION_IDLE_ENTRIES:
            return False
        used, victim = min((row.last_used, session) for session, row in self._rows.items())
        self._oldest_use = used
        if index - used <= SESSION_IDLE_ENTRIES:
            return False
        del self._rows[victim]
        return True


def sequence_gap(last_sequence: int) -> Rejected:
    """A sequence before this one is missing."""
    return Rejected(Reason.SEQUENCE_GAP, {"last": str(last_sequence)})
