"""Only the newest bytes of a log stay in the page cache; nothing depends on it but speed."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from logservice.bounds import LOGDB_CACHED_BYTES
from logservice.ids import Index
from logservice.logdb.io.cached_tail import PIECE_BYTES, CachedTail
from logservice.logdb.io.memory_vfs import MemoryVfs
from tests.logdb.helpers import SMALL, entries, log_of, real_world, update
from tests.logdb.page_cache import cached_pages, need_page_cache

MIB = 1 << 20


class Watched(MemoryVfs):
    """Notes what is not needed, by the file it is in."""

    def __init__(self, segments: Sequence[int]) -> None:
        super().__init__()
        self.handed_back: list[tuple[str, int, int]] = []
        self.open: dict[int, str] = {}
        self.broken = False
        self.make_directory("d")
        for segment in segments:
            self.close(self.create(path(segment)))

    def open_read(self, path: str) -> int:
        handle = super().open_read(path)
        self.open[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self.open.pop(handle, None)
        super().close(handle)

    def not_needed(self, handle: int, size: int, offset: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, "broken")
        self.handed_back.append((self.open[handle], offset, size))


def path(segment: int) -> str:
    return f"d/{segment}"


def test_nothing_is_handed_back_until_a_piece_is_too_much() -> None:
    vfs = Watched([1])
    tail = CachedTail(vfs, path)
    tail.wrote(1, LOGDB_CACHED_BYTES)
    tail.wrote(1, LOGDB_CACHED_BYTES + PIECE_BYTES - 1)
    assert not vfs.handed_back
    tail.wrote(1, LOGDB_CACHED_BYTES + PIECE_BYTES)
    assert vfs.handed_back == [("d/1", 0, PIECE_BYTES)]
    assert not vfs.open


def test_the_oldest_goes_first_through_all_segments() -> None:
    vfs = Watched([1, 2, 3])
    tail = CachedTail(vfs, path, 2 * MIB)
    for segment in (1, 2, 3):
        for end in range(MIB // 2, 5 * MIB // 2 + 1, MIB // 2):
            tail.wrote(segment, end)
    assert vfs.handed_back == [
        ("d/1", 0, MIB),
        ("d/1", MIB, MIB),
        ("d/1", 2 * MIB, MIB // 2),
        ("d/2", 0, MIB),
        ("d/2", MIB, MIB),
        ("d/2", 2 * MIB, MIB // 2),
    ]


def test_one_large_group_hands_back_as_much_as_it_brings() -> None:
    vfs = Watched([1, 2])
    tail = CachedTail(vfs, path, MIB)
    tail.wrote(1, 4 * MIB)
    assert [offset for _, offset, _ in vfs.handed_back] == [0, MIB, 2 * MIB]
    tail.wrote(2, 3 * MIB)
    assert vfs.handed_back[3:] == [("d/1", 3 * MIB, MIB), ("d/2", 0, MIB), ("d/2", MIB, MIB)]


@pytest.mark.parametrize(
    ("retired", "more", "next_piece"), [(1, 2, ("d/2", 0)), (2, 4, ("d/1", 2))]
)
def test_what_was_retired_counts_no_more_and_is_left_alone(
    retired: int, more: int, next_piece: tuple[str, int]
) -> None:
    """Two segments of 3 MiB, of which 4 stay: of the first one only the last MiB is cached."""
    vfs = Watched([1, 2, 3])
    tail = CachedTail(vfs, path, 4 * MIB)
    tail.wrote(1, 3 * MIB)
    tail.wrote(2, 3 * MIB)
    assert vfs.handed_back == [("d/1", 0, MIB), ("d/1", MIB, MIB)]
    tail.gone(retired)
    tail.gone(retired)
    tail.wrote(3, more * MIB - 1)
    assert len(vfs.handed_back) == 2
    tail.wrote(3, more * MIB)
    assert vfs.handed_back[2:] == [(next_piece[0], next_piece[1] * MIB, MIB)]


def test_where_nothing_stays_each_byte_is_handed_back_once() -> None:
    vfs = Watched([1, 2])
    tail = CachedTail(vfs, path, 0)
    tail.wrote(1, MIB)
    tail.wrote(2, MIB)
    tail.wrote(2, 2 * MIB)
    assert vfs.handed_back == [("d/1", 0, MIB), ("d/2", 0, MIB), ("d/2", MIB, MIB)]


def test_a_segment_whose_file_is_gone_is_passed_over() -> None:
    vfs = Watched([1, 2])
    tail = CachedTail(vfs, path, 0)
    vfs.unlink(path(1))
    tail.wrote(1, 3 * MIB)
    tail.wrote(2, MIB)
    assert vfs.handed_back == [("d/2", 0, MIB)]


def test_a_disk_that_takes_no_advice_is_written_to_all_the_same() -> None:
    vfs = Watched([1])
    vfs.broken = True
    tail = CachedTail(vfs, path, 0)
    tail.wrote(1, 2 * MIB)
    assert not vfs.handed_back
    assert not vfs.open
    vfs.broken = False
    tail.wrote(1, 3 * MIB)
    assert vfs.handed_back == [("d/1", 2 * MIB, MIB)]


def test_the_pages_of_a_real_log_leave_the_cache(tmp_path: Path) -> None:
    """Eight segments of 4 MiB, of which the newest 8 MiB stay; all are read back."""
    need_page_cache(tmp_path)
    world = real_world(
        str(tmp_path / "d"), replace(SMALL, segment_bytes=4 * MIB, cached_bytes=8 * MIB)
    )
    db = world.open()
    written = entries(1, 64, size=MIB // 2)
    for one in written:
        db.commit([update(1, 1, [one])])
    cached = [sum(pages) / len(pages) for pages in map(cached_pages, map(Path, world.segments()))]
    assert len(cached) >= 8
    assert max(cached[:6]) < 0.1
    assert cached[-2] > 0.5
    log = log_of(db)
    fetch = log.fetch(Index(1), Index(65), 1 << 30)
    fetch.run()
    log.end_fetch(fetch)
    assert tuple(log.fetched(fetch)) == written
    world.close(db)
