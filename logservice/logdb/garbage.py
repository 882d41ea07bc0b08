"""Garbage: which segments can go, and what must be copied out of them first.

A segment can go when no live entry and no newest record of any kind is in it. Those that hold few
live bytes are emptied by copying: every copy keeps its write sequence (INV-REC-1), so replay cannot
take old for new. What is small and pins a file for ever otherwise (hard state, bootstrap, installed
snapshot, tombstones, fault marks, cuts) is always copied, so no idle shard pins anything.

- INV-GC-1: copies are fdatasynced, and the derived index synced past them, before anything is
  unlinked.
- INV-GC-2: the segment being written, and segments with entries of a faulty replica, stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from logservice_wire.errors import Halted

from logservice.entry import Entry
from logservice.invariants import invariant
from logservice.logdb.checkpoint import LogPosition
from logservice.logdb.commit_group import Run
from logservice.logdb.fault import REPAIRED
from logservice.logdb.record import Installed, Meta, MetaValue, RecordKind
from logservice.logdb.replica_state import ReplicaState
from logservice.value import value


@value
class Pin:
    """Why a segment stays. `live_bytes` of entries, of `replicas`."""

    segment: int
    size: int
    live_bytes: int
    replicas: tuple[tuple[int, int], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class GcReport:
    """What one collection did. freed_bytes: file bytes of `unlinked`."""

    unlinked: tuple[int, ...] = ()
    freed_bytes: int = 0
    rewritten_records: int = 0
    rewritten_bytes: int = 0
    pinned: tuple[Pin, ...] = ()


@dataclass(slots=True)
class _Usage:
    live_bytes: int = 0
    chunks: list[tuple[ReplicaState, int]] = field(default_factory=list)
    faulty: bool = False


@dataclass(slots=True)
class GarbagePlan:
    """victims: segments to empty and unlink. chunks: (replica, chunk number) to copy entries
    from.
    """

    victims: list[int] = field(default_factory=list)
    chunks: list[tuple[ReplicaState, int]] = field(default_factory=list)
    pinned: list[Pin] = field(default_factory=list)


def plan_garbage(
    states: Iterable[ReplicaState],
    sizes: Mapping[int, int],
    active: int,
    live_ratio: float,
    rewrite_bytes_max: int,
) -> GarbagePlan:
    """Choose victims among the sealed segments, oldest first, within `rewrite_bytes_max` of copies.

    The first segment worth copying is taken whatever its bytes, so that there is always progress.
    """
    usage = {segment: _Usage() for segment in sizes}
    for state in states:
        for number, chunk in enumerate(state.index.chunks):
            used = usage.setdefault(chunk.segment, _Usage())
            used.live_bytes += _live_bytes(state, number)
            used.chunks.append((state, number))
            used.faulty = used.faulty or bool(state.faulty)
    plan = GarbagePlan()
    budget = rewrite_bytes_max
    for segment in sorted(sizes):
        used, size = usage[segment], sizes[segment]
        reason = ""
        if segment >= active:
            reason = "being written"
        elif used.faulty:
            reason = "entries of a faulty replica"
        elif used.live_bytes > size * live_ratio:
            reason = "mostly live"
        elif used.live_bytes > budget and plan.chunks:
            reason = "left for the next collection"
        if reason:
            replicas = tuple(sorted({state.key for state, _ in used.chunks}))
            plan.pinned.append(Pin(segment, size, used.live_bytes, replicas, reason))
            continue
        budget -= used.live_bytes
        plan.victims.append(segment)
        plan.chunks += used.chunks
    return plan


def mostly_garbage(plan: GarbagePlan, newest: LogPosition) -> bool:
    """Less than half of what was written to the newest segment is alive: on a full disk it pays to
    end it, so that the next collection can free it.
    """
    return any(
        pin.segment == newest.segment and pin.live_bytes * 2 < newest.offset for pin in plan.pinned
    )


def _live_bytes(state: ReplicaState, number: int) -> int:
    """Live bytes of a chunk; all of it when nobody can tell (the replica is faulty then)."""
    try:
        return state.index.live_bytes(number)
    except Halted:
        return state.index.chunks[number].size


def runs_of_records(state: ReplicaState, victims: set[int], oldest: int) -> list[Run]:
    """Copies of what is still the newest of its kind in `victims`, entries aside.

    `oldest`: the oldest segment that exists now; cuts born there are not needed any more.
    """
    runs = []
    for kind, origin in sorted(state.origins.items()):
        if origin.segment in victims:
            meta = Meta(kind, origin.write_sequence, _value(state, kind))
            runs.append(Run(state.shard, state.replica, origin.write_sequence, [meta]))
    for cut in state.cuts:
        if cut.segment in victims and cut.born > oldest:
            meta = Meta(RecordKind.CUT, cut.write_sequence, cut.index)
            runs.append(Run(state.shard, state.replica, cut.write_sequence, [meta]))
    return runs


def _value(state: ReplicaState, kind: RecordKind) -> MetaValue:
    match kind:
        case RecordKind.HARD_STATE:
            return state.hard_state
        case RecordKind.COMMIT:
            return state.hard_state.commit
        case RecordKind.BOOTSTRAP:
            return state.bootstrap
        case RecordKind.INSTALLED:
            invariant(state.installed is not None, "INV-GC-INSTALLED", key=state.key)
            assert state.installed is not None
            return Installed(state.installed, reset=False)
        case RecordKind.FAULTY:
            return state.fault or REPAIRED
        case _:
            return None


def runs_of_entries(state: ReplicaState, entries: list[tuple[int, Entry]]) -> list[Run]:
    """Copies of entries, given with their write sequences: one run per stretch without a gap.

    A gap in the sequences may hide a record that cut the log in between; copies must not close it.
    """
    runs: list[Run] = []
    stretch: list[Entry] = []
    start = 0
    for sequence, entry in entries:
        if stretch and sequence != start + len(stretch):
            runs.append(Run(state.shard, state.replica, start, [], tuple(stretch)))
            stretch = []
        if not stretch:
            start = sequence
        stretch.append(entry)
    if stretch:
        runs.append(Run(state.shard, state.replica, start, [], tuple(stretch)))
    return runs
