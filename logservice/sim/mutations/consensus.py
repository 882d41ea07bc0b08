"""Seeded bugs of consensus: elections, replication, commit, linearizable reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.nodehost.replica.reads import ReadBook
from logservice.raft import core, election, following
from logservice.raft.leading import reading, replication, sending
from logservice.raft.log.log import RaftLog
from logservice.raft.messages import Heartbeat
from logservice.raft.ready import ReadState
from logservice.raft.state import State
from logservice.raft.tracker.read_rounds import ReadRequest
from logservice.raft.tracker.tracker import Tracker, VoteResult
from logservice.sim.config import watch_leases
from logservice.sim.mutations.registry import mutation, mutation_in, wrap

# --- elections ------------------------------------------------------------------------------------


@mutation
def _votes_twice_in_a_term() -> None:
    def mutate(original: Any) -> Any:
        def handle_request(s: State, m: Any) -> None:
            if not m.pre:
                s.vote = m.sender
            original(s, m)

        return handle_request

    replace_handler(election.handle_request, mutate)


@mutation
def _votes_for_a_shorter_log() -> None:
    wrap(RaftLog, "up_to_date", lambda _: lambda *_: True)


@mutation
def _elected_by_a_minority() -> None:
    def record_vote(self: Tracker, voter: ReplicaId, granted: bool) -> VoteResult:
        self.votes.setdefault(voter, granted)
        yes = sum(self.votes.values())
        enough = yes >= max(1, len(self.config.voters) // 2)
        return VoteResult.WON if enough else VoteResult.PENDING

    wrap(Tracker, "record_vote", lambda _: record_vote)


@mutation
def _no_entry_at_the_start_of_a_term() -> None:
    def mutate(original: Any) -> Any:
        def append_own(self: State, kind: Any, count: int, payload: bytes) -> Any:
            if self.term_first_index == self.log.last_index + 1 and not payload:
                return None
            return original(self, kind, count, payload)

        return append_own

    wrap(State, "append_own", mutate)


# --- replication and commit -----------------------------------------------------------------------


@mutation
def _commits_an_entry_of_an_older_term() -> None:
    def maybe_commit(s: State) -> bool:
        index = s.tracker.committed()
        return index > s.log.committed and s.log.commit_to(index)

    wrap(replication, "maybe_commit", lambda _: maybe_commit)


@mutation
def _commits_with_a_minority() -> None:
    def committed(self: Tracker) -> Index:
        matches = sorted(progress.match for progress in self._incoming)
        return Index(matches[min(len(matches) - 1, (len(matches) + 1) >> 1)])

    wrap(Tracker, "committed", lambda _: committed)


@mutation
def _shorter_append_truncates() -> None:
    wrap(RaftLog, "first_new", lambda _: lambda *_: 0)


@mutation
def _acknowledges_although_the_log_differs() -> None:
    def mutate(original: Any) -> Any:
        def handle_append(s: State, m: Any) -> None:
            log = s.log
            if log.committed < m.prev_index <= log.last_index and not log.matches(
                m.prev_index, m.prev_term
            ):
                following._acknowledge(s, m.sender, m.prev_index)
                return
            original(s, m)

        return handle_append

    replace_handler(following.handle_append, mutate)


@mutation
def _follower_commits_beyond_what_matches() -> None:
    def mutate(original: Any) -> Any:
        def handle_append(s: State, m: Any) -> None:
            original(s, m)
            s.log.commit_to(min(m.commit, s.log.last_index))

        return handle_append

    replace_handler(following.handle_append, mutate)


@mutation
def _heartbeat_commits_beyond_what_matches() -> None:
    def send_heartbeat(s: State, to: ReplicaId, progress: Any, context: bytes) -> None:
        commit = Index(s.log.committed)
        s.messages.append(
            Heartbeat(to=to, sender=s.id, term=Term(s.term), commit=commit, context=context)
        )

    def handle(original: Any) -> Any:
        def handle_heartbeat(s: State, m: Any) -> None:
            original(s, replace(m, commit=Index(min(m.commit, s.log.last_index))))

        return handle_heartbeat

    wrap(sending, "send_heartbeat", lambda _: send_heartbeat)
    replace_handler(following.handle_heartbeat, handle)


@mutation
def _log_is_not_compared_before_an_append() -> None:
    def mutate(original: Any) -> Any:
        def handle_append(s: State, m: Any) -> None:
            if s.log.committed <= m.prev_index <= s.log.last_index:
                m = replace(m, prev_term=Term(s.log.term(m.prev_index)))
            original(s, m)

        return handle_append

    replace_handler(following.handle_append, mutate)


def replace_handler(function: Any, mutate: Callable[[Any], Any]) -> None:
    """Handlers of the core are in its tables, plain or inside a wrapper."""
    changed = mutate(function)
    found = 0
    for table, around in (
        (core._FOLLOWER, core._follow),
        (core._CANDIDATE, core._fall_back),
        (core._LEADER, core._fall_back),
    ):
        for kind, handler in list(table.items()):
            cells = getattr(handler, "__closure__", None) or ()
            if handler is function:
                table[kind] = changed
                found += 1
            elif any(cell.cell_contents is function for cell in cells):
                table[kind] = around(changed)
                found += 1
    if not found:
        raise LookupError(f"{function} is in no table of the core")


@mutation
def _lsn_of_an_entry_given_twice() -> None:
    def mutate(original: Any) -> Any:
        def append(self: RaftLog, entries: Sequence[Any]) -> None:
            original(self, entries)
            if entries[-1].record_count > 4:
                self.last_next_lsn = Lsn(self.last_next_lsn - 1)

        return append

    wrap(RaftLog, "append", mutate)


# --- reading --------------------------------------------------------------------------------------


@mutation
def _reads_without_asking_a_majority() -> None:
    wrap(reading, "_serve", lambda _: lambda s, request: reading._answer(s, request))


@mutation
def _reads_before_the_term_has_committed() -> None:
    def request(s: State, sender: ReplicaId, context: bytes) -> bool:
        reading._serve(s, ReadRequest(sender, context, Index(s.log.committed)))
        return True

    wrap(reading, "_request", lambda _: request)


@mutation
def _reads_before_the_index_is_applied() -> None:
    def mutate(original: Any) -> Any:
        def confirmed(self: ReadBook, states: tuple[ReadState, ...], applied: Index) -> None:
            original(self, tuple(replace(state, index=Index(0)) for state in states), applied)

        return confirmed

    wrap(ReadBook, "confirmed", mutate)


# --- leases ---------------------------------------------------------------------------------------


@mutation_in(watch_leases)
def _lease_never_ends() -> None:
    def lease_holds(s: State) -> bool:
        return s.config.lease_read and s.lease_from >= 0

    wrap(reading, "_lease_holds", lambda _: lease_holds)


@mutation_in(watch_leases)
def _lease_given_by_nobody() -> None:
    def lease_holds(s: State) -> bool:
        return s.config.lease_read and s.committed_in_term()

    wrap(reading, "_lease_holds", lambda _: lease_holds)


@mutation_in(watch_leases)
def _lease_counted_in_ticks() -> None:
    """A paused process counts none."""

    def mutate(original: Any) -> Any:
        def init(self: State, *arguments: Any) -> None:
            original(self, *arguments[:-1], None)
            self.lease_span = self.config.election_ticks * 3 // 4

        return init

    wrap(State, "__init__", mutate)
