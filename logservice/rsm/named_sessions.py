"""Named sessions: appends of a job whose processes come and go, each applied at most once.

Theory of operation. A session (`rsm.sessions`) is known to the process that opened it. A job that
is run again by another process, a task of Spark for example, cannot show it, and a new one would
let its blocks in twice. So a session may have a name, and whoever of the same identity opens that
name again has the same session. It differs from others in this:

- Its blocks are numbered within an *epoch*, a number that its owner counts up, once per piece of
  work that is done again as a whole. The sequence of block k (from 1) is ``epoch << 32 | k``. What
  is below the session's epoch is SESSION_EXPIRED, so whoever is late of an earlier epoch appends
  nothing.
- Opening says what the epoch's blocks will be: its *content*, 32 bytes that the owner derives from
  all of them. The first to open an epoch decides; another content is SEQUENCE_REUSED. So two
  attempts that differ are told before the second one has appended anything, and what the blocks
  hold is never of both.
- The answer is how many blocks of the epoch are in the log, and the *stamp* of the epoch, a time
  that the first to open it chose: attempts stamp their blocks alike and so have the same bytes.
- It never gives way to another session. A table without room refuses new names (TOO_LARGE).
  One that was opened with a time to live may go when nothing named it for so long, by the append
  times of the log; the time is for names that nobody opens again.
- An owner has at most as many as are left for others. So the first one gets half of the table, the
  next one a quarter, and whoever comes n-th, however greedy the others are, still gets its part.
- Its owner, or administration, can have it forgotten, which makes room. A row that was used since
  it was looked at is not forgotten.

INV-RSM-NAMED: an owner and a name have at most one row; its epoch only grows, and within one epoch
its content and stamp stay. Its window holds exactly the newest `min(k, SESSION_WINDOW)` of the k
blocks that were accepted in its epoch.

INV-RSM-LOST: a fork (`logservice.lineage`) leaves rows without a memory. They are SESSION_EXPIRED
for every epoch, ever: what their job has appended is not known any more, and a new start would be
a guess.

INV-RSM-FORGOTTEN: what comes of the epoch of a forgotten row, or an earlier one, is
SESSION_EXPIRED; a later epoch begins like a new name. The row stays until a new name needs its
place; first goes what its own identity has forgotten first, so that nobody who opens and forgets
names without end pushes out what others have. Only then would work of its epoch begin anew.

The nonce of a session is a digest of its name: what keeps processes of one identity apart must be
the same for all that may open the name.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from logservice_wire.errors import Reason

from logservice.bounds import (
    NAMED_SESSIONS_MAX,
    SESSION_EPOCH_BITS,
    SESSION_EPOCH_MAX,
)
from logservice.ids import Index, SessionId
from logservice.outcome import Applied, Outcome, Rejected, belongs_to
from logservice.owner import NONCE_BYTES, Claim, owner_digest
from logservice.rsm.commands import SESSION_CONTENT_BYTES, ForgetSession, OpenNamedSession
from logservice.rsm.queries import NamedSessionsPage, NamedSessionsQuery, NamedSessionStatus
from logservice.rsm.sessions import SESSION_EXPIRED, Remembered, Session

NO_CONTENT: Final = bytes(SESSION_CONTENT_BYTES)
ANSWER: Final = struct.Struct("<Qq")
"""What opening answers: blocks of the epoch that are in the log, the epoch's stamp."""

_LOST: Final = 2**64 - 1
_NEVER: Final = Index(0)
_MICROSECONDS: Final = 1_000_000


def nonce_of(name: str) -> bytes:
    """What stands for a name, and is the nonce of its session."""
    return blake2b(name.encode(), digest_size=NONCE_BYTES, person=b"named session").digest()


def first_of(epoch: int) -> int:
    """The sequence below that of the first block of an epoch."""
    return epoch << SESSION_EPOCH_BITS


