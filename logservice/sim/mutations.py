"""The seeded bugs, by name: each function breaks one rule of the product, in this process.

Each is a bug that a system like this one has had, or that its design warns of. Replaced are
functions where they are looked up, so a mutation that no longer fits fails loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from logservice.ids import NO_SESSION, Index, Lsn, ReplicaId, Term
from logservice.logdb import log_db, recovery
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment import SegmentFiles
from logservice.logdb.segment_writer import SegmentWriter
from logservice.membership import Membership
from logservice.nodehost import engine
from logservice.nodehost.exports import ExportedSnapshots
from logservice.nodehost.heartbeats import HeartbeatSender
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.pending import PendingBook
from logservice.nodehost.reads import ReadBook
from logservice.nodehost.replica import Replica
from logservice.outcome import Applied
from logservice.raft import election, following, reading, replication, sending
from logservice.raft.log import RaftLog
from logservice.raft.messages import AppendResponse, Heartbeat, VoteResponse
from logservice.raft.quorum import VoteResult
from logservice.raft.read_rounds import ReadRequest
from logservice.raft.ready import ReadState, Role
from logservice.raft.state import State
from logservice.raft.tracker import Tracker
from logservice.rsm.admission import Admission
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import Session, SessionTable
from logservice.rsm.snapshot_codec import encode_state
from logservice.rsm.state import LogState

MUTATIONS: dict[str, Callable[[], None]] = {}


def _mutation(apply: Callable[[], None]) -> Callable[[], None]:
    MUTATIONS[apply.__name__.strip("_").replace("_", "-")] = apply
    return apply


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by `make(original)`."""
    setattr(owner, name, make(getattr(owner, name)))


