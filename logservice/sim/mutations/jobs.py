"""Seeded bugs of named sessions, and of what jobs rely on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice import versions
from logservice.bounds import SESSION_EPOCH_BITS
from logservice.outcome import Applied, Rejected
from logservice.owner import owner_digest
from logservice.rsm import named_sessions
from logservice.rsm.admission import Admission
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.named_sessions import NamedSession, NamedSessions
from logservice.rsm.sessions import SESSION_EXPIRED, Session
from logservice.rsm.snapshot_codec import encode_state
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange


def _with_jobs(config: SimConfig) -> None:
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.jobs = True


def _with_forks(config: SimConfig) -> None:
    _with_jobs(config)
    config.forks = True


def _with_few_names(config: SimConfig) -> None:
    _with_jobs(config)
    config.names_max = 3


def _opening(change: Any) -> None:
    """`change(table, row, epoch, content, stamp_us)` comes before a known name is opened."""

    def mutate(original: Any) -> Any:
        def open_name(
            self: NamedSessions, index: Any, command: Any, now_us: int, closed: Any
        ) -> Any:
            owner = owner_digest(command.author.identity)
            session = self._ids.get((owner, named_sessions.nonce_of(command.name)))
            if session is not None and not self._rows[session].lost:
                change(self._rows[session], command.epoch, command.content, command.stamp_us)
            return original(self, index, command, now_us, closed)

        return open_name

    wrap(NamedSessions, "open", mutate)


@mutation_in(_with_jobs)
def _epoch_of_a_name_may_go_back() -> None:
    def change(row: NamedSession, epoch: int, content: bytes, stamp_us: int) -> None:
        if epoch < row.epoch:
            row.begin(epoch, content, stamp_us)

    _opening(change)


@mutation_in(_with_jobs)
def _content_of_an_epoch_is_not_compared() -> None:
    def change(row: NamedSession, epoch: int, content: bytes, stamp_us: int) -> None:
        if epoch == row.epoch:
            row.content = content

    _opening(change)


@mutation_in(_with_jobs)
def _stamp_is_that_of_the_second_opener() -> None:
    def change(row: NamedSession, epoch: int, content: bytes, stamp_us: int) -> None:
        if (epoch, content) == (row.epoch, row.content):
            row.stamp_us = stamp_us

    _opening(change)


@mutation_in(_with_jobs)
def _epoch_that_is_opened_again_begins_anew() -> None:
    def change(row: NamedSession, epoch: int, content: bytes, stamp_us: int) -> None:
        if (epoch, content) == (row.epoch, row.content):
            row.begin(epoch, content, row.stamp_us)

    _opening(change)


@mutation_in(_with_jobs)
def _window_is_kept_over_an_epoch() -> None:
    def begin(self: NamedSession, epoch: int, content: bytes, stamp_us: int) -> None:
        self.last_sequence = named_sessions.first_of(epoch)
        self.content, self.stamp_us = content, stamp_us

    wrap(NamedSession, "begin", lambda _: begin)


@mutation_in(_with_jobs)
def _block_before_the_window_counts_as_a_repetition() -> None:
    """As one of the oldest block there."""

    def mutate(original: Any) -> Any:
        def repetition(self: Session, sequence: int, block: Any) -> Any:
            outcome = original(self, sequence, block)
            if outcome is SESSION_EXPIRED and isinstance(self, NamedSession) and self.window:
                lsn, count, _, append_time_us = self.window[0]
                return Applied(lsn=lsn, count=count, value=append_time_us, duplicate=True)
            return outcome

        return repetition

    wrap(Session, "repetition", mutate)


@mutation_in(_with_jobs)
def _epoch_of_a_block_is_not_looked_at() -> None:
    def moved(state: Any, block: Any) -> Any:
        row = state.named.get(block.session)
        if row is None or row.lost:
            return block
        number = block.sequence & ((1 << SESSION_EPOCH_BITS) - 1)
        return replace(block, sequence=named_sessions.first_of(row.epoch) | number)

    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, entry: Any) -> Any:
            return original(self, moved(self.state, block), lsn, entry)

        return apply_block

    def judge(original: Any) -> Any:
        def judge_session(self: Admission, request: Any) -> Any:
            return original(self, moved(self._rsm.state, request))

        return judge_session

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge_session", judge)


@mutation_in(_with_jobs)
def _named_session_gives_way_to_another() -> None:
    def make_room(self: NamedSessions, owner: bytes, now_us: int) -> None:
        if len(self._rows) > 1:
            session, row = min(self._rows.items(), key=lambda item: item[1].last_used)
            self._drop(session, row)
            self._one_less(row.owner)

    wrap(NamedSessions, "_make_room", lambda _: make_room)


@mutation_in(_with_few_names)
def _named_session_goes_before_its_time() -> None:
    def mutate(original: Any) -> Any:
        def make_room(self: NamedSessions, owner: bytes, now_us: int) -> Any:
            return original(self, owner, now_us + 3_600_000_000)

        return make_room

    wrap(NamedSessions, "_make_room", mutate)


@mutation_in(_with_few_names)
def _named_session_goes_without_a_time() -> None:
    def mutate(original: Any) -> Any:
        def make_room(self: NamedSessions, owner: bytes, now_us: int) -> Any:
            for row in self._rows.values():
                row.ttl_s = row.ttl_s or 1
            return original(self, owner, now_us)

        return make_room

    wrap(NamedSessions, "_make_room", mutate)


@mutation_in(_with_forks)
def _named_session_is_kept_through_a_fork() -> None:
    wrap(NamedSessions, "lose_all", lambda _: lambda _self: None)


@mutation_in(_with_forks)
def _named_session_begins_anew_behind_a_fork() -> None:
    def lose_all(self: NamedSessions) -> None:
        self._rows.clear()
        self._ids.clear()
        self._live.clear()

    wrap(NamedSessions, "lose_all", lambda _: lose_all)


@mutation_in(_with_jobs)
def _named_sessions_missing_from_the_snapshot() -> None:
    def save_snapshot(self: LogRsm) -> bytes:
        return encode_state(replace(self.state, named=NamedSessions()))

    wrap(LogRsm, "save_snapshot", lambda _: save_snapshot)


@mutation_in(_with_jobs)
def _name_is_one_for_all_identities() -> None:
    """Whoever has opened it first has it; others are told of it, and change it."""

    def mutate(original: Any) -> Any:
        return lambda _identity: original("")

    wrap(named_sessions, "owner_digest", mutate)


@mutation_in(_with_jobs)
def _opening_tells_of_a_block_too_many() -> None:
    def mutate(original: Any) -> Any:
        return property(lambda self: original.fget(self) + (self.last_sequence % 5 == 2))

    wrap(NamedSession, "appended", mutate)


@mutation_in(_with_jobs)
def _differing_attempt_is_told_that_it_is_late() -> None:
    def mutate(original: Any) -> Any:
        def open_name(self: NamedSessions, *given: Any) -> Any:
            outcome = original(self, *given)
            differs = isinstance(outcome, Rejected) and outcome.reason.value == "SEQUENCE_REUSED"
            return SESSION_EXPIRED if differs else outcome

        return open_name

    wrap(NamedSessions, "open", mutate)
