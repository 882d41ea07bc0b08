"""Tests of the storms: a core with one broken rule must not survive them.

Each mutant breaks a rule that a safety property rests on. When a mutant lives through every seed
here, the storms or the checker have gone blind to that rule. A rule whose breach needs a rarer
chain of events has its own test, in `test_election`, `test_membership_change`, `test_log` or
`tests/paper`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logservice.entry import Entry
from logservice.ids import Index, Term
from logservice.invariants import InvariantViolation
from logservice.raft import core, election, following
from logservice.raft.core import Raft
from logservice.raft.leading import reading
from logservice.raft.log.log import RaftLog
from logservice.raft.messages import AppendEntries, AppendResponse, RequestVote
from logservice.raft.ready import Ready
from logservice.raft.state import State
from logservice.raft.tracker.progress import Progress
from tests.raft.storm import Storm

LIVES = 100
TICKS = 300

Patch = Callable[[pytest.MonkeyPatch], None]


def votes_for_older_logs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "up_to_date", lambda self, index, term: True)


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    original = election.handle_request

    def handle(s: State, m: RequestVote) -> None:
        if not m.pre:
            s.vote = m.sender
        original(s, m)

    for table in (core._LEADER, core._CANDIDATE, core._FOLLOWER):
        patch.setitem(table, RequestVote, handle)


def leader_counts_itself_early(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(s: State) -> None:
        own = s.tracker.progress.get(s.id)
        if own is not None:
            own.maybe_update(s.log.last_index)
        s.messages_after_append.append(
            AppendResponse(to=s.id, sender=s.id, term=Term(s.term), index=Index(s.log.last_index))
        )

    patch.setattr(State, "acknowledge_own", acknowledge)


def acknowledges_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    original = Raft.take_ready

    def take_ready(self: Raft) -> Ready | None:
        s = self._state
        early = [
            m for m in s.messages_after_append if isinstance(m, AppendResponse) and m.to != s.id
        ]
        s.messages += early
        s.messages_after_append = [m for m in s.messages_after_append if m not in early]
        return original(self)

    patch.setattr(Raft, "take_ready", take_ready)


def applies_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "appliable", lambda self: self.committed)


def appends_without_a_match(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        RaftLog,
        "matches",
        lambda self, index, term: index <= self.last_index,
    )


def commits_beyond_what_it_was_sent(patch: pytest.MonkeyPatch) -> None:
    original = following.handle_append

    def handle(s: State, m: AppendEntries) -> None:
        original(s, m)
        s.log.commit_to(min(m.commit, s.log.last_index))

    patch.setitem(core._FOLLOWER, AppendEntries, core._follow(handle))


def reads_without_asking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "_lease_holds", lambda s: True)


def reads_before_its_no_op(patch: pytest.MonkeyPatch) -> None:
    original = reading._request

    def request(s: State, *arguments: object) -> bool:
        first, s.term_first_index = s.term_first_index, 1
        try:
            return original(s, *arguments)  # type: ignore[arg-type]
        finally:
            s.term_first_index = first

    patch.setattr(reading, "_request", request)


def assigns_lsns_from_the_committed_tail(patch: pytest.MonkeyPatch) -> None:
    original = RaftLog.append

    def append(self: RaftLog, entries: list[Entry]) -> None:
        original(self, entries)
        self.last_next_lsn = entries[-1].lsn

    patch.setattr(RaftLog, "append", append)


def trusts_any_answer(patch: pytest.MonkeyPatch) -> None:
    def maybe_update(self: Progress, index: int) -> bool:
        self.match = max(self.match, self.next - 1)
        self.next = max(self.next, self.match + 1)
        self.flow_paused = False
        return True

    patch.setattr(Progress, "maybe_update", maybe_update)


MUTANTS: list[Patch] = [
    votes_for_older_logs,
    votes_twice,
    leader_counts_itself_early,
    acknowledges_before_the_disk,
    applies_before_the_disk,
    appends_without_a_match,
    commits_beyond_what_it_was_sent,
    reads_without_asking,
    reads_before_its_no_op,
    assigns_lsns_from_the_committed_tail,
    trusts_any_answer,
]


def killed_by(lives: int) -> int | None:
    """The first seed whose life shows that something is broken."""
    for seed in range(lives):
        storm = Storm(seed)
        try:
            storm.run(TICKS)
        except (AssertionError, InvariantViolation):
            return seed
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_core_does_not_survive(mutant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert killed_by(LIVES) is not None
