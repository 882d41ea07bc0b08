"""Real log storage with the real LevelDB on a small tmpfs that something else fills to 64 levels:
while segments roll, while garbage is collected, and between a kill and the recovery after it.

At every level the store raises nothing but OutOfSpace and loses nothing that was acked; freed space
is enough to go on without a restart.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.space.disk_space import OutOfSpace
from tests.logdb.helpers import World, entries, log_of, picture, real_world, update
from tests.tmpfs import fill, free_bytes, mounted

DISK_BYTES = 4 << 20
OPTIONS = LogDbOptions(
    segment_bytes=64 * 1024,
    entry_cache_bytes=0,
    ballast_bytes=256 * 1024,
    reserve_bytes=1 << 20,
    rewrite_bytes_max=128 * 1024,
)
LEVELS = 64
STEP = 24 * 1024
"""Bytes between two levels: the levels go from no free byte to above the mark."""
SIZE = 8 * 1024


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("disk") / "d"
    with mounted([path], DISK_BYTES):
        yield path


@pytest.fixture
def world(disk: Path) -> World:
    for leftover in disk.iterdir():
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    return real_world(str(disk / "data"), OPTIONS)


class Log:
    """Appends to one replica and remembers what was acked."""

    def __init__(self, db: LogDb) -> None:
        self.db = db
        self.last = 0

    def append(self) -> bool:
        number = self.last + 1
        try:
            self.db.commit([update(1, 1, entries(number, number, size=SIZE), hard=(1, 1, 0))])
        except OutOfSpace:
            return False
        self.last = number
        return True

    def append_all(self, count: int) -> None:
        for _ in range(count):
            assert self.append()


def killed(world: World, db: LogDb) -> None:
    """End the store without a last write."""
    db._failure = "killed"
    world.close(db)


def judge(world: World, log: Log) -> None:
    """Everything acked is there, now and after a kill, with and without the derived index."""
    assert log_of(log.db).last_index() == log.last
    before = picture(log.db)
    killed(world, log.db)
    db = world.open()
    assert picture(db) == before
    killed(world, db)
    shutil.rmtree(Path(world.path) / "index")
    db = world.open()
    assert picture(db) == before
    world.close(db)


@pytest.mark.parametrize("level", range(LEVELS))
def test_a_filling_disk_loses_nothing_while_segments_roll(
    world: World, disk: Path, level: int
) -> None:
    log = Log(world.open())
    log.append_all(10)
    foreign = fill(disk, level * STEP)
    waited = [log.append() for _ in range(40)].count(False)
    assert waited < 40 or not log.db.stats().ballast
    assert log.db.sample_disk().closed or level * STEP > 40 * SIZE
    foreign.unlink()
    log.append_all(10)
    judge(world, log)


@pytest.mark.parametrize("level", range(LEVELS))
def test_a_filling_disk_loses_nothing_while_garbage_is_collected(
    world: World, disk: Path, level: int
) -> None:
    log = Log(world.open())
    log.append_all(60)
    log.db.commit([update(2, 2, entries(1, 3, size=SIZE), bootstrap=True)])
    log.db.commit([update(1, 1, snapshot=55)])
    foreign = fill(disk, level * STEP)
    for _ in range(5):
        log.db.sample_disk()
        log.db.collect_garbage()
        log.append()
    assert free_bytes(disk) > 256 * 1024, "what collection freed"
    foreign.unlink()
    log.append_all(10)
    log.db.collect_garbage()
    judge(world, log)


@pytest.mark.parametrize("ballast", [True, False], ids=["ballast", "no ballast"])
@pytest.mark.parametrize("level", range(LEVELS))
def test_a_filling_disk_loses_nothing_between_kill_and_recovery(
    world: World, disk: Path, level: int, *, ballast: bool
) -> None:
    log = Log(world.open())
    log.append_all(30)
    before = picture(log.db)
    killed(world, log.db)
    if not ballast:
        (Path(world.path) / "BALLAST").unlink()
    foreign = fill(disk, level * STEP)
    log.db = world.open()
    assert picture(log.db) == before
    for _ in range(20):
        log.append()
    foreign.unlink()
    log.append_all(10)
    judge(world, log)
