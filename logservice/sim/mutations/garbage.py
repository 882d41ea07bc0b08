"""Seeded bugs of garbage collection: what stays that has to go, and what is not counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from logservice.logdb import log_db
from logservice.logdb.gc.garbage import LEFT_FOR_NEXT, GarbagePlan, Pin
from logservice.logdb.index.index import EntryIndex, SegmentUsage
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.segment_writer import SegmentWriter
from logservice.sim.config import SimConfig
from logservice.sim.mutations.registry import mutation, mutation_in, wrap


def _busy(config: SimConfig) -> None:
    """Small segments, of which many have something that lives and may go."""
    config.segment_bytes, config.rewrite_live_ratio = 4096, 0.9
    config.truncates, config.truncation_interval_s = True, 0.5
    config.operations_per_s = 20.0


def _full(config: SimConfig) -> None:
    """Disks that are full again and again, too."""
    _busy(config)
    config.calm, config.disk_full_interval_s = False, 1.0


def _planned(change: Any, *, overdrawn: bool = False) -> None:
    """Leave of each plan what `change` says. overdrawn: the first segment is always taken."""

    def mutate(original: Any) -> Any:
        def plan(
            sizes: Any,
            usage: Any,
            active: Any,
            faulty: Any,
            read: Any,
            condemned: Any,
            options: Any,
            copies_max: Any,
        ) -> GarbagePlan:
            if overdrawn:
                options = replace(options, rewrite_bytes_max=copies_max)
            plan: GarbagePlan = original(
                sizes, usage, active, faulty, read, condemned, options, copies_max
            )
            for segment in change(plan, usage, copies_max):
                plan.victims.remove(segment)
                live = usage.live_bytes(segment)
                plan.pinned.append(Pin(segment, sizes[segment], live, LEFT_FOR_NEXT))
            return plan

        return plan

    wrap(log_db, "plan_garbage", mutate)


@mutation
def _dead_segment_is_skipped() -> None:
    def change(plan: GarbagePlan, usage: SegmentUsage, _: int) -> list[int]:
        return [one for one in plan.victims if not usage.live_bytes(one)][-1:]

    _planned(change)


@mutation_in(_full)
def _dead_segments_wait_for_copies_out_of_older_ones() -> None:
    """As it was: the first segment overdraws the budget, also where the disk has no room."""

    def change(plan: GarbagePlan, usage: SegmentUsage, budget: int) -> list[int]:
        left = []
        for segment in plan.victims:
            budget -= usage.live_bytes(segment)
            if budget < 0 and not usage.live_bytes(segment):
                left.append(segment)
        return left

    _planned(change, overdrawn=True)


@mutation_in(_busy)
def _collection_copies_half_of_its_budget() -> None:
    def change(plan: GarbagePlan, usage: SegmentUsage, budget: int) -> list[int]:
        copies, left = 0, []
        for segment in plan.victims:
            live = usage.live_bytes(segment)
            if live and copies and copies + live > budget // 2:
                left.append(segment)
            else:
                copies += live
        return left

    _planned(change)


@mutation
def _emptied_segment_stays_on_the_disk() -> None:
    wrap(SegmentFiles, "remove", lambda _: lambda self, segments: None)
    wrap(SegmentWriter, "_remove", lambda _: lambda self, segments: None)


@mutation
def _installed_snapshot_frees_no_bytes() -> None:
    """As long as something else lives in the segment."""

    def mutate(original: Any) -> Any:
        def compact(self: EntryIndex, index: int, term: int, next_lsn: int) -> None:
            usage, self.usage = self.usage, _Deaf(self.usage)
            try:
                original(self, index, term, next_lsn)
            finally:
                self.usage = usage

        return compact

    wrap(EntryIndex, "compact", mutate)


class _Deaf(SegmentUsage):
    """Counts chunks, and no bytes."""

    __slots__ = ("_inner",)

    def __init__(self, inner: SegmentUsage) -> None:
        super().__init__()
        self._inner = inner

    def add(self, segment: int, live_bytes: int, chunks: int) -> None:
        self._inner.add(segment, 0, chunks)
