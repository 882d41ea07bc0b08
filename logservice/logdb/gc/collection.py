"""GarbageCollection: one garbage collection, in steps small enough for a store under load.

Every step is bounded (LOGDB_COLLECT_SLICE_*) and made of three parts, so that its caller can keep
file work off the event loop and other commit groups between the steps:

    next_step, begin (loop thread)   decide, encode; no file call
    read             (any thread)    fetch the entries to be copied
    group            (any thread)    `LogDb.write`, like every commit group

On a full disk the rest of the newest segment may have been given up: it is cut off before all else.
Then one walk over all replicas copies what lives in the victims, in groups of a slice each; then
the derived index is written past the copies; then the victims' files go, one per step. What happens
between the steps can only take life out of the victims, never bring any in: new records go to
newer segments.

- INV-GC-1: copies are fdatasynced, and the derived index synced past them, before anything is
  removed.
- INV-GC-2: the segment being written, and segments with entries of a faulty replica, stay.
- INV-GC-3: a segment that somebody reads is neither removed nor overwritten; it is left for the
  next collection.
- INV-GC-4: nothing is live in a segment when it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from logservice_wire.errors import Halted

from logservice.bounds import LOGDB_COLLECT_SLICE_BYTES, LOGDB_COLLECT_SLICE_STEPS
from logservice.entry import Entry
from logservice.ids import Index
from logservice.invariants import invariant
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.record import RECORD_HEADER_BYTES, RecordCorrupt, RecordKind
from logservice.logdb.gc.garbage import (
    GarbagePlan,
    GcReport,
    Pin,
    runs_of_entries,
    runs_of_records,
)
from logservice.logdb.index.index import Chunk, SegmentUsage
from logservice.logdb.index.replica_state import Key, ReplicaState
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.read.entry_read import EntryRead
from logservice.logdb.segment_writer import CommitGroup


class CollectionHost(Protocol):
    """What a collection needs of its log."""

    def begin_copies(self, runs: list[RecordRun]) -> CommitGroup:
        """A group of copies."""
        ...

    def begin_upkeep(
        self, *, cut: tuple[int, int] | None = None, retired: Sequence[int] = (), checkpoint: bool
    ) -> CommitGroup:
        """A group without records that gives back the rest of a sealed segment, or removes some,
        behind a checkpoint if wanted.
        """
        ...

    def fault_found(self, key: Key, why: str, damaged_from: Index) -> None:
        """A replica's entries cannot be read."""
        ...

    def collected(self, collection: GarbageCollection) -> None:
        """Nothing is left to do."""
        ...


@dataclass(slots=True)
class Step:
    """One step. `read` before `begin`; the group is to be written and finished before the next."""

    _collection: GarbageCollection
    reads: list[EntryRead] = field(default_factory=list)
    states: list[ReplicaState] = field(default_factory=list)
    removes: int = 0
    cut: tuple[int, int] | None = None
    _found: list[list[tuple[int, Entry]] | Exception] = field(default_factory=list)

    def read(self) -> None:
        """Fetch the entries to copy; any thread. What fails is judged by `begin`."""
        vfs = self._collection.files.vfs
        for read in self.reads:
            read.ask(vfs)
        for read in self.reads:
            try:
                self._found.append(read.run(vfs))
            except (RecordCorrupt, OSError) as error:
                self._found.append(error)

    def begin(self) -> CommitGroup:
        """The step's group; perhaps an empty one."""
        if self.cut is not None:
            return self._collection.begin_cut(self.cut)
        if self.removes:
            return self._collection.begin_removal(self.removes)
        return self._collection.begin_copies(self.reads, self._found, self.states)


