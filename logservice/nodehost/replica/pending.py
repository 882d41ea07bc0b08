"""PendingBook: proposals that are in the log and wait for their outcome.

A proposal is known by the (index, term) of its entry and its place in it, never by index alone. The
rule that makes outcomes certain (G5): after a loss of leadership a pending proposal is *unknown*
until a committed entry fills its index. If that entry has the proposal's term, it is the proposal's
own and its outcome is the state machine's; if it has another term, the proposal is definitely not
applied.

The book also times the appends in it (`append_stages`): it knows when each entry was proposed, and
is told when entries are committed and applied.

INV-PENDING-1: an entry's outcomes come in the order, and under the proposal ids, of its proposals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from logservice_wire.errors import DeadlineExceeded, LogServiceError, NotLeader, UnknownOutcome

from logservice.entry import Entry
from logservice.envelope import NO_PROPOSAL, ProposalId
from logservice.invariants import invariant
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.outcome import Applied, Outcome, Rejected

_NOT_TIMED: Final = -1.0
"""Stands for the moment of what is no append; a clock never says it."""


@dataclass(slots=True)
class Pending:
    """One caller that waits. `size` is what it takes of the byte bound. `received_s`: when an
    append was received.
    """

    future: asyncio.Future[Applied]
    deadline_s: float
    size: int
    proposal: ProposalId = NO_PROPOSAL
    received_s: float = _NOT_TIMED

    def resolve(self, outcome: Outcome) -> None:
        """Answer the caller with `outcome`, unless it is gone."""
        if self.future.done():
            return
        if isinstance(outcome, Rejected):
            self.future.set_exception(outcome.error())
        else:
            self.future.set_result(outcome)

    def fail(self, error: LogServiceError) -> None:
        """Answer the caller with an error, unless it is gone."""
        if not self.future.done():
            # Without the frames that it left: one of them may know the request and this future,
            # and that cycle would wait for the collector, which comes seldom.
            self.future.set_exception(error.with_traceback(None))


class PendingBook:
    """For each index, the term that its entry was proposed in, its proposals in order, and when it
    was proposed, if they are appends.
    """

    def __init__(self, stages: AppendStages) -> None:
        """Nobody waits yet."""
        self.stages = stages
        self._by_index: dict[int, tuple[int, Sequence[Pending], float]] = {}
        self._committed = 0
        self._commits: list[tuple[int, float]] = []
        """The commit indexes that were told, and when, ascending; those below what is applied are
        let go."""
        self.count = 0
        self.bytes = 0

    def register(self, index: int, term: int, items: Sequence[Pending]) -> None:
        """`items` are the proposals of the entry just appended at (index, term)."""
        replaced = self._by_index.pop(index, None)
        if replaced is not None:
            # This replica led before, lost its tail, and leads again: the old entry at this index
            # was cut from every log that could still commit it.
            self._release(replaced[1])
            for item in replaced[1]:
                item.fail(NotLeader("the entry was replaced by another leader's"))
        self._by_index[index] = (term, items, self._proposed(items))
        self.count += len(items)
        self.bytes += sum(item.size for item in items)

    def _proposed(self, items: Sequence[Pending]) -> float:
        if not items or items[0].received_s < 0:
            return _NOT_TIMED
        now_s = self.stages.now()
        self.stages.queue.add_all([int((now_s - item.received_s) * 1e6) for item in items])
        return now_s

    def committed(self, index: int) -> None:
        """Everything up to `index` is committed; needed only while somebody waits."""
        if index > self._committed:
            self._committed = index
            self._commits.append((index, self.stages.now()))

    def _time(self, items: Sequence[Pending], proposed_s: float) -> None:
        """The appends of the entry that is being applied have gone through all stages."""
        stages = self.stages
        now_s = stages.now()
        committed_s = self._commits[0][1] if self._commits else now_s
        stages.replicate.add(int((committed_s - proposed_s) * 1e6), len(items))
        stages.apply.add(int((now_s - committed_s) * 1e6), len(items))
        stages.whole.add_all([int((now_s - item.received_s) * 1e6) for item in items])

    def applied(self, entry: Entry, outcomes: Sequence[tuple[ProposalId, Outcome]]) -> None:
        """A committed entry was applied: answer whoever waited for its index."""
        commits = self._commits
        while commits and commits[0][0] < entry.index:
            commits.pop(0)
        found = self._by_index.pop(entry.index, None)
        if found is None:
            return
        term, items, proposed_s = found
        self._release(items)
        if term != entry.term:
            for item in items:
                item.fail(NotLeader("another leader's entry was committed in its place"))
            return
        invariant(
            [proposal for proposal, _ in outcomes] == [item.proposal for item in items],
            "INV-PENDING-1",
            index=entry.index,
            term=term,
        )
        if proposed_s >= 0:
            self._time(items, proposed_s)
        for item, (_, outcome) in zip(items, outcomes, strict=True):
            item.resolve(outcome)

    def settle(self, index: int, term: int, outcome: Outcome) -> None:
        """Like `applied` for an entry whose outcome the shell knows (a membership change)."""
        found = self._by_index.pop(index, None)
        if found is None:
            return
        self._release(found[1])
        for item in found[1]:
            if found[0] == term:
                item.resolve(outcome)
            else:
                item.fail(NotLeader("another leader's entry was committed in its place"))

    def skipped(self, index: int) -> None:
        """A snapshot jumped over everything up to `index`: those outcomes cannot be known here."""
        for waiting in [waiting for waiting in self._by_index if waiting <= index]:
            items = self._by_index.pop(waiting)[1]
            self._release(items)
            for item in items:
                item.fail(UnknownOutcome("the replica caught up by a snapshot"))

    def expire(self, now_s: float) -> None:
        """Answer callers whose deadline passed; their entries stay in the log.

        An index for which nobody waits any more is forgotten: after a loss of leadership the log
        may not reach it again for long, and the bounds would refuse others meanwhile.
        """
        forgotten = []
        for index, (_, items, _) in self._by_index.items():
            for item in items:
                if item.deadline_s <= now_s:
                    item.fail(DeadlineExceeded())
            if all(item.future.done() for item in items):
                forgotten.append(index)
        for index in forgotten:
            self._release(self._by_index.pop(index)[1])

    def fail_all(self, error: LogServiceError) -> None:
        """The replica stops."""
        for _, items, _ in self._by_index.values():
            for item in items:
                item.fail(error)
        self._by_index.clear()
        self.count = 0
        self.bytes = 0

    def _release(self, items: Sequence[Pending]) -> None:
        self.count -= len(items)
        self.bytes -= sum(item.size for item in items)