class NamedSession(Session):
    """One row. `used_us`: the log's append time when an entry named it last. ttl_s: 0 for none.
    `forgotten`: index of the entry that had it forgotten, 0 for none.
    """

    __slots__ = ("content", "forgotten", "identity", "name", "stamp_us", "ttl_s", "used_us")

    def __init__(
        self,
        identity: str,
        name: str,
        last_sequence: int,
        last_used: Index,
        window: deque[Remembered] | None = None,
        *,
        content: bytes,
        stamp_us: int,
        ttl_s: int,
        used_us: int,
        forgotten: Index = _NEVER,
    ) -> None:
        """A row as it was at `last_used`."""
        super().__init__(owner_digest(identity), nonce_of(name), last_sequence, last_used, window)
        self.identity = identity
        self.name = name
        self.content = content
        self.stamp_us = stamp_us
        self.ttl_s = ttl_s
        self.used_us = used_us
        self.forgotten = forgotten

    @property
    def epoch(self) -> int:
        """Above every epoch that can be opened when the row is lost."""
        return self.last_sequence >> SESSION_EPOCH_BITS

    @property
    def appended(self) -> int:
        """Blocks of the epoch that were accepted; 0 when the row is lost."""
        return 0 if self.lost else self.last_sequence - first_of(self.epoch)

    @property
    def lost(self) -> bool:
        """Whether a fork has taken its memory."""
        return self.last_sequence == _LOST

    def is_of(self, claim: Claim) -> bool:
        """See `Session`; of a forgotten one nothing is."""
        return not self.forgotten and super().is_of(claim)

    def touch(self, index: Index, append_time_us: int) -> None:
        """The entry `index` names it."""
        super().touch(index, append_time_us)
        self.used_us = append_time_us

    def begin(self, epoch: int, content: bytes, stamp_us: int) -> None:
        """A later epoch begins."""
        self.last_sequence = first_of(epoch)
        self.window.clear()
        self.content, self.stamp_us = content, stamp_us
        self.forgotten = _NEVER

    def lose(self) -> None:
        """See INV-RSM-LOST."""
        self.last_sequence = _LOST
        self.window.clear()
        self.content, self.stamp_us = NO_CONTENT, 0

    def forget(self, index: Index) -> None:
        """See INV-RSM-FORGOTTEN; the entry `index` says so."""
        if not self.lost:
            self.begin(self.epoch, NO_CONTENT, 0)
        self.forgotten = index

    def status(self, session: SessionId) -> NamedSessionStatus:
        """The row, for people."""
        return NamedSessionStatus(
            session,
            self.name,
            self.identity,
            0 if self.lost else self.epoch,
            self.appended,
            self.stamp_us,
            self.ttl_s,
            self.last_used,
            self.used_us,
            self.lost,
            bool(self.forgotten),
        )

    def answer(self, session: SessionId, *, opened_before: bool) -> Applied:
        """What whoever opened it is told."""
        data = ANSWER.pack(self.appended, self.stamp_us)
        return Applied(value=session, data=data, duplicate=opened_before)


