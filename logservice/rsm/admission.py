"""Admission: the leader judges an append before it gets an LSN, so that gaps stay rare.

The same rules in the same order as `LogRsm`, applied to what the state *will* be when the leader's
own uncommitted tail is applied. Three answers:

- `Admit`: append it now. INV-RSM-ADMIT: an admitted block, if its entry is committed, is applied.
  (Only if a session opened meanwhile evicts the block's own does it become a typed gap.)
- `Refuse`: the final answer, which rests on applied state only. It may be a success: the repetition
  of an applied sequence.
- `Park`: the answer depends on uncommitted entries, which a new leader could still replace. Wait
  until everything appended so far is applied, then ask again with the next LSN at that time. One
  wait is enough, unless a newer writer command came meanwhile. Every new block parks behind an
uncommitted Close, so that none ever lies behind a committed one.

INV-ADMIT-NEXT: the LSN that WRONG_EXPECTED_LSN names as the next one is behind everything that was
in the log when the block was first judged. So a wrong expectation is parked once, if anything is
uncommitted. Otherwise an earlier block of the same client could take the LSN that the client is
told to expect next.

What the shell must do:

1. `reset()` when leadership is gained or lost; ask nothing before the no-op of the term is applied.
2. Per admitted block `appended()`, per proposed command `command_appended()`, in log order, at
   once.
3. Ask parked requests again in order, in the same step of the loop that applied what they waited
   for.

Order: while a request of a session is parked, later requests of it are parked behind it. Otherwise
they would look like a gap.

It stays right while entries are applied one by one. What it remembers of an uncommitted block
stops counting once its position is applied (`lsn` against the applied LSN, `index` against the
applied index). So nothing has to be taken back, and `tail_applied` only returns memory. An append
costs two look-ups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import Reason

from logservice.bounds import (
    APPEND_TIME_US_MAX,
    REJECTED_RANGES_MAX,
    SESSION_EPOCH_BITS,
    SESSIONS_MAX,
)
from logservice.ids import Index, Lsn, SessionId
from logservice.outcome import Outcome, Rejected
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.commands import (
    CommandMalformed,
    begins_lineage,
    closes_log,
    decides_writer,
    decode,
)
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.restoring import problem
from logservice.rsm.sessions import SESSION_EXPIRED, sequence_gap


@dataclass(frozen=True, slots=True)
class Admit:
    """Append it."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with `outcome`; do not append it."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Park:
    """Ask again when everything appended so far is applied."""


Decision = Admit | Refuse | Park

ADMIT: Final = Admit()
PARK: Final = Park()

_EMPTY: Final = Refuse(Rejected(Reason.INVALID_ARGUMENT, {"field": "block"}))
_NOT_PROPOSED: Final = Refuse(Rejected(Reason.INVALID_ARGUMENT, {"field": "command"}))
_NOT_RESTORING: Final = Refuse(
    Rejected(Reason.VERB_REFUSED, {"why": "the log is not being restored"})
)
_GAPS_FULL: Final = Refuse(Rejected(Reason.BUSY, {"retry_after_ms": "1000"}))


