"""LogState: the replicated state of a log shard, and the rules for truncation and the writer's
epoch.

Everything a replica knows about its log besides the records; small enough to be copied into every
snapshot. Only `LogRsm` changes it, entry by entry. Invariants:

- INV-RSM-TRUNC: ``truncated_lsn <= requested_lsn < next_lsn``. Both only grow, with one exception:
  granting an epoch drops a request that a hold still keeps back (``requested_lsn =
  truncated_lsn``). Otherwise the request would take effect under a newer epoch than the one it came
  with, which G9 forbids.
- INV-RSM-RETAIN: what the policy lets go (`retain`) goes as far as the holds allow at that entry,
  and no further later; the newest record stays. A truncation that holds keep back stays as it is.
- INV-RSM-HOLD: every hold lies above `truncated_lsn`; so a hold, once granted, is kept.
- INV-RSM-EPOCH: `writer_epoch` grows only; 0 means that none was ever granted.
- INV-RSM-WRITER: while somebody holds the epoch, only the identity that acquired it appends or
  truncates with it. Another identity can release it or take it over only by the override of
  administration. There is a holder exactly when there is an owner.
- INV-RSM-HOLD-OWNER: a hold is moved or released by the identity that set it, or by the override,
  which leaves it that identity's.
- INV-RSM-HOLD-REVISION: a hold ends by an expiry only if it has a time to live and the expiry
  names its revision, the index of the entry that last set or renewed it. So an expiry that comes
  late or twice never ends a hold that was set, moved or renewed since.
- INV-RSM-HOLD-RENEWED: a renewal changes the revision of a hold that stands and nothing else. It
  makes none, and it moves none.
- INV-RSM-GAP: `rejected` is sorted, its ranges do not overlap, each ends above `truncated_lsn`.
- INV-TIME-1: append times grow strictly from block entry to block entry; what was one entry in the
  source of a restore may be several here, with the same time. Once one has a time, every
  later one has. An entry that breaks this is what no correct leader makes, and its blocks are
  refused (`LogRsm`); so `append_time_us` only grows, and what readers are told grows, too.
- INV-RSM-CLOSED: a closed log stays closed, and its end (`closed_lsn`, the next LSN at the Close)
  stays where it is. Whatever lies behind it was refused and is not served, so it needs no gap.
- INV-RESTORE-1 to 4, INV-MIRROR-1, 2, TRUNC and EPOCH:
  `rsm.restoring`.
- INV-LINEAGE-1 to 4: `logservice.lineage`. A fork (`fork`) drops a truncation that a hold keeps
  back, as a grant of an epoch does and for the same reason.

A truncation that holds keep back is *accepted*: its answer is the effective truncation LSN,
possibly the old one, and the rest of it takes effect by itself when the holds move up or go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logservice_wire.errors import Reason

from logservice.bounds import APPEND_TIME_US_MAX, LINEAGE_TIMESTAMP_STEP
from logservice.ids import Index, Lsn, SessionId
from logservice.invariants import invariant
from logservice.lineage import FIRST, Lineage
from logservice.outcome import Rejected
from logservice.owner import owner_digest
from logservice.rsm.named_sessions import NamedSessions
from logservice.rsm.restoring import Restoring
from logservice.rsm.sessions import Session, SessionTable

TIMESTAMP_MAX: Final = 2**63 - 1
"""Last timestamp: what fits a signed 64-bit number, which is what databases keep."""


class Hold(NamedTuple):
    """Records from `lsn` on stay, because the identity `owner` wants them.

    revision: index of the entry that last set or renewed it; 0 when that was done at cluster
    version 1, where holds have none. ttl_s: seconds after which it may expire; 0: never.
    """

    lsn: Lsn
    owner: str
    revision: Index = Index(0)
    ttl_s: int = 0


class RejectedRange(NamedTuple):
    """`record_count` LSNs from `first_lsn` on that hold no record: the block there was refused.

    One range per refused block, so a block is a gap exactly when a range starts at its LSN. A
    duplicate of an applied sequence is recorded as SEQUENCE_GAP: its records are at their original
    LSNs.
    """

    first_lsn: Lsn
    record_count: int
    reason: Reason

    @property
    def next_lsn(self) -> Lsn:
        """The LSN after the range."""
        return Lsn(self.first_lsn + self.record_count)


@dataclass(slots=True)
class LogState:
    """What the module describes; a new one is the state of a new shard."""

    applied_index: Index = field(default=Index(0))
    next_lsn: Lsn = field(default=Lsn(1))
    truncated_lsn: Lsn = field(default=Lsn(0))
    requested_lsn: Lsn = field(default=Lsn(0))
    writer_epoch: int = 0
    writer_holder: str = ""
    writer_owner: str = ""
    next_timestamp: int = 1
    holds: dict[str, Hold] = field(default_factory=dict)
    sessions: SessionTable = field(default_factory=SessionTable)
    named: NamedSessions = field(default_factory=NamedSessions)
    rejected: list[RejectedRange] = field(default_factory=list)
    closed_index: Index = field(default=Index(0))
    """The index of the Close; 0 while the log is open."""
    closed_lsn: Lsn = field(default=Lsn(0))
    lineage: Lineage = FIRST
    restoring: Restoring | None = None
    """What the log is to become; None for a log that is open."""
    hold_changes: int = field(default=0, compare=False)
    """How often a hold was set, renewed or ended in this object: for whoever looks for changes. It
    is not replicated."""
    holds_since: dict[str, Index] = field(default_factory=dict, compare=False)
    """By name, the revision in which this object saw a hold come to its LSN; none for a hold that
    stands as a snapshot had it. It is not replicated."""
    append_time_us: int = 0
    """That of the newest block entry, in microseconds since 1970; 0 before the first that has
    one."""

    @property
    def served(self) -> bool:
        """Whether readers are served: the log is open, or a mirror that has come to its base."""
        restoring = self.restoring
        return restoring is None or (restoring.mirror and restoring.base_lsn <= self.next_lsn)

    def takes_time(self, append_time_us: int) -> bool:
        """Whether the next block entry may have this append time (0: none), by INV-TIME-1.

        No clock of a correct store says more than APPEND_TIME_US_MAX. Only the entry behind one at
        that bound has a later time: the next microsecond. So a leader that lies cannot use up the
        times that a log has.
        """
        last = self.append_time_us
        if append_time_us == 0:
            return last == 0
        if self.restoring is not None and append_time_us == last:
            return True
        return last < append_time_us <= max(APPEND_TIME_US_MAX, last + 1)

    def session(self, session: SessionId) -> Session | None:
        """The session of a block, with a name or without; None when there is none."""
        return self.sessions.get(session) or self.named.get(session)

    @property
    def end_lsn(self) -> Lsn:
        """The LSN after the last one that readers may be served."""
        return self.closed_lsn or self.next_lsn

    def close(self, index: Index) -> None:
        """The entry `index` closes the log behind everything before it."""
        invariant(not self.closed_index, "INV-RSM-CLOSED", closed=self.closed_index, index=index)
        self.closed_index = index
        self.closed_lsn = self.next_lsn

    def closed(self) -> Rejected:
        """The answer to an append to a closed log."""
        return Rejected(Reason.SHARD_CLOSED, {"end": str(self.closed_lsn)})

    def admits(self, epoch: int, owner: bytes) -> bool:
        """G9: may a request of `owner` (a digest) with this writer epoch (0 = none) append or
        truncate?
        """
        return epoch == self.writer_epoch and (
            epoch == 0 or (self.writer_holder != "" and owner == owner_digest(self.writer_owner))
        )

    def fenced(self) -> Rejected:
        """The answer to a request that is not admitted."""
        return Rejected(Reason.FENCED, self.writer_metadata())

    def writer_metadata(self) -> dict[str, str]:
        """Whom to ask, for FENCED and STALE_EPOCH."""
        return {"epoch": str(self.writer_epoch), "holder": self.writer_holder}

    def writer_is_of(self, identity: str) -> bool:
        """Whether `identity` holds the epoch, or nobody does."""
        return self.writer_holder == "" or self.writer_owner == identity

    def grant_writer(self, holder: str, owner: str) -> int:
        """A new epoch for `holder`, a process of the identity `owner`; returns it."""
        invariant(holder != "" and owner != "", "INV-RSM-WRITER", holder=holder, owner=owner)
        self.writer_epoch = self._next_epoch()
        self.writer_holder = holder
        self.writer_owner = owner
        self.requested_lsn = self.truncated_lsn
        return self.writer_epoch

    def release_writer(self) -> None:
        """Nobody holds the epoch from here on."""
        self.writer_holder = self.writer_owner = ""

    def fork(self, lineage: Lineage) -> None:
        """The log goes on as `lineage`. What the lost entries may have granted or answered holds no
        more: the writer's epoch, the sessions, the timestamps.
        """
        known = self.lineage
        invariant(
            (lineage.number, lineage.parent) == (known.number + 1, known.id),
            "INV-LINEAGE-1",
            known=known,
            lineage=lineage,
        )
        self.lineage = lineage
        if self.writer_epoch:
            self.writer_epoch = self._next_epoch()
        self.release_writer()
        self.requested_lsn = self.truncated_lsn
        self.sessions = SessionTable()
        self.named.lose_all()
        self.next_timestamp = min(self.next_timestamp + LINEAGE_TIMESTAMP_STEP, TIMESTAMP_MAX)

    @property
    def nothing_happened(self) -> bool:
        """INV-RESTORE-1: whether the log is as it was born, but for its applied index."""
        return (
            self.next_lsn == self.next_timestamp == 1
            and self.lineage == FIRST
            and not (self.closed_index or self.writer_epoch or self.holds)
            and not (len(self.sessions) or len(self.named))
        )

    def is_of_restore(self, session: int, nonce: bytes) -> bool:
        """Whether a block is of a restore of this log, that goes on or is over."""
        return session == 0 and self.lineage.number > 0 and nonce == self.lineage.id

    def refuses_restored(
        self, session: int, nonce: bytes, expected_lsn: Lsn, lsn: Lsn
    ) -> Rejected | None:
        """Why a block that would be at `lsn` is not taken while the log is restored, or why one of
        a restore is not taken now (INV-RESTORE-2).
        """
        restoring = self.restoring
        if restoring is None:
            return self.fenced()
        if not self.is_of_restore(session, nonce):
            return restoring.refusal(self.next_lsn)
        if self.closed_index:
            return self.closed()
        if expected_lsn != lsn:
            return Rejected(Reason.WRONG_EXPECTED_LSN, {"next": str(self.next_lsn)})
        return None

    def begin_restore(self, lineage: Lineage, restoring: Restoring, epoch: int, stamp: int) -> None:
        """The new log becomes a restored one. `epoch`: the newest that its source is known to have
        granted, 0 for none. `stamp`: its next timestamp.
        """
        self.lineage = lineage
        self.restoring = restoring
        if epoch:
            self.writer_epoch = self._next_epoch()
        self.next_timestamp = min(stamp, TIMESTAMP_MAX)

    def reach_base(self, base_lsn: Lsn) -> None:
        """A mirror has what lies below its base: nobody reads it, and what follows is read."""
        self.requested_lsn = Lsn(base_lsn - 1)
        self._truncate(self.requested_lsn)

    def end_restore(self, end_lsn: Lsn, next_timestamp: int) -> None:
        """The whole range is here and verified: the log opens, with nothing below the base. What a
        mirror gives out from here on is `next_timestamp` or more; 0: nobody knows what its source
        gave out.
        """
        restoring = self.restoring
        assert restoring is not None
        self.restoring = None
        # A truncation that a hold keeps back goes, as by a fork and for the same reason.
        self.truncated_lsn = self.requested_lsn = Lsn(restoring.base_lsn - 1)
        if restoring.mirror:
            own = self.lineage
            self.lineage = Lineage(own.number, own.id, own.parent, Lsn(end_lsn - 1))
            self.next_timestamp = max(self.next_timestamp, next_timestamp or TIMESTAMP_MAX)

    def of_lineage(self, expected: bytes) -> Rejected:
        """The answer to a request for another lineage."""
        return Rejected(Reason.LINEAGE_CHANGED, lineage_metadata(self.lineage, expected))

    def _next_epoch(self) -> int:
        return max(self.writer_epoch, self.lineage.epoch_floor) + 1

    def holds_of(self, owner: str) -> int:
        """Holds of one identity."""
        return sum(hold.owner == owner for hold in self.holds.values())

    def put_hold(self, name: str, hold: Hold) -> None:
        """The hold of that name is this one from here on."""
        known = self.holds.get(name)
        if known is None or known.lsn != hold.lsn:
            self.holds_since[name] = hold.revision
        self.holds[name] = hold
        self.hold_changes += 1

    def drop_hold(self, name: str) -> None:
        """There is no hold of that name any more."""
        del self.holds[name]
        self.holds_since.pop(name, None)
        self.hold_changes += 1

    def retain(self, lsn: Lsn) -> Lsn:
        """Let records up to `lsn` go as far as the holds allow; returns what is truncated."""
        effective = self._as_held(lsn)
        self.requested_lsn = max(self.requested_lsn, effective)
        return self._truncate(effective)

    def settle_truncation(self) -> Lsn:
        """Let the requested truncation take effect as far as the holds allow; returns how far."""
        return self._truncate(self._as_held(self.requested_lsn))

    def _as_held(self, lsn: Lsn) -> Lsn:
        """`lsn`, or below the lowest hold."""
        return min([lsn, *(Lsn(hold.lsn - 1) for hold in self.holds.values())])

    def _truncate(self, effective: Lsn) -> Lsn:
        if effective > self.truncated_lsn:
            self.truncated_lsn = effective
            gone = bisect_right(self.rejected, effective, key=_last_lsn)
            del self.rejected[:gone]
            restoring = self.restoring
            if restoring is not None and restoring.mirror:
                base_lsn = Lsn(effective + 1)
                self.restoring = Restoring(base_lsn, restoring.end_lsn, restoring.digest)
        return self.truncated_lsn

    def reject(self, lsn: Lsn, count: int, reason: Reason) -> None:
        """`count` LSNs from `lsn` on, above all known ranges, hold no record."""
        if count > 0 and not self.closed_index:
            self.rejected.append(RejectedRange(lsn, count, reason))

    def rejected_between(self, low: Lsn, high: Lsn) -> tuple[RejectedRange, ...]:
        """The ranges that share an LSN with [low, high)."""
        first = bisect_left(self.rejected, low, key=_last_lsn)
        last = bisect_left(self.rejected, high, key=_first_lsn)
        return tuple(self.rejected[first:last])


def lineage_metadata(lineage: Lineage, expected: bytes) -> dict[str, str]:
    """For LINEAGE_CHANGED: what the log is, to somebody who `expected` another lineage."""
    return {
        "expected": expected.hex(),
        "actual": lineage.id.hex(),
        "number": str(lineage.number),
        "fork_lsn": str(lineage.fork_lsn),
    }


def _first_lsn(gap: RejectedRange) -> Lsn:
    return gap.first_lsn


def _last_lsn(gap: RejectedRange) -> Lsn:
    return Lsn(gap.next_lsn - 1)
