"""Seeded bugs of storage: promises before the disk has them, and what recovery makes of a disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice.ids import Index, ReplicaId, Term
from logservice.logdb import log_db, plan
from logservice.logdb.gc import collection
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.recovery import recovery
from logservice.logdb.segment_writer import SegmentWriter
from logservice.nodehost.disks import engine
from logservice.nodehost.disks.write_queue import WriteQueue
from logservice.nodehost.replica.replica import Replica
from logservice.raft import election, following
from logservice.raft.leading import replication
from logservice.raft.messages import AppendResponse, VoteResponse
from logservice.raft.state import State
from logservice.sim.config import make_loud, make_rotten
from logservice.sim.mutations.registry import Without, mutation, mutation_in, wrap

# --- promises before the disk has them ------------------------------------------------------------


@mutation
def _vote_request_before_its_term_is_durable() -> None:
    def mutate(original: Any) -> Any:
        def accept(self: Replica, ready: Any) -> Any:
            accepted = original(self, ready)
            held, self._held = self._held, []
            for message in held:
                self._host.send(self, message)
            return accepted

        return accept

    wrap(Replica, "_accept", mutate)


@mutation
def _vote_before_it_is_durable() -> None:
    def answer(s: State, to: ReplicaId, term: Term, *, pre: bool, reject: bool) -> None:
        s.messages.append(VoteResponse(to=to, sender=s.id, term=term, reject=reject, pre=pre))

    wrap(election, "_answer", lambda _: answer)
    # The shell would hold it back otherwise.
    _vote_request_before_its_term_is_durable()


@mutation
def _acknowledgement_before_it_is_durable() -> None:
    def acknowledge(s: State, to: ReplicaId, index: int) -> None:
        s.messages.append(AppendResponse(to=to, sender=s.id, term=Term(s.term), index=Index(index)))

    wrap(following, "_acknowledge", lambda _: acknowledge)


@mutation
def _self_acknowledgement_before_fsync() -> None:
    def mutate(original: Any) -> Any:
        def acknowledge_own(self: State) -> None:
            own = self.tracker.progress.get(self.id)
            if own is not None:
                own.maybe_update(self.log.last_index)
                self.log.hand_out_unstable = False
                replication.maybe_commit(self)
            original(self)

        return acknowledge_own

    wrap(State, "acknowledge_own", mutate)


@mutation
def _group_ahead_acknowledged_with_the_one_before() -> None:
    def mutate(original: Any) -> Any:
        def finish_first(self: engine.Engine) -> None:
            ahead = list(self._under_way)[1:]
            original(self)
            for group in ahead:
                writes, group.writes = group.writes, []
                for write in writes:
                    write.done()

        return finish_first

    wrap(engine.Engine, "_finish_first", mutate)


@mutation
def _no_fsync() -> None:
    def mutate(original: Any) -> Any:
        def write(self: SegmentWriter, group: Any, kv: Any) -> None:
            files = self._files
            self._files = _Files(files, _Unsynced(files.vfs))  # type: ignore
            try:
                original(self, group, kv)
            finally:
                self._files = files

        return write

    wrap(SegmentWriter, "write", mutate)


@mutation
def _new_segment_without_directory_fsync() -> None:
    def mutate(original: Any) -> Any:
        def write(self: SegmentWriter, group: Any, kv: Any) -> None:
            files = self._files
            self._files = _Files(files, Without(files.vfs, "fsync_directory"))  # type: ignore
            try:
                original(self, group, kv)
            finally:
                self._files = files

        return write

    wrap(SegmentWriter, "write", mutate)


class _Unsynced(Without):
    """Writes what it should write durably, and no more."""

    def write_durably(self, handle: int, buffers: Any, offset: int) -> None:
        self._inner.pwritev(handle, buffers, offset)


class _Files(Without):
    """Segment files on another file system."""

    def __init__(self, files: SegmentFiles, vfs: Without) -> None:
        super().__init__(files)
        self.vfs = vfs


@mutation
def _vote_not_in_the_commit_group() -> None:
    def mutate(original: Any) -> Any:
        def accept(self: Replica, ready: Any) -> Any:
            accepted = original(self, ready)
            if accepted.update is None:
                return accepted
            return replace(accepted, update=replace(accepted.update, hard_state=None))

        return accept

    wrap(Replica, "_accept", mutate)


@mutation
def _merged_updates_forget_the_vote() -> None:
    def mutate(original: Any) -> Any:
        def merge(earlier: Any, later: Any) -> Any:
            together = original(earlier, later)
            return together and replace(together, hard_state=later.hard_state)

        return merge

    wrap(engine, "merge", mutate)


@mutation
def _unsynced_tail_kept_after_a_restart() -> None:
    def mutate(original: Any) -> Any:
        def cut(self: SegmentFiles, segment: int, size: int) -> None:
            vfs, self.vfs = self.vfs, Without(self.vfs, "fdatasync")
            try:
                original(self, segment, size)
            finally:
                self.vfs = vfs

        return cut

    wrap(SegmentFiles, "cut", mutate)


@mutation
def _tail_of_a_failed_fsync_trusted() -> None:
    def write_again(self: SegmentFiles, segment: int, *_: Any) -> None:
        self.sync(segment)

    wrap(SegmentFiles, "write_again", lambda _: write_again)


@mutation
def _recovery_drops_the_newest_group() -> None:
    def mutate(original: Any) -> Any:
        def judge(*arguments: Any) -> Any:
            kept, hiding = original(*arguments)
            return kept[:-1], hiding

        return judge

    wrap(recovery, "_judge", mutate)


@mutation
def _rewritten_entries_replayed_as_an_overwrite() -> None:
    def mutate(original: Any) -> Any:
        def runs_of_entries(state: Any, entries: Any) -> Any:
            runs = original(state, entries)
            for run in runs:
                run.write_sequence += 1 << 30
            return runs

        return runs_of_entries

    wrap(collection, "runs_of_entries", mutate)


# --- damage ---------------------------------------------------------------------------------------


@mutation
def _damaged_replica_goes_on() -> None:
    wrap(ReplicaState, "blame", lambda _: lambda self, fault: False)


@mutation
def _damaged_replica_goes_on_until_its_next_tick() -> None:
    halts = Replica._halts_damaged

    def mutate(original: Any) -> Any:
        def tick(self: Replica, now_s: float) -> None:
            if not halts(self):
                original(self, now_s)

        return tick

    wrap(Replica, "_halts_damaged", lambda _: lambda self: False)
    wrap(Replica, "tick", mutate)


@mutation
def _repair_is_over_after_its_first_entries() -> None:
    wrap(plan, "_restored", lambda _: lambda state, update: bool(update.entries))


@mutation_in(make_rotten)
def _ends_of_older_segments_not_read() -> None:
    wrap(recovery, "known_ends", lambda _: lambda survey: {})


@mutation_in(make_rotten)
def _durable_mark_of_no_use() -> None:
    """As when it lay beside its group: the garbage takes both."""
    wrap(log_db, "read_mark", lambda _: lambda vfs, directory, incarnation: None)


# --- fairness -------------------------------------------------------------------------------------


@mutation_in(make_loud)
def _first_come_first_served() -> None:
    wrap(WriteQueue, "in_turn", lambda _: lambda self, goal_bytes: self._writes)


@mutation_in(make_loud)
def _compaction_waits_for_all_logs() -> None:
    """What comes behind it waits, too."""

    def mutate(original: Any) -> Any:
        def add(self: WriteQueue, write: Any) -> None:
            original(self, write)
            if any(update.snapshot is not None for update in write.updates):
                self._now = max(self._stands.values())

        return add

    wrap(WriteQueue, "add", mutate)
