"""Segments: which of them a garbage collection may leave, and what may be on the disk.

INV-GC-SPACE, seen from outside, at every collection that any store finishes. What a segment holds
is counted here from where the logs begin and end, and not believed of the counters by which the
collector chooses. So a snapshot that was installed and frees nothing is found, too.

A segment that may be emptied and stays is no alarm by itself: older ones may have used up the
budget of copies (seeds 29202 and 29212, with a live ratio of 0.9, where each waits for up to seven
collections). It is one if those cannot have used it up.

A chunk that a log's beginning cuts, and whose columns are not in memory, counts by an estimate that
is the collector's own. Nothing else of what is judged here is.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from logservice_wire.value import value

from logservice import bounds
from logservice.logdb.format.segment import SEGMENT_SUFFIX
from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.index.index import Chunk
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.config import SimConfig
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle

READ_COLLECTIONS_MAX: Final = 20
"""Collections in a row that a reader may keep a segment from: a read is over after a few delays of
a disk, also of a stalled one."""

_INDEX_SHARE: Final = 8
"""See `logdb.space.disk_space`."""

_LEFT: Final = ("being read", "entries of a faulty replica")
"""What may keep a segment that was chosen."""


@value
class _Sealed:
    """A sealed segment when a collection begins. live: bytes; 0: it is dead. limit: how many may
    live in one that goes.
    """

    segment: int
    live: int
    limit: float
    excused: bool

    @property
    def may_go(self) -> bool:
        return not self.excused and self.live <= self.limit


class SegmentsGo(Checker):
    """INV-GC-SPACE, INV-GC-ROOM; and no file of a segment is on the disk that nobody knows of."""

    name = "segments-go"

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._before: dict[str, tuple[GarbageCollection, list[_Sealed]]] = {}
        """Path of the segments -> what was there when the newest collection began."""
        self._read: Counter[tuple[str, int]] = Counter()
        """Collections in a row that left a segment to its readers."""

    def collecting(self, store: ObservedStore, collection: GarbageCollection) -> None:
        config, files = store.world.config, collection.files
        if files.vfs.free_bytes(files.directory) < config.reserve_bytes // _INDEX_SHARE:
            return  # nothing is collected there (seed 65000040)
        self._before[_where(store, collection)] = collection, _sealed(collection, config)

    def collected(self, store: ObservedStore, collection: GarbageCollection) -> None:
        where = _where(store, collection)
        known, before = self._before.pop(where, (None, []))
        if known is not collection:
            return
        left = {pin.segment for pin in collection.report.pinned if pin.reason in _LEFT}
        if collection.report.short_of_room:
            self._short_of_room(where, collection, before, left)
        else:
            budget = 4 * store.world.config.segment_bytes
            self._in_turn(where, collection, before, left, budget)
        self._count_readers(where, collection, before)
        if collection.report.unlinked and (lost := _unknown(collection)):
            self.wrong(f"{where}: files of segments {lost} stay, and nobody knows them")

    def _in_turn(
        self,
        where: str,
        collection: GarbageCollection,
        before: list[_Sealed],
        left: set[int],
        budget: int,
    ) -> None:
        copies = 0
        for one in before:
            if one.segment not in collection.files.sizes or one.segment in left:
                copies += one.live
            elif one.may_go and not (one.live and copies and copies + one.live > budget):
                self.wrong(
                    f"{where}: segment {one.segment} stays with {one.live} live bytes of at most"
                    f" {one.limit:.0f}, and {copies} in older ones that went, of {budget}"
                )

    def _short_of_room(
        self, where: str, collection: GarbageCollection, before: list[_Sealed], left: set[int]
    ) -> None:
        sizes = collection.files.sizes
        stay = [one for one in before if one.may_go and one.segment in sizes]
        if dead := [one.segment for one in stay if not one.live and one.segment not in left]:
            self.wrong(f"{where}: dead segments {dead} stay on a disk short of room")
        went = any(one.segment not in sizes for one in before)
        if stay and not went and not left:
            self.wrong(f"{where}: a finished collection freed none of {stay}")

    def _count_readers(
        self, where: str, collection: GarbageCollection, before: list[_Sealed]
    ) -> None:
        read = [pin.segment for pin in collection.report.pinned if pin.reason == "being read"]
        for one in before:
            key = (where, one.segment)
            if one.segment not in read:
                self._read.pop(key, None)
                continue
            self._read[key] += 1
            if self._read[key] > READ_COLLECTIONS_MAX:
                self.wrong(f"{where}: segment {one.segment} is being read all the time")


def _where(store: ObservedStore, collection: GarbageCollection) -> str:
    life = store.process.name if store.process is not None else store.store_id
    return f"{life}{collection.files.directory}"


def _unknown(collection: GarbageCollection) -> list[int]:
    """Segments on the disk that are none of the log's. The one being made may not be, yet."""
    files = collection.files
    names = [one for one in files.vfs.listdir(files.directory) if one.endswith(SEGMENT_SUFFIX)]
    on_disk = {int(name[: -len(SEGMENT_SUFFIX)], 16) for name in names}
    newest = max(files.sizes, default=0)
    return sorted(one for one in on_disk - files.sizes.keys() if one < newest)


def _sealed(collection: GarbageCollection, config: SimConfig) -> list[_Sealed]:
    """The sealed segments, oldest first. Nothing is known of the ratios but the settings."""
    files = collection.files
    if len(files.sizes) < 2:
        return []
    live: Counter[int] = Counter()
    faulty: set[int] = set()
    for state in collection.states.values():
        floor = state.index.floor_index
        for chunk in state.index.chunks:
            if state.faulty:
                faulty.add(chunk.segment)
            elif chunk.last > floor:
                live[chunk.segment] += _above(chunk, floor)
    newest = max(files.sizes, default=0)
    found = []
    for segment, size in sorted(files.sizes.items()):
        if segment < newest:
            old = newest - segment >= bounds.LOGDB_REWRITE_OLD_SEGMENTS
            ratio = bounds.LOGDB_REWRITE_OLD_LIVE_RATIO if old else config.rewrite_live_ratio
            excused = segment in faulty or files.pinned(segment)
            found.append(_Sealed(segment, live[segment], size * ratio, excused))
    return found


def _above(chunk: Chunk, floor: int) -> int:
    return chunk.size if chunk.first > floor else max(chunk.live, 1)