class Admission:
    """One per replica; it looks at `rsm` and changes nothing in it."""

    __slots__ = (
        "_barrier",
        "_close_index",
        "_command_index",
        "_parked",
        "_restored_gaps",
        "_restored_us",
        "_rsm",
        "_tail",
        "_writer_index",
    )

    def __init__(self, rsm: LogRsm) -> None:
        """Nothing is uncommitted yet."""
        self._rsm = rsm
        # session -> (newest appended sequence, LSN after that block). True while the applied LSN is
        # below it.
        self._tail: dict[SessionId, tuple[int, Lsn]] = {}
        # session -> (LSN, index) up to which must be applied before its parked request is judged.
        self._parked: dict[SessionId, tuple[Lsn, Index]] = {}
        # Index of the newest appended command, of the newest that may change who may write, and of
        # the newest Close.
        self._command_index = Index(0)
        self._writer_index = Index(0)
        self._close_index = Index(0)
        # The append time that the newest block of a restore brought with it, and the gaps of the
        # restore that may not be applied yet.
        self._restored_us = 0
        self._restored_gaps = 0
        # Nothing can be judged before this index is applied; see `dropped`.
        self._barrier = Index(0)

    def reset(self) -> None:
        """Forget everything uncommitted: another term begins."""
        self._tail.clear()
        self._parked.clear()
        self._command_index = Index(0)
        self._writer_index = Index(0)
        self._close_index = Index(0)
        self._restored_us = 0
        self._restored_gaps = 0
        self._barrier = Index(0)

    def dropped(self, last_index: Index) -> None:
        """Something told as appended did not reach the log, which ends at `last_index`.

        What is uncommitted before it is still there, so guessing would be wrong in both directions:
        everything parks until the whole log is applied.
        """
        self.reset()
        self._barrier = last_index

    def admit(self, request: AppendRequest, lsn: Lsn, *, waited: bool = False) -> Decision:
        """Judge `request`, whose first record would get `lsn`, the next LSN of the leader's log.

        waited: it was parked before, until all that was appended then had been applied.
        """
        if self._rsm.state.applied_index < self._barrier:
            return PARK
        decision = self._judge(request, lsn, waited)
        if decision is PARK and request.session:
            self._parked.setdefault(request.session, (lsn, self._command_index))
        return decision

    def _judge(self, request: AppendRequest, lsn: Lsn, waited: bool) -> Decision:
        state = self._rsm.state
        if state.restoring is not None or request.restored:
            return self._judge_restored(request, lsn)
        if request.session:
            decision = self._judge_session(request)
            if decision is not None:
                return decision
        if state.closed_index:
            return Refuse(state.closed())
        if state.applied_index < self._close_index:
            return PARK
        uncertain = state.applied_index < self._writer_index
        if not state.admits(request.writer_epoch, request.claim.owner):
            # Epochs only grow: an older one stays refused whatever the tail brings.
            if uncertain and request.writer_epoch >= state.writer_epoch:
                return PARK
            return Refuse(state.fenced())
        if uncertain:
            return PARK
        expected = request.expected_lsn
        if expected and expected != lsn:
            # An expectation between the applied and the appended tail rests on uncommitted blocks.
            # Any other is wrong in every future of this log. The applied LSN is the newest that may
            # be revealed, and the next one only when nothing lies behind it (INV-ADMIT-NEXT).
            if state.next_lsn < lsn and (not waited or state.next_lsn <= expected < lsn):
                return PARK
            return Refuse(Rejected(Reason.WRONG_EXPECTED_LSN, {"next": str(state.next_lsn)}))
        if request.record_count < 1:
            return _EMPTY
        if len(state.rejected) >= REJECTED_RANGES_MAX:
            # An admitted block, too, can become a gap, so a full table stops all appends.
            return _GAPS_FULL
        return ADMIT

    def _judge_restored(self, request: AppendRequest, lsn: Lsn) -> Decision:
        """A block while the log is restored, or one of a restore. Each takes the very next LSN, so
        all of them come from one caller, who waits.
        """
        state = self._rsm.state
        if state.applied_index < max(self._close_index, self._writer_index):
            return PARK
        restoring = state.restoring
        if restoring is None:
            return _NOT_RESTORING
        refused = state.refuses_restored(
            request.session, request.claim.nonce, request.expected_lsn, lsn
        )
        if refused is not None:
            return Refuse(refused)
        count, sequence = request.record_count, request.sequence
        earlier = max(state.append_time_us, self._restored_us if state.next_lsn < lsn else 0)
        if problem(restoring, lsn, count, len(request.block), sequence) or (
            0 < request.append_time_us < earlier or request.append_time_us > APPEND_TIME_US_MAX
        ):
            return _EMPTY
        if state.next_lsn == lsn:
            self._restored_gaps = 0
        if sequence and len(state.rejected) + self._restored_gaps >= REJECTED_RANGES_MAX:
            return _GAPS_FULL
        return ADMIT

    def _judge_session(self, request: AppendRequest) -> Decision | None:
        """None: the next sequence of its session, as far as the tail goes."""
        state = self._rsm.state
        session, sequence = request.session, request.sequence
        row = state.session(session)
        if row is not None and not row.is_of(request.claim):
            # Judged before anything that is remembered of the session: the block is not of it.
            return Refuse(SESSION_EXPIRED)
        parked = self._parked.get(session)
        if parked is not None:
            if state.next_lsn < parked[0] or state.applied_index < parked[1]:
                return PARK
            del self._parked[session]
        if row is None:
            # OpenSession may be in the tail, not applied here yet: then a replica that applies
            # ahead of its leader has told the client of the session.
            if state.applied_index < session <= self._command_index:
                return PARK
            return Refuse(SESSION_EXPIRED)
        last = row.last_sequence
        if sequence <= last:
            return Refuse(row.repetition(sequence, request.block))
        if sequence >> SESSION_EPOCH_BITS > last >> SESSION_EPOCH_BITS and (
            state.applied_index < self._command_index
        ):
            # A later epoch of a named session, which may have been opened in the tail.
            return PARK
        tail = self._tail.get(session)
        if tail is not None and tail[1] > state.next_lsn:
            if sequence <= tail[0]:
                return PARK
            # A late block of an earlier epoch is no part of this one.
            last = max(last, tail[0])
        if sequence > last + 1:
            # A gap behind the tail is a gap whether the tail survives or not.
            return Refuse(sequence_gap(row.last_sequence))
        return None

    def appended(self, request: AppendRequest, lsn: Lsn) -> None:
        """An admitted block was appended at `lsn`."""
        if request.restored:
            self._restored_us = request.append_time_us
            self._restored_gaps += request.sequence > 0
        if request.session:
            tail = self._tail
            if len(tail) >= 2 * SESSIONS_MAX:
                self._drop_applied()
            tail[request.session] = (request.sequence, Lsn(lsn + request.record_count))

    def admit_command(self, command: bytes) -> Decision:
        """Refuse what no state could accept, and what no store proposes; all else is for apply to
        decide, in log order.
        """
        if begins_lineage(command):
            return _NOT_PROPOSED
        try:
            decode(command)
        except CommandMalformed as problem:
            return Refuse(Rejected(problem.error.reason, problem.error.metadata))
        return ADMIT

    def command_appended(self, command: bytes, index: Index) -> None:
        """An admitted command was appended as entry `index`."""
        self._command_index = index
        if decides_writer(command):
            self._writer_index = index
        elif closes_log(command):
            self._close_index = index

    def tail_applied(self) -> None:
        """Everything appended is applied: give memory back. It is safe to call this too early, or
        never.
        """
        self._drop_applied()

    def _drop_applied(self) -> None:
        applied = self._rsm.state.next_lsn
        self._tail = {session: tail for session, tail in self._tail.items() if tail[1] > applied}