class GarbageCollection:
    """See the head of this file. All but `Step.read` and the groups' writing: loop thread."""

    def __init__(
        self,
        host: CollectionHost,
        plan: GarbagePlan,
        sealed: tuple[int, int] | None,
        states: dict[Key, ReplicaState],
        files: SegmentFiles,
        usage: SegmentUsage,
        bytes_rewritten: Callable[[], int],
    ) -> None:
        """Use `LogDb.begin_collection`."""
        self.files = files
        self.report = GcReport(pinned=tuple(plan.pinned))
        self._host = host
        self._sealed = sealed
        self._victims = set(plan.victims)
        self.states = states
        self._usage = usage
        self._bytes_rewritten = bytes_rewritten
        self._rewritten_before = bytes_rewritten()
        self._keys: Iterator[Key] = iter(list(states) if plan.victims else ())
        self._state: ReplicaState | None = None
        self._reached = 0
        self._walked = False
        self._checkpointed = False
        self._oldest = min(files.sizes, default=0)
        self._removing: tuple[int, int] | None = None

    def next_step(self) -> Step | None:
        """What to do next, None at the end."""
        self.report.rewritten_bytes = self._bytes_rewritten() - self._rewritten_before
        if self._removing is not None:
            segment, size = self._removing
            self.report.unlinked += (segment,)
            self.report.freed_bytes += size
            self._removing = None
        if self._sealed is not None:
            sealed, self._sealed = self._sealed, None
            return Step(self, cut=sealed)
        if not self._walked:
            step = self._walk()
            if step.reads or step.states or not self._walked:
                return step
        while self._victims:
            segment = min(self._victims)
            if not self.files.pinned(segment):
                return Step(self, removes=segment)
            self._leave(segment, "being read")
        oldest = min(self.files.sizes, default=0)
        for state in self.states.values():
            if state.cuts:
                state.forget_cuts(oldest)
        self._host.collected(self)
        return None

    # --- for Step ---------------------------------------------------------------------------------

    def begin_copies(
        self,
        reads: list[EntryRead],
        found: list[list[tuple[int, Entry]] | Exception],
        states: list[ReplicaState],
    ) -> CommitGroup:
        """Write what was read and is still live, and the newest other records of `states`."""
        runs: list[RecordRun] = []
        for read, entries in zip(reads, found, strict=True):
            self.files.unpin(read.segment)
            state = self.states[read.key]
            first, last = self._still_live(state, read)
            if first > last:
                continue  # what could not be read is no damage, either
            if isinstance(entries, Exception):
                self._host.fault_found(
                    read.key, f"copying entries from {first} on: {entries}", Index(first)
                )
            if state.faulty or isinstance(entries, Exception):
                # Or the scrub found it since: a faulty replica's entries stay where they are.
                self._leave(read.segment, "entries of a faulty replica")
            else:
                live = entries[first - read.first : last - read.first + 1]
                runs += runs_of_entries(state, live)
        for state in states:
            runs += runs_of_records(state, self._victims, self._oldest)
        self.report.rewritten_records += sum(run.record_count for run in runs)
        return self._host.begin_copies(runs)

    def begin_cut(self, sealed: tuple[int, int]) -> CommitGroup:
        """Give back what a sealed segment has not used."""
        return self._host.begin_upkeep(cut=sealed, checkpoint=False)

    def begin_removal(self, segment: int) -> CommitGroup:
        """Remove a victim; a checkpoint covers all copies before the first one goes."""
        self._victims.discard(segment)
        invariant(segment < max(self.files.sizes), "INV-GC-2", segment=segment)
        invariant(not self._usage.chunks(segment), "INV-GC-4", segment=segment)
        self._removing = segment, self.files.sizes[segment]
        checkpoint, self._checkpointed = not self._checkpointed, True
        return self._host.begin_upkeep(retired=(segment,), checkpoint=checkpoint)

    def _leave(self, segment: int, reason: str) -> None:
        """The victim stays after all."""
        if segment in self._victims:
            self._victims.discard(segment)
            live = self._usage.live_bytes(segment)
            self.report.pinned += (Pin(segment, self.files.sizes[segment], live, reason),)

    # --- the walk ---------------------------------------------------------------------------------

    def _walk(self) -> Step:
        """Go on over the replicas until the slice is full."""
        step = Step(self)
        looked_at = size = 0
        while looked_at < LOGDB_COLLECT_SLICE_STEPS and size < LOGDB_COLLECT_SLICE_BYTES:
            if self._state is None:
                key = next(self._keys, None)
                if key is None:
                    self._walked = True
                    break
                self._state, self._reached = self.states[key], 0
            looked_at += 1
            chunk = self._next_chunk(self._state)
            if chunk is None:
                size += self._snapshot_bytes(self._state)
                step.states.append(self._state)
                self._state = None
                continue
            self._reached = chunk.last
            if chunk.segment in self._victims:
                size += self._read(step, self._state, chunk, LOGDB_COLLECT_SLICE_BYTES - size)
        return step

    def _snapshot_bytes(self, state: ReplicaState) -> int:
        """Bytes of the one record besides entries that may be large, if it must be copied."""
        origin = state.origins.get(RecordKind.INSTALLED)
        if state.installed is None or origin is None or origin.segment not in self._victims:
            return 0
        return len(state.installed.snapshot.state)

    def _next_chunk(self, state: ReplicaState) -> Chunk | None:
        """The first chunk with entries behind those that were looked at."""
        index = state.index
        position = max(self._reached, index.floor_index) + 1
        return index.chunk(position) if position <= index.last_index else None

    def _read(self, step: Step, state: ReplicaState, chunk: Chunk, room: int) -> int:
        """Plan to copy live entries of a chunk, as many as fit; returns their bytes."""
        try:
            columns = state.index.columns(chunk)
        except Halted:
            columns = None
        if columns is None or state.faulty:
            self._leave(chunk.segment, "entries of a faulty replica")
            return 0
        first = max(chunk.first, state.index.floor_index + 1)
        low, high, size = first - chunk.first, 0, 0
        lengths = columns.lengths
        for high in range(low, len(columns)):
            if size >= room and high > low:
                break
            size += RECORD_HEADER_BYTES + lengths[high]
        else:
            high = len(columns)
        self._reached = chunk.first + high - 1
        step.reads.append(
            EntryRead(
                state.key,
                chunk.segment,
                self.files.seed(chunk.segment),
                self.files.pin(chunk.segment),
                first,
                columns.offsets[low:high],
                lengths[low:high],
                self.files.opener(chunk.segment),
            )
        )
        return size

    def _still_live(self, state: ReplicaState, read: EntryRead) -> tuple[int, int]:
        """The first and the last of those that neither a truncation nor an overwrite has taken
        since they were read; (1, 0) when none is left.

        Both leave a stretch: the one takes a prefix, the other all from some index on, and what
        replaces it lies in another segment.
        """
        index = state.index
        first = max(read.first, index.floor_index + 1)
        if first > min(read.last, index.last_index):
            return 1, 0
        chunk = index.chunk(first)
        if chunk.segment != read.segment:
            return 1, 0
        return first, min(read.last, chunk.last)
