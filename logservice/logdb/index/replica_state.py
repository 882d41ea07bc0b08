"""ReplicaState: everything durable about one replica, and how a run of records changes it.

The same `apply` serves a group that was just written and, for what is not an entry, recovery. Of
every kind only the newest record counts; `Origin` remembers which segment holds it, because that
segment must not go before the record was copied.

- INV-STATE-1: terms never fall, a vote never changes within a term, commit never falls. `plan`
  checks it before anything is written (INV-PLAN-TERM, INV-PLAN-VOTE, INV-PLAN-COMMIT).
- INV-STATE-2: a *cut* (an overwrite or a reset at write sequence w from index i on) is
  remembered while a segment older than the one it was made in exists: entries with smaller
  sequences may still lie there, and whatever superseded them may be collected first.
- INV-STATE-3: damage found while a mark, or the end of a repair, is on its way to the disk is
  neither forgotten nor made less by it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logservice.hard_state import HardState
from logservice.ids import Index
from logservice.invariants import invariant
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.record import (
    COMMIT,
    CUT,
    FAULTY,
    INSTALLED,
    Installed,
    Meta,
    RecordKind,
)
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot
from logservice.logdb.index.entry_cache import CachedEntries
from logservice.logdb.index.index import EntryIndex

Key = tuple[int, int]
"""(shard, replica)."""


@dataclass(slots=True)
class Origin:
    """Where the newest record of a kind is. Belongs to one state, which moves it on."""

    write_sequence: int
    segment: int


@dataclass(frozen=True, slots=True)
class Cut:
    """Entries at or after `index` with a smaller write sequence are dead.

    segment: where a record that says so is; born: the segment it was first said in.
    """

    write_sequence: int
    index: Index
    segment: int
    born: int


@dataclass(slots=True)
class ReplicaState:
    """The durable state of one replica."""

    shard: int
    replica: int
    hard_state: HardState = field(default_factory=HardState)
    bootstrap: Bootstrap | None = None
    installed: InstalledSnapshot | None = None
    removed: bool = False
    fault: Fault | None = None
    marked: Fault | None = None
    """The fault that the newest mark on disk names."""
    origins: dict[RecordKind, Origin] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    index: EntryIndex = field(default_factory=EntryIndex)
    dirty: bool = True
    saved: dict[RecordKind, int] = field(default_factory=dict)
    """Large records that have a row in the derived index: kind -> write sequence."""
    cached: CachedEntries | None = None
    """The newest entries, in memory; None before `LogDb.log` was asked for the log. `LogDb` puts
    them in when they are durable; an installed snapshot takes them out.
    """

    def __post_init__(self) -> None:
        self.index.key = self.key

    @property
    def key(self) -> Key:
        """(shard, replica)."""
        return self.shard, self.replica

    @property
    def exists(self) -> bool:
        """Whether anything about it is on disk, or is known to have been; a tombstone aside.

        A replica of which all is lost must stay known as faulty: as an absent one it would begin
        anew under its old id.
        """
        return bool(self.origins or self.index.chunks or self.fault) and not self.removed

    @property
    def faulty(self) -> str:
        """Why its data cannot be trusted; empty when it can."""
        return "" if self.fault is None else self.fault.reason

    def blame(self, fault: Fault) -> bool:
        """Note damage; returns whether that says more than what was known of it."""
        joined = fault if self.fault is None else self.fault.joined(fault)
        if joined == self.fault:
            return False
        self.fault, self.dirty = joined, True
        return True

    def apply(self, run: RecordRun) -> None:
        """Take in a run that was written after everything known so far."""
        self.dirty = True
        for meta in run.metas:
            found = self.fault
            self.apply_meta(meta, run.segment)
            if meta.kind is FAULTY and found not in (None, meta.value, run.repair):
                self.fault = found  # INV-STATE-3
            if meta.kind is INSTALLED and isinstance(meta.value, Installed):
                snapshot = meta.value.snapshot.snapshot
                if meta.value.reset:
                    self.add_cut(Cut(meta.write_sequence, Index(0), run.segment, run.segment))
                    self.index.cut(0)
                self.index.compact(snapshot.index, snapshot.term, snapshot.next_lsn)
                if self.cached is not None:
                    self.cached.cut(self.index.last_index + 1)
                    self.cached.drop_through(self.index.floor_index)
        entries, index = run.entries, self.index
        if entries:
            first, sequence = entries[0].index, run.write_sequence + len(run.metas)
            if first <= index.last_index:
                self.add_cut(Cut(sequence, first, run.segment, run.segment))
                index.cut(first)
            index.add(entries, run.segment, run.offset, sequence, run.overhead)
            if self.fault is not None and run.repair is None:
                self.fault = self.fault.reaching(index.last_index)  # INV-FAULT-1

    def apply_meta(self, meta: Meta, segment: int) -> None:
        """Take in one record that is not an entry, unless a newer one of its kind is known.

        A copy with the same write sequence counts as newer. Does not touch the index.
        INV-STATE-CUT: the value of a cut's record is the index that it cuts at.
        """
        kind, value, sequence = meta.kind, meta.value, meta.write_sequence
        if kind is CUT:
            invariant(isinstance(value, int), "INV-STATE-CUT", value=value)
            assert isinstance(value, int)
            self.add_cut(Cut(sequence, value, segment, segment))
            return
        known = self.origins.get(kind)
        if known is not None and known.write_sequence > sequence:
            return
        if known is None:
            self.origins[kind] = Origin(sequence, segment)
        else:
            known.write_sequence, known.segment = sequence, segment
        if kind is COMMIT:
            assert isinstance(value, int)
            hard = self.hard_state
            if value > hard.commit:
                self.hard_state = HardState(hard.term, hard.vote, value)
        elif isinstance(value, HardState):
            commit = Index(max(value.commit, self.hard_state.commit))
            self.hard_state = HardState(value.term, value.vote, commit)
        elif isinstance(value, Bootstrap):
            self.bootstrap = value
        elif isinstance(value, Installed):
            self.installed = value.snapshot
        elif kind is RecordKind.TOMBSTONE:
            self.removed = True
        elif isinstance(value, Fault):
            self.fault = self.marked = value if value.reason else None

    def relocate(self, run: RecordRun) -> None:
        """Copies of live records were made: point at them instead of the originals."""
        self.dirty = True
        for meta in run.metas:
            if meta.kind is CUT:
                self.cuts = [
                    Cut(c.write_sequence, c.index, run.segment, c.born)
                    if c.write_sequence == meta.write_sequence
                    else c
                    for c in self.cuts
                ]
            else:
                self.origins[meta.kind] = Origin(meta.write_sequence, run.segment)
        if run.entries:
            self.index.relocate(
                EntryColumns.of(
                    run.entries, run.segment, run.offset, run.write_sequence, run.overhead
                )
            )

    def clear(self) -> None:
        """Forget everything but the tombstone."""
        self.index.clear()
        self.hard_state, self.bootstrap, self.installed = HardState(), None, None
        self.fault = self.marked = None
        self.cuts = []
        self.cached = None
        tombstone = self.origins.get(RecordKind.TOMBSTONE)
        self.origins = {} if tombstone is None else {RecordKind.TOMBSTONE: tombstone}

    def unsaved(self, kind: RecordKind) -> bool:
        """Whether the newest record of the kind lacks its row; from now on it has one."""
        sequence = self.origins[kind].write_sequence
        if self.saved.get(kind) == sequence:
            return False
        self.saved[kind] = sequence
        return True

    def add_cut(self, cut: Cut) -> None:
        """Remember a cut; those it makes superfluous go."""
        kept = [
            c for c in self.cuts if c.write_sequence > cut.write_sequence or c.index < cut.index
        ]
        if not any(c.write_sequence >= cut.write_sequence and c.index <= cut.index for c in kept):
            kept.append(cut)
        kept.sort(key=lambda c: c.write_sequence)
        self.cuts = kept

    def forget_cuts(self, oldest_segment: int) -> None:
        """No segment before `oldest_segment` is left: cuts born there or earlier are done."""
        kept = [cut for cut in self.cuts if cut.born > oldest_segment]
        if len(kept) != len(self.cuts):
            self.cuts = kept
            self.dirty = True
