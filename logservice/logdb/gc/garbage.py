"""Garbage: which segments can go, and what must be copied out of them first.

A segment can go when no live entry and no newest record of any kind is in it. Those that hold few
live bytes are emptied by copying: every copy keeps its write sequence (INV-REC-1), so replay cannot
take old for new. What is small and pins a file for ever otherwise (hard state, bootstrap, installed
snapshot, tombstones, fault marks, cuts) is always copied, so no idle shard pins anything.

`collection` carries it out in slices. Extra writes are bounded: with a live ratio r, a byte freed
costs at most ``r / (1 - r)`` bytes of copies.

How many bytes of files there are follows from INV-GC-SPACE. Sealed segments take at most
``live / r``, and those that wait come on top. Let B be `rewrite_bytes_max`, and S the size of the
largest segment. A collection that lets one wait plans more than ``B - r * S`` bytes of copies,
which free at least ``(B - r * S) / r`` bytes of files. With the default settings that is 192 MiB,
64 MiB where old segments go, and 21 MiB where removals pay (r is up to 3/4 there). New segments
line up behind the one that waits, so its turn comes after at most ``L / (B - r * S) + 1``
collections, if L bytes live in the older ones that can go. One in which more than B lives waits
until it is the oldest of them. No such bound holds for one log: what lives beside it may keep its
segments.

A truncation takes the oldest bytes of a log, and the logs beside it are truncated, too, sooner or
later, so it pays to wait until little is alive. The removal of a replica (its log was deleted, or
it moved to another store) takes bytes of every age, says nothing about the logs beside it, and is
meant to free space now. So a removal pays for copies by itself: LOGDB_REWRITE_FOR_REMOVED bytes for
each byte that it took, in the segment that it took it from (INV-GC-REMOVED). What removals took is
counted in memory. After a start only the live ratios count for what was removed before it.

- INV-GC-SPACE: a sealed segment outlives a finished collection only if its live bytes are above its
  live ratio, or somebody reads it, or a faulty replica has entries in it, or it waits its turn:
  something lives in it, older segments were emptied, and what lived in those and lives in this one
  is together more than `rewrite_bytes_max`; or its copies have no room (INV-GC-ROOM). What groups
  left unused at their ends counts like garbage. A dead segment never waits.
- INV-GC-ROOM: while the disk has room for less than `rewrite_bytes_max`, only copies that fit are
  planned. Else no collection would be finished, and nothing would ever be freed there. What needs
  no copies goes, and then whatever fits, whether or not an older segment waits for more room. If
  nothing can go, the segment with the fewest live bytes is tried. What a collection frees pays for
  the next one, which follows at once (`GcReport.pays_for_more`). Nothing is collected while the
  derived index has no room.
- INV-GC-REMOVED: above the live ratios a segment is emptied only if at most so many bytes live in
  it for each byte that removals of replicas took out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from logservice_wire.value import value

from logservice.bounds import LOGDB_REWRITE_OLD_SEGMENTS
from logservice.entry import Entry
from logservice.invariants import invariant
from logservice.logdb.checkpoint.checkpoint import LogPosition
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.fault import REPAIRED
from logservice.logdb.format.record import Installed, Meta, MetaValue, RecordKind
from logservice.logdb.index.index import SegmentUsage
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.options import LogDbOptions

LEFT_FOR_NEXT: Final = "left for the next collection"


@value
class Pin:
    """Why a segment stays, and how many bytes of live entries it holds."""

    segment: int
    size: int
    live_bytes: int
    reason: str


@dataclass(slots=True)
class GcReport:
    """What one collection did. freed_bytes: file bytes of `unlinked`. short_of_room: the disk had
    room for fewer copies than a collection may make.
    """

    unlinked: tuple[int, ...] = ()
    freed_bytes: int = 0
    rewritten_records: int = 0
    rewritten_bytes: int = 0
    pinned: tuple[Pin, ...] = ()
    short_of_room: bool = False

    @property
    def pays_for_more(self) -> bool:
        """Segments were left because there was no room for their copies, and now there is more."""
        left = any(pin.reason == LEFT_FOR_NEXT for pin in self.pinned)
        return self.short_of_room and left and self.freed_bytes > self.rewritten_bytes


@dataclass(slots=True)
class GarbagePlan:
    """victims: segments to empty and remove. pinned: the others."""

    victims: list[int] = field(default_factory=list)
    pinned: list[Pin] = field(default_factory=list)


def plan_garbage(
    sizes: Mapping[int, int],
    usage: SegmentUsage,
    active: int,
    faulty: frozenset[int],
    read: Callable[[int], bool],
    condemned: Collection[int],
    options: LogDbOptions,
    copies_max: int,
) -> GarbagePlan:
    """Choose victims among the sealed segments, oldest first, within `copies_max` bytes of copies.

    The first segment worth copying is taken whatever its bytes, so that there is always progress,
    but not while the disk has less room than a collection may fill (INV-GC-ROOM).
    faulty: segments with entries of faulty replicas. read: whether somebody is reading a segment.
    condemned: damaged segments. Each is worth emptying however much is alive in it, but only once
    nothing older is left: the first group of a segment says where the segment before it ends, and
    only that tells a rebuild of the derived index whether the end of the earlier one is lost. The
    newest file stays until there is a newer one (after a start `active` does not exist yet): it may
    hold nothing but the durable mark, which tells the newest group from a torn one.
    """
    plan = GarbagePlan()
    active = min(active, max(sizes, default=active))
    budget = copies_max
    first = copies_max >= options.rewrite_bytes_max
    oldest = True
    for segment in sorted(sizes):
        live, size = usage.live_bytes(segment), sizes[segment]
        reason = _pin_reason(segment, size, usage, active, faulty, options)
        if reason == "mostly live" and oldest and segment in condemned:
            reason = ""
        if not reason and read(segment):
            reason = "being read"
        elif not reason and live > max(0, budget) and not first:
            reason = LEFT_FOR_NEXT
        if reason:
            plan.pinned.append(Pin(segment, size, live, reason))
            oldest = False
            continue
        budget -= live
        first = first and not live
        plan.victims.append(segment)
    left = [pin for pin in plan.pinned if pin.reason == LEFT_FOR_NEXT]
    if left and not plan.victims:
        least = min(left, key=lambda pin: pin.live_bytes)
        plan.pinned.remove(least)
        plan.victims.append(least.segment)
    return plan


def mostly_garbage(usage: SegmentUsage, newest: LogPosition) -> bool:
    """Whether less than half of what was written to the newest segment is alive. On a full disk it
    then pays to end the segment, so that the next collection can free it.
    """
    return usage.live_bytes(newest.segment) * 2 < newest.offset


def why_kept(
    segment: int,
    files: SegmentFiles,
    usage: SegmentUsage,
    active: int,
    states: Iterable[ReplicaState],
    options: LogDbOptions,
) -> str:
    """For people: why a segment is still there; empty when it is not."""
    size = files.sizes.get(segment)
    if size is None:
        return ""
    if files.pinned(segment):
        return "being read"
    reason = _pin_reason(segment, size, usage, active, faulty_segments(states), options)
    return reason or "waiting for the next collection"


def _pin_reason(
    segment: int,
    size: int,
    usage: SegmentUsage,
    active: int,
    faulty: frozenset[int],
    options: LogDbOptions,
) -> str:
    """Why the segment cannot go, or is not worth emptying; empty when it can, and is."""
    if segment >= active:
        return "being written"
    if segment in faulty:
        return "entries of a faulty replica"
    old = active - segment >= LOGDB_REWRITE_OLD_SEGMENTS
    ratio = options.rewrite_old_live_ratio if old else options.rewrite_live_ratio
    paid = options.rewrite_for_removed * usage.taken_bytes(segment)
    if usage.live_bytes(segment) > max(size * ratio, paid):
        return "mostly live"
    return ""


def faulty_segments(states: Iterable[ReplicaState]) -> frozenset[int]:
    """Segments with entries of faulty replicas: evidence, and perhaps the last good copy."""
    return frozenset(
        chunk.segment for state in states if state.faulty for chunk in state.index.chunks
    )


def runs_of_records(state: ReplicaState, victims: set[int], oldest: int) -> list[RecordRun]:
    """Copies of what is still the newest of its kind in `victims`, entries aside.

    `oldest`: the oldest segment that exists now; cuts born there are not needed any more.
    """
    runs = []
    for kind, origin in sorted(state.origins.items()):
        if origin.segment in victims:
            meta = Meta(kind, origin.write_sequence, _value(state, kind))
            runs.append(RecordRun(state.shard, state.replica, origin.write_sequence, [meta]))
    for cut in state.cuts:
        if cut.segment in victims and cut.born > oldest:
            meta = Meta(RecordKind.CUT, cut.write_sequence, cut.index)
            runs.append(RecordRun(state.shard, state.replica, cut.write_sequence, [meta]))
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


def runs_of_entries(state: ReplicaState, entries: list[tuple[int, Entry]]) -> list[RecordRun]:
    """Copies of entries, given with their write sequences: one run per stretch without a gap.

    A gap in the sequences may hide a record that cut the log in between; copies must not close it.
    """
    runs: list[RecordRun] = []
    stretch: list[Entry] = []
    start = 0
    for sequence, entry in entries:
        if stretch and sequence != start + len(stretch):
            runs.append(RecordRun(state.shard, state.replica, start, [], tuple(stretch)))
            stretch = []
        if not stretch:
            start = sequence
        stretch.append(entry)
    if stretch:
        runs.append(RecordRun(state.shard, state.replica, start, [], tuple(stretch)))
    return runs
