"""Seeded bugs around the state machine: requests, sessions, fencing, snapshots, identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from logservice.entry import EntryKind
from logservice.ids import NO_SESSION, Index, Lsn
from logservice.logdb.log_db import LogDb
from logservice.membership import Membership
from logservice.nodehost.agent.heartbeats import HeartbeatSender
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.replica.pending import PendingBook
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.truncation import alignment, replicas_within
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.outcome import Applied
from logservice.raft.log.log import RaftLog
from logservice.rsm.admission import ADMIT, Admission
from logservice.rsm.log_rsm import LogRsm
from logservice.rsm.sessions import Session, SessionTable
from logservice.rsm.snapshot_codec import encode_state
from logservice.rsm.state import LogState
from logservice.sim.mutations.registry import Without, mutation, wrap

# --- requests, sessions, fencing ------------------------------------------------------------------


@mutation
def _request_completed_by_index_alone() -> None:
    def applied(self: PendingBook, entry: Any, outcomes: Any) -> None:
        found = self._by_index.pop(entry.index, None)
        if found is None:
            return
        self._release(found[1])
        for item in found[1]:
            item.resolve(Applied(lsn=entry.lsn, count=entry.record_count, value=entry.index))

    wrap(PendingBook, "applied", lambda _: applied)


@mutation
def _repetition_is_appended_again() -> None:
    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            return original(self, replace(block, session=NO_SESSION), lsn, index)

        return apply_block

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge_session", lambda _: lambda *_: None)


@mutation
def _gap_in_a_session_is_accepted() -> None:
    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            row = self.state.sessions.get(block.session)
            if row is not None and block.sequence > row.last_sequence + 1:
                row.last_sequence = block.sequence - 1
            return original(self, block, lsn, index)

        return apply_block

    def judge(original: Any) -> Any:
        def judge_session(self: Admission, request: Any) -> Any:
            row = self._rsm.state.sessions.get(request.session)
            if row is not None and request.sequence > row.last_sequence:
                return None
            return original(self, request)

        return judge_session

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge_session", judge)


@mutation
def _repetition_answered_with_another_lsn() -> None:
    def mutate(original: Any) -> Any:
        def repetition(self: Session, sequence: int, block: Any) -> Any:
            outcome = original(self, sequence, block)
            if isinstance(outcome, Applied):
                return replace(outcome, lsn=Lsn(outcome.lsn + 1))
            return outcome

        return repetition

    wrap(Session, "repetition", mutate)


@mutation
def _sessions_missing_from_the_snapshot() -> None:
    def save_snapshot(self: LogRsm) -> bytes:
        return encode_state(replace(self.state, sessions=SessionTable()))

    wrap(LogRsm, "save_snapshot", lambda _: save_snapshot)


@mutation
def _fence_not_checked_at_apply() -> None:
    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            epoch = self.state.writer_epoch
            return original(self, replace(block, writer_epoch=epoch), lsn, index)

        return apply_block

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge", _unfenced)


def _unfenced(original: Any) -> Any:
    def judge(self: Admission, request: Any, lsn: Any, waited: Any) -> Any:
        epoch = self._rsm.state.writer_epoch
        return original(self, replace(request, writer_epoch=epoch), lsn, waited)

    return judge


@mutation
def _truncation_is_not_fenced() -> None:
    def mutate(original: Any) -> Any:
        def truncate(self: LogRsm, command: Any) -> Any:
            return original(self, replace(command, writer_epoch=self.state.writer_epoch))

        return truncate

    wrap(LogRsm, "_truncate", mutate)


@mutation
def _writer_epoch_granted_twice() -> None:
    def mutate(original: Any) -> Any:
        def grant_writer(self: LogState, holder: str, owner: str) -> int:
            before = self.writer_epoch
            return (
                max(1, before)
                if before and not original(self, holder, owner)
                else original(self, holder, owner) and max(1, before)
            )

        return grant_writer

    wrap(LogState, "grant_writer", mutate)


@mutation
def _expected_lsn_is_not_checked() -> None:
    def mutate(original: Any) -> Any:
        def apply_block(self: LogRsm, block: Any, lsn: Any, index: Any) -> Any:
            return original(self, replace(block, expected_lsn=Lsn(0)), lsn, index)

        return apply_block

    def judge(original: Any) -> Any:
        def unexpected(self: Admission, request: Any, lsn: Any, waited: Any) -> Any:
            return original(self, replace(request, expected_lsn=Lsn(0)), lsn, waited)

        return unexpected

    wrap(LogRsm, "_apply_block", mutate)
    wrap(Admission, "_judge", judge)


@mutation
def _timestamps_overlap() -> None:
    def mutate(original: Any) -> Any:
        def apply(self: LogRsm, command: Any, entry: Any) -> Any:
            outcome = original(self, command, entry)
            if type(command).__name__ == "AllocateTimestamps":
                self.state.next_timestamp -= 1
            return outcome

        return apply

    wrap(LogRsm, "_apply", mutate)


@mutation
def _refused_block_leaves_no_gap() -> None:
    wrap(LogState, "reject", lambda _: lambda *_: None)
    # The leader's pre-check makes refusals rare; the log must be right without it.
    wrap(Admission, "_judge", lambda _: lambda *_: ADMIT)


# --- snapshots and truncation ---------------------------------------------------------------------


@mutation
def _truncation_ignores_holds() -> None:
    def mutate(original: Any) -> Any:
        def settle(self: LogState) -> Any:
            holds, self.holds = self.holds, {}
            try:
                return original(self)
            finally:
                self.holds = holds

        return settle

    wrap(LogState, "settle_truncation", mutate)


@mutation
def _truncation_reaches_one_entry_too_far() -> None:
    def mutate(original: Any) -> Any:
        async def last(replica: Replica, truncation_lsn: Lsn) -> Index:
            covered = await original(replica, truncation_lsn)
            return Index(min(covered + 1, replica.applied))

        return last

    wrap(replicas_within, "last_truncated", mutate)


@mutation
def _truncation_stops_one_entry_short() -> None:
    def mutate(original: Any) -> Any:
        async def last(replica: Replica, truncation_lsn: Lsn) -> Index:
            return Index(await original(replica, truncation_lsn) - 1)

        return last

    wrap(replicas_within, "last_truncated", mutate)


@mutation
def _replay_begins_with_a_later_export() -> None:
    def later(self: ExportedSnapshots, shard: Any, replica: Any, index: Index) -> Any:
        exports = self._read(shard, replica)
        return exports[-1] if exports else None

    wrap(ExportedSnapshots, "largest_at_or_below", lambda _: later)


@mutation
def _replay_passes_over_membership_changes() -> None:
    wrap(alignment, "membership_after", lambda _: lambda membership, entry: membership)


@mutation
def _replay_leaves_commands_out() -> None:
    def mutate(original: Any) -> Any:
        def take(self: alignment.Replay, entry: Any) -> None:
            kind = EntryKind.NOOP if entry.kind is EntryKind.COMMAND else entry.kind
            original(self, replace(entry, kind=kind))

        return take

    wrap(alignment.Replay, "take", mutate)


@mutation
def _membership_missing_from_the_snapshot() -> None:
    def mutate(original: Any) -> Any:
        def applied_snapshot(self: Replica) -> Any:
            return replace(original(self), membership=Membership())

        return applied_snapshot

    wrap(Replica, "applied_snapshot", mutate)


@mutation
def _snapshot_taken_and_state_machine_not_restored() -> None:
    def mutate(original: Any) -> Any:
        def recovered(self: Replica, snapshot: Any) -> None:
            self.state_machine = Without(self.state_machine, "recover_from_snapshot")
            original(self, snapshot)
            self.state_machine = self.state_machine._inner

        return recovered

    wrap(Replica, "_recovered", mutate)


@mutation
def _snapshot_of_another_index_started_from() -> None:
    def mutate(original: Any) -> Any:
        def newest(self: ExportedSnapshots, shard: Any, replica: Any) -> Any:
            snapshot = original(self, shard, replica)
            return snapshot and replace(snapshot, index=Index(snapshot.index - 1))

        return newest

    wrap(ReplicaTable, "_run", lambda original: partial_export(original, mutate))


def partial_export(original: Any, mutate: Callable[[Any], Any]) -> Any:
    """`ReplicaTable._run` with another answer to what the newest export is."""

    def run(
        self: ReplicaTable, shard: Any, replica: Any, directory: Directory, *, begins: bool = False
    ) -> None:
        newest = directory.newest_export
        owner = newest.__self__  # type: ignore[attr-defined]
        directory.newest_export = partial(mutate(type(owner).newest), owner)
        try:
            original(self, shard, replica, directory, begins=begins)
        finally:
            directory.newest_export = newest

    return run


# --- identity -------------------------------------------------------------------------------------


@mutation
def _old_id_reborn_on_an_empty_disk() -> None:
    async def start(self: HeartbeatSender, command: Any) -> None:
        await self._host.replicas.start(
            command.shard, command.replica, Membership.decode(command.membership), join=command.join
        )

    wrap(HeartbeatSender, "_start", lambda _: start)

    from logservice.nodehost.agent.bootstrap import Bootstrapper

    def mutate(original: Any) -> Any:
        async def decide(self: Bootstrapper, probes: Any) -> Any:
            me = self._host.identity.store_id
            for probe in probes.values():
                membership = Membership.decode(probe.initial) if probe.initial else Membership()
                for member in membership.members:
                    if member.store_id == me:
                        here = self._host.directories.roomiest().incarnation
                        return await self._start(
                            structs.replace(member, incarnation=here), membership
                        )
            return await original(self, probes)

        return decide

    wrap(Bootstrapper, "_decide", mutate)


@mutation
def _replica_begun_in_another_directory() -> None:
    def mutate(original: Any) -> Any:
        def place(self: Directories, shard: Any, replica: Any, incarnation: Any = None) -> Any:
            return original(self, shard, replica)

        return place

    wrap(Directories, "place", mutate)


@mutation
def _removed_replica_forgotten() -> None:
    def mutate(original: Any) -> Any:
        async def remove(self: ReplicaTable, shard: Any, replica: Any) -> None:
            await self.stop(shard)

        return remove

    wrap(ReplicaTable, "remove", mutate)
    wrap(LogDb, "removed", lambda _: lambda *_: set())


@mutation
def _applies_before_its_own_disk_has_it() -> None:
    def mutate(original: Any) -> Any:
        def init(self: RaftLog, *arguments: Any) -> None:
            original(self, *arguments)
            self.hand_out_unstable = True

        return init

    wrap(RaftLog, "__init__", mutate)
