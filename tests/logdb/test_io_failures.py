"""The nth file operation fails, for every n: the store stops, and loses nothing that was acked."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from logservice_wire.errors import LogServiceError

from logservice.logdb.io.kv import KvError
from logservice.logdb.log_db import LogDb
from logservice.logdb.space.disk_space import OutOfSpace
from tests.logdb.helpers import World, entries, log_of, picture, update
from tests.logdb.test_crash_states import durable

OPERATIONS = (
    "create",
    "open_read",
    "open_write",
    "pread",
    "pwritev",
    "fdatasync",
    "sync_written",
    "preallocate",
    "truncate",
    "rename",
    "unlink",
    "fsync_directory",
    "listdir",
    "make_directory",
    "lock",
)


class FailingIo:
    """Makes operation number `number` of a world fail, once or from then on."""

    def __init__(self, world: World, number: int, code: int, *, for_good: bool) -> None:
        self.count = 0
        self.number = number
        self.code = code
        self.for_good = for_good
        self.failed = False
        for name in OPERATIONS:
            setattr(world.memory, name, self._counted(getattr(world.memory, name)))
        world.kv.before_write = self._step  # type: ignore[attr-defined]

    def _step(self) -> None:
        self.count += 1
        if self.count == self.number or (self.for_good and self.count > self.number):
            self.failed = True
            raise OSError(self.code, os.strerror(self.code))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            self._step()
            return call(*arguments, **named)

        return counted


def plain(world: World, acked: list[dict[object, object]]) -> None:
    """Open, write over several segments, overwrite, compact, collect, close, open again."""
    db = world.open()
    acked.append(durable(db))
    for first in range(1, 31, 3):
        commit(db, acked, update(1, 1, entries(first, first + 2, size=400), hard=(1, 1, 0)))
    commit(db, acked, update(2, 2, entries(1, 3), bootstrap=True))
    commit(db, acked, update(1, 1, entries(29, 30, term=2), hard=(2, 1, 25)))
    commit(db, acked, update(1, 1, snapshot=25))
    db.collect_garbage()
    commit(db, acked, update(2, 2, remove=True))
    world.close(db)
    db = world.open()
    acked.append(durable(db))
    world.close(db)


def groups_ahead(world: World, acked: list[dict[object, object]]) -> None:
    """Begin groups while another is at the disk, in recycled segments."""
    db = world.open()
    acked.append(durable(db))
    for first in range(1, 13, 3):
        commit(db, acked, update(1, 1, entries(first, first + 2, size=900), hard=(1, 1, 0)))
    commit(db, acked, update(1, 1, snapshot=11))
    db.collect_garbage()
    group = db.begin([update(1, 1, entries(13, 13, size=400))])
    begun = 0
    for index in range(14, 26):
        following = [update(1, 1, entries(index, index, size=400))]
        ahead = db.begin_ahead(following)
        acked.append({})
        db.write(group)
        db.finish(group)
        acked[-1] = durable(db)
        begun += ahead is not None
        group = ahead or db.begin(following)
    assert begun > 3
    assert db.stats().segments_recycled > 1
    world.close(db)


def commit(db: LogDb, acked: list[dict[object, object]], change: object) -> None:
    acked.append({})
    db.commit([change])  # type: ignore[list-item]
    acked[-1] = durable(db)


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("scenario", [plain, groups_ahead])
def test_every_nth_operation_fails(
    scenario: Callable[[World, list[dict[object, object]]], None], code: int, for_good: bool
) -> None:
    number = 0
    while True:
        number += 1
        world = World()
        failing = FailingIo(world, number, code, for_good=for_good)
        acked: list[dict[object, object]] = []
        stopped = True
        try:
            scenario(world, acked)
            stopped = False
        except (OSError, KvError, LogServiceError):
            pass
        if not failing.failed:
            break
        assert stopped or not for_good
        failing.number = 1 << 60
        for power_cut in (False, True):
            reopened = world.copy()
            if power_cut:
                reopened.memory.crash()
            else:
                reopened.memory.kill()
            db = reopened.open()
            seen = durable(db)
            certain = [picture for picture in acked if picture]
            unknown = bool(acked) and not acked[-1]
            # Apart from removed replicas and compacted entries, everything acked last must be
            # there.
            if not unknown:
                assert seen == (certain[-1] if certain else {"removed": set()}), number
            else:
                for key, value in (certain[-1] if certain else {}).items():
                    if key in seen:
                        assert covers(seen[key], value), (number, key)
            assert picture(reopened.without_index().open()).keys() == picture(db).keys()
    assert number > (150 if scenario is plain else 90)


def covers(seen: object, acked: object) -> bool:
    """Whether a replica, after a last group of unknown outcome, has all that was acked before."""
    if not isinstance(seen, tuple) or not isinstance(acked, tuple):
        return bool(seen >= acked)  # type: ignore[operator]
    new_entries, old_entries = seen[4], acked[4]
    if seen[3]:
        return False
    if new_entries and old_entries and new_entries[-1].term > old_entries[-1].term:
        return True
    kept = {entry.index: entry for entry in new_entries}
    first = new_entries[0].index if new_entries else 0
    return seen[0] >= acked[0] and all(
        kept.get(entry.index) == entry for entry in old_entries if entry.index >= first
    )


def test_a_full_disk_takes_the_ballast_and_goes_on() -> None:
    world = World()
    db = world.open(
        type(world.options)(
            segment_bytes=4096, entry_cache_bytes=0, ballast_bytes=16384, reserve_bytes=4096
        )
    )
    assert db.stats().ballast
    for first in range(1, 9, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=1500))])
    world.memory.capacity_bytes = sum(len(f.cached) for f in world.memory._files.values())
    assert db.stats().free_bytes == 0
    db.commit([update(1, 1, entries(9, 10, size=1500), hard=(1, 1, 10))])
    assert not db.stats().ballast
    db.commit([update(1, 1, snapshot=10)])
    assert db.collect_garbage().unlinked
    world.memory.capacity_bytes += 16384
    db.commit([update(1, 1, entries(11, 12, size=1500), hard=(1, 1, 12))])
    db.commit([update(1, 1, snapshot=12), update(2, 1, entries(1, 2, size=1500))])
    assert db.collect_garbage().unlinked
    assert db.stats().ballast


def test_a_store_starts_on_a_full_disk() -> None:
    world = World()
    options = type(world.options)(
        segment_bytes=4096, entry_cache_bytes=0, ballast_bytes=16384, reserve_bytes=4096
    )
    db = world.open(options)
    db.commit([update(1, 1, entries(1, 3, size=900))])
    world.memory.kill()
    world.memory.capacity_bytes = sum(len(f.cached) for f in world.memory._files.values())
    db = world.open(options)
    assert log_of(db).last_index() == 3
    db.commit([update(1, 1, entries(4, 5, size=900))])
    assert not db.stats().ballast


def test_a_disk_without_any_room_takes_nothing_and_loses_nothing() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 3, size=900))])
    world.memory.capacity_bytes = 0
    files = world.segments()
    for _ in range(3):
        with pytest.raises(OutOfSpace):
            db.commit([update(1, 1, entries(4, 9, size=900))])
        assert world.segments() == files
        assert log_of(db).last_index() == 3
    db.commit([update(1, 1, entries(4, 4))])  # fits into the preallocated segment
    with pytest.raises(OutOfSpace):
        db.commit([update(1, 1, entries(5, 9, size=900)), update(2, 2, entries(1, 1))])
    world.memory.capacity_bytes = 1 << 30
    db.commit([update(2, 2, entries(1, 2)), update(1, 1, entries(5, 9, size=900))])
    before = picture(db)
    assert picture(world.kill()) == before
    assert picture(world.without_index().open()) == before
    assert log_of(world.kill()).last_index() == 9