class NamedSessions:
    """All named sessions of a shard, at most NAMED_SESSIONS_MAX."""

    __slots__ = ("_ids", "_live", "_rows")

    def __init__(self, rows: dict[SessionId, NamedSession] | None = None) -> None:
        """`rows` as read from a snapshot; the table takes them over."""
        self._rows: dict[SessionId, NamedSession] = {} if rows is None else rows
        self._ids = {(row.owner, row.nonce): session for session, row in self._rows.items()}
        # Rows that are not forgotten, by owner.
        self._live = Counter(row.owner for row in self._rows.values() if not row.forgotten)

    def __len__(self) -> int:
        """Sessions in the table, forgotten ones included."""
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[SessionId, NamedSession]]:
        """Rows by session id."""
        return iter(sorted(self._rows.items()))

    def get(self, session: SessionId) -> NamedSession | None:
        """The row, None when unknown."""
        return self._rows.get(session)

    def page(self, query: NamedSessionsQuery) -> NamedSessionsPage:
        """What the query asks for."""
        behind = sorted(one for one in self._rows if one > query.after)
        shown = behind[: query.limit]
        return NamedSessionsPage(
            tuple(self._rows[one].status(one) for one in shown), len(shown) < len(behind)
        )

    def open(
        self,
        index: Index,
        command: OpenNamedSession,
        now_us: int,
        closed: Rejected | None,
    ) -> Outcome:
        """The entry `index`, at the log's append time `now_us`, opens a name for an epoch.
        `closed`: the answer to appends, if the log is closed: then only an epoch that was begun
        before is told of.
        """
        epoch, content, stamp_us = command.epoch, command.content, command.stamp_us
        identity = command.author.identity
        key = (owner_digest(identity), nonce_of(command.name))
        session = self._ids.get(key)
        row = None if session is None else self._rows[session]
        if row is not None:
            if not row.forgotten:
                row.touch(index, now_us)
            if epoch < row.epoch or (row.forgotten and epoch == row.epoch):
                return SESSION_EXPIRED
            if epoch == row.epoch:
                assert session is not None
                if content == row.content:
                    return row.answer(session, opened_before=True)
                lsn = row.window[0][0] if row.window else 0
                return Rejected(Reason.SEQUENCE_REUSED, {"lsn": str(lsn)})
        if closed is not None:
            return closed
        if row is None or row.forgotten:
            full = self._make_room(key[0], now_us)
            if full is not None:
                return full
            self._live[key[0]] += 1
        if row is None:
            session = SessionId(index)
            row = NamedSession(
                identity,
                command.name,
                first_of(epoch),
                index,
                content=content,
                stamp_us=stamp_us,
                ttl_s=command.ttl_s,
                used_us=now_us,
            )
            self._let_one_go(key[0])
            self._rows[session], self._ids[key] = row, session
        else:
            assert session is not None
            row.touch(index, now_us)
            row.ttl_s = command.ttl_s if row.forgotten else row.ttl_s
            row.begin(epoch, content, stamp_us)
        return row.answer(session, opened_before=False)

    def forget(self, index: Index, command: ForgetSession) -> Outcome:
        """The entry `index` has a row forgotten, if nothing named it since the caller looked."""
        row = self._rows.get(command.session)
        if row is None:
            return Applied(duplicate=True)
        if not command.override and row.identity != command.author.identity:
            return belongs_to(row.identity)
        if row.forgotten:
            return Applied(duplicate=True)
        if row.last_used > command.last_used:
            return Rejected(
                Reason.VERB_REFUSED,
                {"why": f"it was used at index {row.last_used}, behind {command.last_used}"},
            )
        row.forget(index)
        self._one_less(row.owner)
        return Applied()

    def lose_all(self) -> None:
        """The log goes on as another history."""
        for row in self._rows.values():
            row.lose()

    def _make_room(self, owner: bytes, now_us: int) -> Rejected | None:
        """Why there is no room for one more of `owner`."""
        if self._refusal(owner) is None:
            return None
        for session, row in list(self._rows.items()):
            idle_us = now_us - row.used_us
            if row.ttl_s and not row.forgotten and idle_us > row.ttl_s * _MICROSECONDS:
                self._drop(session, row)
                self._one_less(row.owner)
        return self._refusal(owner)

    def _refusal(self, owner: bytes) -> Rejected | None:
        free = NAMED_SESSIONS_MAX - self._live.total()
        if free <= 0:
            return _too_many("named sessions of a log", NAMED_SESSIONS_MAX)
        # Which is never more than NAMED_SESSIONS_PER_OWNER_MAX, because its own are not free.
        if self._live[owner] >= free:
            return _too_many("named sessions of one identity", self._live[owner])
        return None

    def _let_one_go(self, owner: bytes) -> None:
        """Make a place for a new row of `owner`, in a table in which not all rows are live."""
        if len(self._rows) >= NAMED_SESSIONS_MAX:
            _, _, session = min(
                (row.owner != owner, row.forgotten, one)
                for one, row in self._rows.items()
                if row.forgotten
            )
            self._drop(session, self._rows[session])

    def _one_less(self, owner: bytes) -> None:
        self._live[owner] -= 1
        if not self._live[owner]:
            del self._live[owner]

    def _drop(self, session: SessionId, row: NamedSession) -> None:
        del self._rows[session], self._ids[row.owner, row.nonce]


def _too_many(name: str, limit: int) -> Rejected:
    return Rejected(Reason.TOO_LARGE, {"name": name, "limit": str(limit), "value": str(limit + 1)})


def row_problem(row: NamedSession) -> str:
    """What is wrong with a row that no log could have made; "" for nothing."""
    if row.lost or row.forgotten:
        known = row.content != NO_CONTENT or row.stamp_us
        if known:
            return "content of a session that is lost or forgotten"
    return "epoch of a named session" if row.epoch > SESSION_EPOCH_MAX and not row.lost else ""
