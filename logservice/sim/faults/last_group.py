"""LastGroup: garbage over the last group of a segment, and over all that lies beside it.

The group is damaged beyond its header and its directory, so nothing in its place says that it was
there, or whose it was. It is struck only where something apart from it knows: the newest group when
the durable mark in its file names it, and the last group of an older segment when its successor was
collected and the newest segment says where it ends (then the derived index is lost as well). That
is so from cluster version 2 on. The checker `promises` finds a replica that goes on as if nothing
had been there.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from logservice import versions
from logservice.logdb.format.durable_mark import decode_mark
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES, SegmentEnds, segment_seed
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.segment_scan import ScannedGroup, scan_segment
from logservice.logdb.io.data_directory import IDENTITY_NAME, Identity
from logservice.logdb.io.mark_file import MARK_NAME
from logservice.logdb.io.vfs import PAGE_BYTES
from logservice.sim.interfaces import DATA_DIRECTORY, Store

_FOLDER = f"{DATA_DIRECTORY}/segments"


class LastGroup:
    """Strikes the first data directory of a store whose process is down."""

    def __init__(self, seed: int, count: Callable[[str], None]) -> None:
        """`count` is told what was struck."""
        self._chance = random.Random(f"last-group/{seed}")
        self._count = count

    def strike(self, store: Store) -> bool:
        """Strike, now and then, if there is such a group; whether it did."""
        disk, chance = store.disk, self._chance
        if chance.random() < 0.5 or not self._raised(store):
            return False
        names = [name for name in disk.listdir(_FOLDER) if name.endswith(".segment")]
        segments = sorted(int(name.partition(".")[0], 16) for name in names)
        named = self._named(store, segments[-1]) if segments else set()
        lonely = [one for one in segments[:-1] if one + 1 not in segments and one in named]
        if lonely and chance.random() < 0.7:
            segment, kind = chance.choice(lonely), "last group of an older segment"
            group = self._last(store, segment)
        else:
            group, kind = self._marked(store, segments), "marked newest group"
        if group is None:
            return False
        path = f"{_FOLDER}/{segment_name(group.position.segment)}"
        end = min(group.end + PAGE_BYTES, len(disk.image(path)))
        for place in range(group.position.offset, end):
            disk.flip(path, place, chance.randrange(1, 256))
        if kind != "marked newest group" or chance.random() < 0.5:
            disk.kv.destroy(f"{DATA_DIRECTORY}/index")
        self._count(kind)
        store.world.note("last-group", kind, store.store_id, path, group.position.offset)
        return True

    def _raised(self, store: Store) -> bool:
        path = f"{DATA_DIRECTORY}/{IDENTITY_NAME}"
        if not store.disk.exists(_FOLDER) or not store.disk.exists(path):
            return False
        identity = Identity.decode(store.disk.image(path))
        return identity.cluster_version > versions.FIRST

    def _named(self, store: Store, newest: int) -> set[int]:
        """The segments whose end the newest one says."""
        return {
            segment
            for group in self._groups(store, newest)
            for run in group.runs
            for meta in run.metas
            if isinstance(meta.value, SegmentEnds)
            for segment, _, _ in meta.value.ends
        }

    def _groups(self, store: Store, segment: int) -> list[ScannedGroup]:
        path, seed = f"{_FOLDER}/{segment_name(segment)}", segment_seed(store.incarnation, segment)
        view = memoryview(store.disk.image(path))
        return list(scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed).groups())

    def _last(self, store: Store, segment: int) -> ScannedGroup | None:
        groups = self._groups(store, segment)
        return groups[-1] if groups and groups[-1].intact else None

    def _marked(self, store: Store, segments: list[int]) -> ScannedGroup | None:
        """The newest group, if the newest mark names it."""
        path = f"{DATA_DIRECTORY}/{MARK_NAME}"
        if not segments or not store.disk.exists(path):
            return None
        image = store.disk.image(path)
        found = [decode_mark(image[at:], store.incarnation) for at in (0, PAGE_BYTES)]
        marks = [mark for mark in found if mark is not None]
        newest = self._last(store, segments[-1])
        if newest is None or not marks:
            return None
        last = max(marks, key=lambda mark: mark.sequence).last
        return newest if last.names(newest.position) else None