class _Without:
    """Passes everything on but for some calls, which do nothing."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return lambda *_: None
        return getattr(self._inner, name)


# --- promises before the disk has them ------------------------------------------------------------


@_mutation
def _vote_request_before_its_term_is_durable() -> None:
    def make(original: Any) -> Any:
        def accept(self: Replica, ready: Any) -> Any:
            accepted = original(self, ready)
            held, self._held = self._held, []
            for message in held:
                self._host.send(self, message)
            return accepted

        return accept

    _wrap(Replica, "_accept", make)


@_mutation
def _vote_before_it_is_durable() -> None:
    def answer(s: State, to: ReplicaId, term: Term, *, pre: bool, reject: bool) -> None:
        s.messages.append(VoteResponse(to=to, sender=s.id, term=term, reject=reject, pre=pre))

    _wrap(election, "_answer", lambda _: answer)
    # The shell would hold it back otherwise.
    _vote_request_before_its_term_is_durable()


@_mutation
def _acknowledgement_before_it_is_durable() -> None:
    def acknowledge(s: State, to: ReplicaId, index: int) -> None:
        s.messages.append(AppendResponse(to=to, sender=s.id, term=Term(s.term), index=Index(index)))

    _wrap(following, "_acknowledge", lambda _: acknowledge)


@_mutation
def _self_acknowledgement_before_fsync() -> None:
    def make(original: Any) -> Any:
        def acknowledge_own(self: State) -> None:
            own = self.tracker.progress.get(self.id)
            if own is not None:
                own.maybe_update(self.log.last_index)
                self.log.hand_out_unstable = False
                replication.maybe_commit(self)
            original(self)

        return acknowledge_own

    _wrap(State, "acknowledge_own", make)


@_mutation
def _no_fsync() -> None:
    def make(original: Any) -> Any:
        def write(self: SegmentWriter, group: Any, kv: Any) -> None:
            files, self._files = self._files, _Files(self._files, "fdatasync")  # type: ignore
            try:
                original(self, group, kv)
            finally:
                self._files = files

        return write

    _wrap(SegmentWriter, "write", make)


@_mutation
def _new_segment_without_directory_fsync() -> None:
    def make(original: Any) -> Any:
        def write(self: SegmentWriter, group: Any, kv: Any) -> None:
            files, self._files = self._files, _Files(self._files, "fsync_directory")  # type: ignore
            try:
                original(self, group, kv)
            finally:
                self._files = files

        return write

    _wrap(SegmentWriter, "write", make)


class _Files(_Without):
    """Segment files on a file system that leaves one call out."""

    def __init__(self, files: SegmentFiles, name: str) -> None:
        super().__init__(files)
        self.vfs = _Without(files.vfs, name)


@_mutation
def _vote_not_in_the_commit_group() -> None:
    def make(original: Any) -> Any:
        def accept(self: Replica, ready: Any) -> Any:
            accepted = original(self, ready)
            if accepted.update is None:
                return accepted
            return replace(accepted, update=replace(accepted.update, hard_state=None))

        return accept

    _wrap(Replica, "_accept", make)


@_mutation
def _merged_updates_forget_the_vote() -> None:
    def make(original: Any) -> Any:
        def merge(earlier: Any, later: Any) -> Any:
            together = original(earlier, later)
            return together and replace(together, hard_state=later.hard_state)

        return merge

    _wrap(engine, "merge", make)


@_mutation
def _unsynced_tail_kept_after_a_restart() -> None:
    def make(original: Any) -> Any:
        def cut(self: SegmentFiles, segment: int, size: int, tail: int | None = None) -> None:
            vfs, self.vfs = self.vfs, _Without(self.vfs, "fdatasync")
            try:
                original(self, segment, size)
            finally:
                self.vfs = vfs

        return cut

    _wrap(SegmentFiles, "cut", make)


@_mutation
def _tail_of_a_failed_fsync_trusted() -> None:
    def make(original: Any) -> Any:
        def cut(self: SegmentFiles, segment: int, size: int, tail: int | None = None) -> None:
            original(self, segment, size)

        return cut

    _wrap(SegmentFiles, "cut", make)


@_mutation
def _recovery_drops_the_newest_group() -> None:
    def make(original: Any) -> Any:
        def judge(*arguments: Any) -> Any:
            return original(*arguments)[:-1]

        return judge

    _wrap(recovery, "_judge", make)


@_mutation
def _rewritten_entries_replayed_as_an_overwrite() -> None:
    def make(original: Any) -> Any:
        def runs_of_entries(state: Any, entries: Any) -> Any:
            runs = original(state, entries)
            for run in runs:
                run.write_sequence += 1 << 30
            return runs

        return runs_of_entries

    _wrap(log_db, "runs_of_entries", make)


# --- elections ------------------------------------------------------------------------------------


@_mutation
def _votes_twice_in_a_term() -> None:
    def make(original: Any) -> Any:
        def handle_request(s: State, m: Any) -> None:
            if not m.pre:
                s.vote = m.sender
            original(s, m)

        return handle_request

    _wrap(election, "handle_request", make)


@_mutation
def _votes_for_a_shorter_log() -> None:
    _wrap(RaftLog, "up_to_date", lambda _: lambda *_: True)


@_mutation
def _elected_by_a_minority() -> None:
    def record_vote(self: Tracker, voter: ReplicaId, granted: bool) -> VoteResult:
        self.votes.setdefault(voter, granted)
        yes = sum(self.votes.values())
        enough = yes >= max(1, len(self.config.voters) // 2)
        return VoteResult.WON if enough else VoteResult.PENDING

    _wrap(Tracker, "record_vote", lambda _: record_vote)


@_mutation
def _no_entry_at_the_start_of_a_term() -> None:
    def make(original: Any) -> Any:
        def append_own(self: State, kind: Any, count: int, payload: bytes) -> Any:
            if self.term_first_index == self.log.last_index + 1 and not payload:
                return None
            return original(self, kind, count, payload)

        return append_own

    _wrap(State, "append_own", make)


# --- replication and commit -----------------------------------------------------------------------


@_mutation
def _commits_an_entry_of_an_older_term() -> None:
    def maybe_commit(s: State) -> bool:
        index = s.tracker.committed()
        return index > s.log.committed and s.log.commit_to(index)

    _wrap(replication, "maybe_commit", lambda _: maybe_commit)


@_mutation
def _commits_with_a_minority() -> None:
    def committed(self: Tracker) -> Index:
        matches = sorted(progress.match for progress in self._incoming)
        return Index(matches[min(len(matches) - 1, (len(matches) + 1) >> 1)])

    _wrap(Tracker, "committed", lambda _: committed)


@_mutation
def _shorter_append_truncates() -> None:
    _wrap(RaftLog, "first_new", lambda _: lambda *_: 0)


@_mutation
def _acknowledges_more_than_was_sent() -> None:
    def acknowledge(s: State, to: ReplicaId, index: int) -> None:
        s.messages_after_append.append(
            AppendResponse(to=to, sender=s.id, term=Term(s.term), index=Index(s.log.last_index))
        )

    _wrap(following, "_acknowledge", lambda _: acknowledge)


@_mutation
def _follower_commits_beyond_what_matches() -> None:
    def make(original: Any) -> Any:
        def handle_append(s: State, m: Any) -> None:
            original(s, m)
            s.log.commit_to(min(m.commit, s.log.last_index))

        return handle_append

    _replace_handler(following.handle_append, make)


@_mutation
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

    _wrap(sending, "send_heartbeat", lambda _: send_heartbeat)
    _replace_handler(following.handle_heartbeat, handle)


@_mutation
def _log_is_not_compared_before_an_append() -> None:
    def make(original: Any) -> Any:
        def handle_append(s: State, m: Any) -> None:
            if s.log.committed <= m.prev_index <= s.log.last_index:
                m = replace(m, prev_term=Term(s.log.term(m.prev_index)))
            original(s, m)

        return handle_append

    _replace_handler(following.handle_append, make)


def _replace_handler(function: Any, make: Callable[[Any], Any]) -> None:
    """Handlers of the core are in its tables, inside a wrapper that knows them by `handle`."""
    from logservice.raft import core

    changed = make(function)
    for table, wrap in (
        (core._FOLLOWER, core._follow),
        (core._CANDIDATE, core._fall_back),
    ):
        for kind, handler in list(table.items()):
            cells = getattr(handler, "__closure__", None) or ()
            if any(cell.cell_contents is function for cell in cells):
                table[kind] = wrap(changed)


@_mutation
def _lsn_of_an_entry_given_twice() -> None:
    def make(original: Any) -> Any:
        def append(self: RaftLog, entries: Sequence[Any]) -> None:
            original(self, entries)
            if entries[-1].record_count > 4:
                self.last_next_lsn = Lsn(self.last_next_lsn - 1)

        return append

    _wrap(RaftLog, "append", make)


# --- reading --------------------------------------------------------------------------------------


@_mutation
def _reads_without_asking_a_majority() -> None:
    _wrap(reading, "_serve", lambda _: lambda s, request: reading._answer(s, request))


@_mutation
def _reads_before_the_term_has_committed() -> None:
    def request(s: State, sender: ReplicaId, context: bytes) -> bool:
        reading._serve(s, ReadRequest(sender, context, Index(s.log.committed)))
        return True

    _wrap(reading, "_request", lambda _: request)


@_mutation
def _reads_before_the_index_is_applied() -> None:
    def make(original: Any) -> Any:
        def confirmed(self: ReadBook, states: tuple[ReadState, ...], applied: Index) -> None:
            original(self, tuple(replace(state, index=Index(0)) for state in states), applied)

        return confirmed

    _wrap(ReadBook, "confirmed", make)


# --- requests, sessions, fencing ------------------------------------------------------------------


@_mutation
def _request_completed_by_index_alone() -> None:
    def applied(self: PendingBook, entry: Any, outcomes: Any) -> None:
        found = self._by_index.pop(entry.index, None)
        if found is None:
            return
        self._release(found[1])
        for item in found[1]:
            item.resolve(Applied(lsn=entry.lsn, count=entry.record_count, value=entry.index))

    _wrap(PendingBook, "applied", lambda _: applied)


@_mutation
def _repetition_is_appended_again() -> None:
    def make(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            return original(self, replace(block, session=NO_SESSION), lsn, index)

        return apply_block

    _wrap(LogRsm, "_apply_block", make)
    _wrap(Admission, "_judge_session", lambda _: lambda *_: None)


@_mutation
def _gap_in_a_session_is_accepted() -> None:
    def make(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            row = self._state.sessions.get(block.session)
            if row is not None and block.sequence > row.last_sequence + 1:
                row.last_sequence = block.sequence - 1
            return original(self, block, lsn, index)

        return apply_block

    def judge(original: Any) -> Any:
        def judge_session(self: Admission, session: Any, sequence: int) -> Any:
            row = self._rsm.session(session)
            if row is not None and sequence > row.last_sequence:
                return None
            return original(self, session, sequence)

        return judge_session

    _wrap(LogRsm, "_apply_block", make)
    _wrap(Admission, "_judge_session", judge)


@_mutation
def _repetition_answered_with_another_lsn() -> None:
    def make(original: Any) -> Any:
        def repetition(self: Session, sequence: int) -> Any:
            return original(self, min(sequence + 1, self.last_sequence))

        return repetition

    _wrap(Session, "repetition", make)


@_mutation
def _sessions_missing_from_the_snapshot() -> None:
    def save_snapshot(self: LogRsm) -> bytes:
        return encode_state(replace(self._state, sessions=SessionTable()))

    _wrap(LogRsm, "save_snapshot", lambda _: save_snapshot)


@_mutation
def _fence_not_checked_at_apply() -> None:
    def make(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            epoch = self._state.writer_epoch
            return original(self, replace(block, writer_epoch=epoch), lsn, index)

        return apply_block

    _wrap(LogRsm, "_apply_block", make)
    _wrap(Admission, "_judge", _unfenced)


def _unfenced(original: Any) -> Any:
    def judge(self: Admission, request: Any, lsn: Any) -> Any:
        return original(self, replace(request, writer_epoch=self._rsm.state.writer_epoch), lsn)

    return judge


@_mutation
def _truncation_is_not_fenced() -> None:
    def make(original: Any) -> Any:
        def truncate(self: LogRsm, command: Any) -> Any:
            return original(self, replace(command, writer_epoch=self._state.writer_epoch))

        return truncate

    _wrap(LogRsm, "_truncate", make)


@_mutation
def _writer_epoch_granted_twice() -> None:
    def make(original: Any) -> Any:
        def grant_writer(self: LogState, holder: str) -> int:
            before = self.writer_epoch
            return (
                max(1, before)
                if before and not original(self, holder)
                else original(self, holder) and max(1, before)
            )

        return grant_writer

    _wrap(LogState, "grant_writer", make)


@_mutation
def _expected_lsn_is_not_checked() -> None:
    def make(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            return original(self, replace(block, expected_lsn=Lsn(0)), lsn, index)

        return apply_block

    def judge(original: Any) -> Any:
        def unexpected(self: Admission, request: Any, lsn: Any) -> Any:
            return original(self, replace(request, expected_lsn=Lsn(0)), lsn)

        return unexpected

    _wrap(LogRsm, "_apply_block", make)
    _wrap(Admission, "_judge", judge)


@_mutation
def _timestamps_overlap() -> None:
    def make(original: Any) -> Any:
        def apply(self: LogRsm, command: Any, entry: Any) -> Any:
            outcome = original(self, command, entry)
            if type(command).__name__ == "AllocateTimestamps":
                self._state.next_timestamp -= 1
            return outcome

        return apply

    _wrap(LogRsm, "_apply", make)


@_mutation
def _refused_block_leaves_no_gap() -> None:
    _wrap(LogState, "reject", lambda _: lambda *_: None)


# --- snapshots and truncation ---------------------------------------------------------------------


@_mutation
def _truncation_ignores_holds() -> None:
    def make(original: Any) -> Any:
        def settle(self: LogState) -> Any:
            holds, self.holds = self.holds, {}
            try:
                return original(self)
            finally:
                self.holds = holds

        return settle

    _wrap(LogState, "settle_truncation", make)


@_mutation
def _snapshot_above_the_truncation_lsn_installed() -> None:
    def largest(self: ExportedSnapshots, shard: Any, replica: Any, truncation_lsn: Lsn) -> Any:
        exports = self._read(shard, replica)
        return exports[0].index if exports else None

    _wrap(ExportedSnapshots, "largest_at_or_below", lambda _: largest)


@_mutation
def _membership_missing_from_the_snapshot() -> None:
    def make(original: Any) -> Any:
        def applied_snapshot(self: Replica) -> Any:
            return replace(original(self), membership=Membership())

        return applied_snapshot

    _wrap(Replica, "applied_snapshot", make)


@_mutation
def _snapshot_taken_and_state_machine_not_restored() -> None:
    def make(original: Any) -> Any:
        def recovered(self: Replica, snapshot: Any) -> None:
            self.state_machine = _Without(self.state_machine, "recover_from_snapshot")
            original(self, snapshot)
            self.state_machine = self.state_machine._inner

        return recovered

    _wrap(Replica, "_recovered", make)


@_mutation
def _snapshot_of_another_index_started_from() -> None:
    def make(original: Any) -> Any:
        def newest(self: ExportedSnapshots, shard: Any, replica: Any) -> Any:
            snapshot = original(self, shard, replica)
            return snapshot and replace(snapshot, index=Index(snapshot.index - 1))

        return newest

    _wrap(NodeHost, "_run", lambda original: partial_export(original, make))


def partial_export(original: Any, make: Callable[[Any], Any]) -> Any:
    """`NodeHost._run` with another answer to what the newest export is."""

    def run(self: NodeHost, shard: Any, replica: Any) -> None:
        newest = self._newest_export
        owner = newest.__self__  # type: ignore[attr-defined]
        self._newest_export = partial(make(type(owner).newest), owner)
        try:
            original(self, shard, replica)
        finally:
            self._newest_export = newest

    return run


# --- identity -------------------------------------------------------------------------------------


@_mutation
def _old_id_reborn_on_an_empty_disk() -> None:
    async def start(self: HeartbeatSender, command: Any) -> None:
        await self._host.start_replica(
            command.shard, command.replica, Membership.decode(command.membership), join=command.join
        )

    _wrap(HeartbeatSender, "_start", lambda _: start)

    from logservice.nodehost.bootstrap import Bootstrapper

    def make(original: Any) -> Any:
        async def decide(self: Bootstrapper, probes: Any) -> Any:
            me = self._host.identity.store_id
            for probe in probes.values():
                membership = Membership.decode(probe.initial) if probe.initial else Membership()
                for member in membership.members:
                    if member.store_id == me:
                        return await self._start(member.replica_id, membership)
            return await original(self, probes)

        return decide

    _wrap(Bootstrapper, "_decide", make)


@_mutation
def _removed_replica_forgotten() -> None:
    def make(original: Any) -> Any:
        async def remove_replica(self: NodeHost, shard: Any, replica: Any) -> None:
            await self.stop_replica(shard)

        return remove_replica

    _wrap(NodeHost, "remove_replica", make)
    _wrap(LogDb, "removed", lambda _: lambda *_: set())


@_mutation
def _applies_before_its_own_disk_has_it() -> None:
    def make(original: Any) -> Any:
        def init(self: RaftLog, *arguments: Any) -> None:
            original(self, *arguments)
            self.hand_out_unstable = True

        return init

    _wrap(RaftLog, "__init__", make)


@_mutation
def _leader_decides_before_its_term_begins() -> None:
    _wrap(
        Replica,
        "ready_to_lead",
        lambda _: property(lambda self: self.raft.role is Role.LEADER),
    )
