"""LogDb: durable logs and states of all replicas in one data directory.

One commit group at a time makes the updates of any number of replicas durable with one durable
write (`Vfs.write_durably`):

    begin  (loop thread)  check, encode, choose the place; no file call
    write  (any thread)   file calls only; touches nothing but the group; any exception is fatal
    finish (loop thread)  the group becomes visible to readers

While one group is at the disk the next may be begun *ahead*, so that the processor and the disk
work at the same time:

    begin 1, write 1 | begin_ahead 2 | finish 1, write 2 | begin_ahead 3 | finish 2, write 3 ...

- INV-LOGDB-1: groups are written one after the other, in the order in which they were begun, and
  finished in that order. At most two are between begin and finish; there is a second one only if it
  was begun ahead. Everything else that writes or plans a place waits until there is none.
- INV-LOGDB-5: a group begun ahead is what `begin` would have made of the same updates after the
  finish of the one before (INV-PLAN-AHEAD, INV-WRITER-4); where that is not certain `begin_ahead`
  declines. So no disk and no reader can tell whether a group was begun ahead.
- INV-LOGDB-2: after an exception of `write` nothing is written any more: what reached the disk is
  unknown until the directory is opened again, and fdatasync must not be repeated.
- INV-LOGDB-4: OutOfSpace from `write` is no failure: nothing was written. `abandon` takes the
  group back, and its updates may be begun again, or others first.
- INV-LOGDB-3: an update of nothing but a commit index needs no sync of its own; it waits for a
  group that does (`Planner`).

Files: ``segments/``, ``index/`` (derived), ``BALLAST``, ``MARK`` (`mark_file`).
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from logservice_wire.errors import Halted, InvalidArgument

from logservice import versions
from logservice.bounds import LOGDB_SEGMENT_BYTES_MIN, LOGDB_UNREADABLE_PAGES_MAX
from logservice.clock import Clock, SystemClock
from logservice.ids import Index, ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.logdb.checkpoint.checkpoint import CheckpointBatch, build_checkpoint
from logservice.logdb.checkpoint.column_cache import ColumnCache
from logservice.logdb.format.commit_group import FLAG_MARK, FLAG_REWRITE, RecordRun
from logservice.logdb.format.update import Update
from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.gc.garbage import (
    GarbagePlan,
    GcReport,
    faulty_segments,
    mostly_garbage,
    plan_garbage,
    why_kept,
)
from logservice.logdb.index.entry_cache import CachedEntries, EntryCache
from logservice.logdb.index.index import SegmentUsage
from logservice.logdb.index.replica_state import Key, ReplicaState
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import Kv, KvEngine
from logservice.logdb.io.mark_file import MarkFile, read_mark
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.segment_keys import SegmentKeys
from logservice.logdb.io.survey import Survey
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.options import LogDbOptions
from logservice.logdb.plan import Planner
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.logdb.recovery.key_check import check_keys
from logservice.logdb.recovery.opening import INDEX_NAME, open_and_recover
from logservice.logdb.recovery.recovery import Recovered
from logservice.logdb.scrub import DamagedRange, ScrubTarget, Verdict, attribute, scrub_target
from logservice.logdb.segment_writer import CommitGroup, SegmentWriter
from logservice.logdb.space.disk_space import DiskSpace, DiskState, OutOfSpace
from logservice.logdb.space.oldest_pins import OldestPins
from logservice.logdb.space.stats import LogDbStats
from logservice.sealing_keys import Keys


class CommitObserver(Protocol):
    """Watches the commit groups of one `LogDb`, on its loop thread.

    Each method is called as the last step of what it tells of. An observer reads; it changes
    nothing. Of a group without updates (a durable mark, what `close` still writes) it is told only
    when the group finishes.
    """

    def begun(self, group: CommitGroup, updates: Sequence[Update], *, ahead: bool) -> None:
        """`begin`, or `begin_ahead`, has made `group` of `updates`."""

    def copies_begun(self, group: CommitGroup) -> None:
        """Garbage collection has begun a group of copies of live records, the `group.runs`."""

    def upkeep_begun(self, group: CommitGroup) -> None:
        """Garbage collection has begun a group that removes or cuts segments."""

    def collecting(self, collection: GarbageCollection) -> None:
        """A garbage collection is planned, and nothing of it is done."""

    def collected(self, collection: GarbageCollection) -> None:
        """It has ended, and not for lack of room."""

    def abandoned(self, group: CommitGroup) -> None:
        """There was no room for `group`; nothing of it was written."""

    def finished(self, group: CommitGroup) -> None:
        """`group` is visible to readers; it is durable if `group.written`."""


class LogDb:
    """See the head of this file. Not thread-safe but for `write`."""

    def __init__(
        self,
        directory: str,
        files: SegmentFiles,
        kv: Kv,
        columns: ColumnCache,
        space: DiskSpace,
        recovered: Recovered,
        options: LogDbOptions,
        clock: Clock,
        identity: DataDirectory,
    ) -> None:
        """Use `LogDb.open`."""
        self.directory = directory
        self.recovery_report = recovered.report
        self._files = files
        self._kv = kv
        self._columns = columns
        self._space = space
        self._owed: CheckpointBatch | None = None
        self._options = options
        files.ends.update((one, at) for one, at in recovered.ends.items() if one in files.sizes)
        self._writer = SegmentWriter(
            files,
            space,
            recovered.position,
            options,
            clock,
            identity,
            MarkFile(files.vfs, directory, files.incarnation),
        )
        # A mark in a file may be in the page cache alone.
        self._writer.unmarked = recovered.unmarked or self._writer.mark() is not None
        self._states = recovered.states
        self._usage = SegmentUsage()
        for state in self._states.values():
            state.index.attach(self._usage, columns)
        self._pins = OldestPins(self._states, self._usage)
        columns.on_fault = self.fault_found
        self._logs: dict[Key, ReplicaLog] = {}
        self._cache = EntryCache(options.entry_cache_bytes)
        marks = bool(recovered.report.newly_faulty)
        self._planner = Planner(self._states, self._state, marks=marks)
        self._begun: deque[CommitGroup] = deque()
        self._failure = ""
        self.on_fault: Callable[[ShardId, ReplicaId], None] = lambda *_: None
        """Told (shard, replica) when its data is found damaged."""
        self.observer: CommitObserver | None = None
        """Watches every commit group from now on; set it once the directory is open."""

    # --- opening and closing ---------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        identity: DataDirectory,
        vfs: Vfs,
        kv: KvEngine,
        options: LogDbOptions | None = None,
        clock: Clock | None = None,
        keys: Keys | None = None,
        draw_bytes: Callable[[int], bytes] = os.urandom,
    ) -> LogDb:
        """Recover what is in `directory` and make what is kept durable.

        After a KvError a second try begins with a new index (INV-KV-3).

        `identity` is the open data directory that `directory` is, or lies in: its incarnation seeds
        every checksum. A crash, or bytes that cannot be read, never keep it from opening
        (`opening`); `recovery_report` says what was found. `keys`: what entries are encrypted with
        from cluster version 2 on, and what opens those that are; `draw_bytes` gives random bytes
        for it. Raises KeysMissing before anything was changed (`key_check`), KvError,
        SegmentVersionError, and OSError for a disk that is lost.
        """
        options = options or LogDbOptions()
        if options.segment_bytes < LOGDB_SEGMENT_BYTES_MIN:
            raise InvalidArgument(
                f"segment_bytes must be at least {LOGDB_SEGMENT_BYTES_MIN}", field="segment_bytes"
            )
        segments = posixpath.join(directory, "segments")
        vfs.make_directory(segments)
        vfs.fsync_directory(directory)
        segment_keys = SegmentKeys(keys, draw_bytes)
        files = SegmentFiles(vfs, segments, identity.incarnation, segment_keys)
        try:
            if identity.cluster_version > versions.FIRST:
                check_keys(Survey(files, LOGDB_UNREADABLE_PAGES_MAX))
        except BaseException:
            files.close()
            raise
        space = DiskSpace.open(
            vfs,
            directory,
            segments,
            segment_bytes=options.segment_bytes,
            spare_segments_max=options.spare_segments_max,
            ballast_bytes=options.ballast_bytes,
            reserve_bytes=options.reserve_bytes,
        )
        if vfs.free_bytes(directory) < options.segment_bytes or not space.index_writable():
            space.ballast.release()
        index = posixpath.join(directory, INDEX_NAME)
        cache_bytes = options.column_cache_bytes
        mark = read_mark(vfs, directory, identity.incarnation)
        opened, columns, recovered = open_and_recover(identity, files, kv, index, cache_bytes, mark)
        if recovered.report.unreadable_bytes:
            # The spares may have bad sectors, too, and such a sector cannot be written in part.
            space.spares.release()
        opened = opened or kv.open(index)
        columns = columns or ColumnCache(opened, files, cache_bytes)
        db = cls(
            directory,
            files,
            opened,
            columns,
            space,
            recovered,
            options,
            clock or SystemClock(),
            identity,
        )
        try:
            with contextlib.suppress(OutOfSpace):
                db.record_faults()
            db.checkpoint()
            space.restore_ballast()
            db.sample_disk()
        except BaseException:
            with contextlib.suppress(OSError):
                db.close()
            raise
        return db

    def close(self) -> None:
        """Write what still waits, the durable mark and the derived index; release all files.

        The unused end of the newest segment is given back.
        """
        try:
            if not self._failure and not self._begun:
                with contextlib.suppress(OutOfSpace):
                    self._commit_runs(self._planner.waiting(self._next_write_sequence))
                    self.mark_durable()
                self.checkpoint()
                self._writer.cut()
        finally:
            self._failure = self._failure or "closed"
            self._kv.close()
            self._files.close()
            self._writer.close()

    # --- reading ---------------------------------------------------------------------------------

    def replicas(self) -> list[tuple[ShardId, ReplicaId]]:
        """Replicas with data here, removed ones aside, sorted."""
        return sorted(
            (ShardId(state.shard), ReplicaId(state.replica))
            for state in self._states.values()
            if state.exists
        )

    def stores(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether it is one of `replicas`."""
        state = self._states.get((shard, replica))
        return state is not None and state.exists

    def removed(self) -> set[tuple[ShardId, ReplicaId]]:
        """Replicas that were removed here; their ids are refused for ever."""
        return {
            (ShardId(state.shard), ReplicaId(state.replica))
            for state in self._states.values()
            if state.removed
        }

    def has_removed(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether it is one of `removed`."""
        state = self._states.get((shard, replica))
        return state is not None and state.removed

    def knows(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether data of the replica is here, or the tombstone that it left."""
        state = self._states.get((shard, replica))
        return state is not None and bool(state.exists or state.removed or state.faulty)

    @property
    def segment_bytes(self) -> int:
        """Bytes of all segment files."""
        return sum(self._files.sizes.values())

    def log(self, shard: ShardId, replica: ReplicaId) -> ReplicaLog:
        """The replica's log, empty if nothing was written yet; InvalidArgument for a removed
        one.
        """
        key = (shard, replica)
        log = self._logs.get(key)
        if log is None:
            state = self._state(key)
            if state.removed:
                raise InvalidArgument(
                    f"replica {replica} of shard {shard} was removed from this store",
                    field="replica",
                )
            state.cached = CachedEntries()
            log = self._logs[key] = ReplicaLog(state, self._files, self._fault_noted)
        return log

    # --- writing ---------------------------------------------------------------------------------

    def begin(self, updates: Sequence[Update]) -> CommitGroup:
        """Check and encode one group; at most one update per replica. Makes no file call.

        Raises InvariantViolation for an update that does not continue its log, Halted after a
        failure.
        """
        self._check_usable()
        runs, sequence, may_wait = self._planner.plan(updates, self._next_write_sequence)
        group = self._begin_runs(runs, sequence, may_wait=may_wait)
        if self.observer is not None:
            self.observer.begun(group, updates, ahead=False)
        return group

    def begin_ahead(self, updates: Sequence[Update]) -> CommitGroup | None:
        """`begin` while one group is at the disk: this one is to be written directly after it. None
        when it must wait for that one's finish instead (INV-LOGDB-5); nothing has changed then.

        It does not raise Halted: the group at the disk may just have failed, in another thread, and
        the result of that group has to say so.
        """
        invariant(len(self._begun) == 1, "INV-LOGDB-1", begun=len(self._begun))
        before = self._begun[0]
        if self._failure or not before.solid or before.flags & FLAG_REWRITE:
            return None
        planned = self._planner.plan_ahead(updates, before.runs, before.next_write_sequence)
        if planned is None:
            return None
        runs, sequence = planned
        group = self._writer.begin_ahead(runs, before, next_write_sequence=sequence)
        if group is not None:
            self._begun.append(group)
            if self.observer is not None:
                self.observer.begun(group, updates, ahead=True)
        return group

    def write(self, group: CommitGroup, *, sync: bool = True) -> None:
        """Write the group and fdatasync it. May run on any thread; any exception is fatal.

        With `sync` False a group of nothing but commit indexes is not written now (INV-LOGDB-3).
        Every other group is written and synced all the same.
        """
        if group.empty or (group.may_wait and not sync):
            return
        # The group before this one may have failed after this one was begun (INV-LOGDB-2).
        self._check_not_failed()
        try:
            self._writer.write(group, self._kv)
        except OutOfSpace:
            raise
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise

    def finish(self, group: CommitGroup) -> None:
        """Make the group visible to readers."""
        self._finish(group)
        if self.observer is not None:
            self.observer.finished(group)

    def _finish(self, group: CommitGroup) -> None:
        invariant(bool(self._begun) and self._begun[0] is group, "INV-LOGDB-1")
        invariant(not self._failure or group.written, "INV-LOGDB-2", failure=self._failure)
        self._begun.popleft()
        if not group.written:
            invariant(group.empty or group.may_wait, "INV-LOGDB-UNWRITTEN")
            for run in group.runs:
                self._planner.hold(run)
            return
        if group.checkpoint is not None:
            self._columns.saved(group.checkpoint.chunks)
        for segment in group.retired:
            self._files.retire(segment)
            self._usage.forget(segment)
        self._writer.advance(group)
        for run in group.runs:
            if group.flags & FLAG_REWRITE:
                self._states[run.shard, run.replica].relocate(run)
            else:
                self._apply(run)

    def abandon(self, group: CommitGroup) -> None:
        """`write` said OutOfSpace: forget the group. Its updates were not applied to anything."""
        alone = len(self._begun) == 1 and self._begun[0] is group
        invariant(alone and not group.written, "INV-LOGDB-4")
        self._begun.clear()
        if group.checkpoint is not None:
            self._owed = group.checkpoint
        self._planner.gave_back(group.runs)
        if self.observer is not None:
            self.observer.abandoned(group)

    def commit(self, updates: Sequence[Update], *, sync: bool = True) -> None:
        """begin, write and finish in one; after OutOfSpace the group is abandoned."""
        self._write_through(self.begin(updates), sync=sync)

    def begin_mark(self) -> CommitGroup:
        """A group that says that all before it is durable, in the segment or in the file of marks;
        empty when that is said already.

        It is written and finished like any other group, once the store was idle for
        DURABLE_MARK_MS. If marks of damage wait, they are written instead: they, too, follow the
        newest group (INV-REC-4).
        """
        self._check_usable()
        if self._planner.marks:
            return self.begin(())
        mark = self._writer.mark() if self._writer.unmarked else None
        flags = FLAG_MARK if self._writer.unmarked and mark is None else 0
        group = self._begin_runs([], self._next_write_sequence, flags=flags)
        group.mark = mark
        return group

    def mark_durable(self) -> None:
        """begin_mark, write and finish in one."""
        self._write_through(self.begin_mark())

    def record_faults(self) -> None:
        """Mark the replicas that were found damaged, durably; nothing happens if all are marked.

        A mark lost in a crash costs nothing while the damage is found again at the next start; but
        damage that is found by reading may not be.
        """
        if self._planner.marks:
            self.commit(())

    # --- maintenance -----------------------------------------------------------------------------

    def scrub_target(self, after: int) -> ScrubTarget | None:
        """The oldest sealed segment behind `after`; None when there is none."""
        active = self._writer.position.segment
        return scrub_target(self._files, after, active, self._options.cached_bytes)

    def sealed_bytes(self, after: int) -> int:
        """Bytes of the sealed segments behind `after`: what a scrub still has to read."""
        active = self._writer.position.segment
        return sum(size for one, size in self._files.sizes.items() if after < one < active)

    def scrub_found(self, segment: int, damages: Sequence[DamagedRange]) -> Verdict:
        active = self._writer.position.segment
        invariant(segment != active, "INV-SCRUB-1", segment=segment)
        states = self._states.values()
        return attribute(states, self._files, segment, damages, self.fault_found)

    def checkpoint(self) -> None:
        """Bring the derived index up to the last finished group. Raises KvError, which is fatal.

        Nothing happens while the disk has no room for it (`disk_space`): the next one covers all.
        """
        self._check_usable()
        if not self._space.index_writable():
            return
        batch = self._checkpoint_batch()
        try:
            self._kv.write(batch.puts, batch.deletes)
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise
        self._columns.saved(batch.chunks)
        self._writer.counters.index_bytes_written += batch.bytes

    def begin_collection(self) -> GarbageCollection:
        """A garbage collection, to be carried out step by step (`collection`); one at a time.

        May begin while a group is at the disk; the steps' groups come between others. Any OSError
        or KvError in one of them is fatal, as for `write`, but for OutOfSpace: then the collection
        has ended. Nothing is collected while the disk has no room for the derived index.
        """
        self._check_not_failed()
        plan, sealed, newest = GarbagePlan(), None, self._writer.position
        copies_max = min(self._options.rewrite_bytes_max, self._copies_room())
        if self._space.index_writable():
            if self._space.state.full and not self._begun and mostly_garbage(self._usage, newest):
                sealed = self._writer.seal()
            plan = plan_garbage(
                self._files.sizes,
                self._usage,
                newest.segment,
                faulty_segments(self._states.values()),
                self._files.pinned,
                self._files.condemned,
                self._options,
                copies_max,
            )
        collection = GarbageCollection(
            self,
            plan,
            sealed,
            self._states,
            self._files,
            self._usage,
            lambda: self._writer.counters.bytes_rewritten,
        )
        collection.report.short_of_room = copies_max < self._options.rewrite_bytes_max
        if self.observer is not None:
            self.observer.collecting(collection)
        return collection

    def collect_garbage(self) -> GcReport:
        """A whole garbage collection at once, for a caller without an event loop."""
        self._check_usable()
        collection = self.begin_collection()
        with contextlib.suppress(OutOfSpace):
            while (step := collection.next_step()) is not None:
                step.read()
                self._write_through(step.begin())
        return collection.report

    def collected(self, collection: GarbageCollection) -> None:
        if self.observer is not None:
            self.observer.collected(collection)

    def begin_copies(self, runs: list[RecordRun]) -> CommitGroup:
        self._check_usable()
        flags = FLAG_REWRITE if runs else 0
        group = self._begin_runs(runs, self._next_write_sequence, flags=flags)
        if self.observer is not None:
            self.observer.copies_begun(group)
        return group

    def begin_upkeep(
        self, *, cut: tuple[int, int] | None = None, retired: Sequence[int] = (), checkpoint: bool
    ) -> CommitGroup:
        self._check_usable()
        batch = self._checkpoint_batch() if checkpoint else None
        group = self._begin_runs([], self._next_write_sequence)
        group.cut, group.retired, group.checkpoint = cut, tuple(retired), batch
        if self.observer is not None:
            self.observer.upkeep_begun(group)
        return group

    def fault_found(self, key: Key, why: str, damaged_from: Index) -> None:
        ReplicaLog(self._states[key], self._files, self._fault_noted).blame(why, damaged_from)

    def check_keys(self, keys: Keys) -> None:
        """Raises KeysMissing when `use_keys` would."""
        self._files.keys.check(keys)

    def use_keys(self, keys: Keys) -> None:
        """Another ring from now on: the next group begins a segment, if its active key is another
        one. Raises KeysMissing, and changes nothing, when a segment needs a key that is not in it.
        """
        self._files.keys.replace(keys)

    @property
    def encrypts(self) -> bool:
        """Whether entries that are written now are encrypted."""
        return self._writer.encrypts

    def leaves_promised(self, size: int) -> bool:
        """Whether `size` bytes of another file leave what was promised (`disk_space`)."""
        return self._space.leaves_promised(size)

    def sample_disk(self) -> DiskState:
        """Look how much room the disk has; one system call."""
        return self._space.sample(len(self._states))

    def survey_oldest(self) -> Iterator[None]:
        """Find out, in slices, who holds the oldest segment once it is sealed (`OldestPins`)."""
        oldest = min(self._files.sizes, default=0)
        return self._pins.survey(oldest if oldest < self._writer.position.segment else 0)

    @property
    def bytes_written(self) -> int:
        """Bytes of commit groups since the start."""
        return self._writer.counters.bytes_written

    @property
    def cache_bytes(self) -> int:
        """Of entries and index columns that are kept for those who read."""
        return self._cache.bytes + self._columns.bytes

    def stats(self) -> LogDbStats:
        """The figures of this moment."""
        counters, sizes, usage = self._writer.counters, self._files.sizes, self._usage
        active = self._writer.position.segment
        total, live = sum(sizes.values()), usage.total_bytes()
        newest = sizes.get(active, 0)
        oldest = min(sizes, default=0)
        return LogDbStats(
            segment_bytes=total,
            segment_files=len(sizes),
            live_bytes=live,
            garbage_bytes=max(0, total - newest - live + usage.live_bytes(active)),
            spare_bytes=self._space.spares.bytes,
            groups=counters.groups,
            durable_writes=counters.durable_writes,
            entries_written=counters.entries_written,
            bytes_written=self.bytes_written,
            bytes_rewritten=counters.bytes_rewritten,
            index_bytes_written=counters.index_bytes_written,
            segments_retired=counters.segments_retired,
            segments_recycled=counters.segments_recycled,
            column_bytes=self._columns.bytes,
            oldest_segment=oldest,
            oldest_live_bytes=usage.live_bytes(oldest),
            oldest_reason=why_kept(
                oldest, self._files, usage, active, self._states.values(), self._options
            ),
            oldest_pins=self._pins.top(oldest) if oldest < active else (),
            group_bytes_p50=counters.group_bytes.percentile(0.50),
            group_bytes_p99=counters.group_bytes.percentile(0.99),
            durable_write_p50_us=counters.durable_write_us.percentile(0.50),
            durable_write_p99_us=counters.durable_write_us.percentile(0.99),
            durable_write_us=counters.durable_write_us.histogram(),
            group_bytes=counters.group_bytes.histogram(),
            free_bytes=self._files.vfs.free_bytes(self.directory) + self._space.spares.bytes,
            disk=self._space.state,
            ballast=self._space.ballast.held,
            faulty_replicas=sum(bool(s.faulty) for s in self._states.values() if s.exists),
            key_bytes=self._key_bytes(),
        )

    # --- inside ----------------------------------------------------------------------------------

    @property
    def _next_write_sequence(self) -> int:
        return self._writer.position.next_write_sequence

    def _check_not_failed(self) -> None:
        if self._failure:
            raise Halted(f"log storage of {self.directory} has stopped: {self._failure}")

    def _check_usable(self) -> None:
        self._check_not_failed()
        invariant(not self._begun, "INV-LOGDB-1")

    def _state(self, key: Key) -> ReplicaState:
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = ReplicaState(*key)
            state.index.attach(self._usage, self._columns)
        return state

    def _checkpoint_batch(self) -> CheckpointBatch:
        invariant(not self._begun, "INV-CKPT-1", begun=len(self._begun))
        batch = build_checkpoint(
            self._states.values(), self._writer.position, self._files.incarnation
        )
        if self._owed is not None:
            batch, self._owed = batch.after(self._owed), None
        self._columns.hold(batch.chunks)
        return batch

    def _begin_runs(
        self, runs: list[RecordRun], next_sequence: int, *, flags: int = 0, may_wait: bool = False
    ) -> CommitGroup:
        group = self._writer.begin(
            runs,
            flags=flags,
            may_wait=may_wait,
            next_write_sequence=next_sequence,
            checkpoint=self._checkpoint_batch,
        )
        self._begun.append(group)
        return group

    def _key_bytes(self) -> tuple[tuple[str, int], ...]:
        keys, found = self._files.keys, Counter[str]()
        for segment, size in self._files.sizes.items():
            found[keys.name(keys.tags.get(segment, 0))] += size
        return tuple(sorted(found.items()))

    def _copies_room(self) -> int:
        """Bytes of live records, as they lie, whose copies surely fit. A plain one whose copy is
        encrypted grows by 32 bytes at most, and it has 72 at least: by less than half.
        """
        room, files = self._space.copies_room(), self._files
        plain = any(not files.keys.tags.get(segment) for segment in files.sizes)
        return room * 2 // 3 if plain and self._writer.encrypts else room

    def _commit_runs(self, runs: list[RecordRun]) -> None:
        count = sum(run.record_count for run in runs)
        self._write_through(self._begin_runs(runs, self._next_write_sequence + count))

    def _write_through(self, group: CommitGroup, *, sync: bool = True) -> None:
        try:
            self.write(group, sync=sync)
        except OutOfSpace:
            self.abandon(group)
            raise
        self.finish(group)

    def _apply(self, run: RecordRun) -> None:
        key = (run.shard, run.replica)
        state = self._states[key]
        state.apply(run)
        if state.fault is not None and state.fault != state.marked:
            # While this run was on its way more damage was found, or more entries were written.
            self._planner.marks = True
        self._planner.written(run, removed=state.removed)
        if state.removed:
            self._logs.pop(key, None)
            state.clear()
        elif run.entries and state.cached is not None:
            self._cache.put(state.cached, run.entries, run.size)

    def _fault_noted(self, shard: int, replica: int) -> None:
        self._states[shard, replica].dirty = True
        self._planner.marks = True
        self.on_fault(ShardId(shard), ReplicaId(replica))
