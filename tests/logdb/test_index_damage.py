"""One bit flips anywhere in the derived index: nothing acked is lost, `check` reports it, and no
start fails twice because of it.

The index is a real LevelDB. Damage that opening does not read shows when a compaction meets it, in
some later run. So every damaged directory is opened and written to more often than LevelDB lets new
tables wait for a compaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logservice.ids import Index
from logservice.logdb.io.kv import KvError
from logservice.logdb.io.leveldb_kv import LevelDbEngine, LevelDbKv
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.recovery import offline
from tests.logdb.helpers import SMALL, World, entries, update

LIVES = 6
"""LevelDB compacts four tables of the youngest level; an opening makes one of what was written."""

SHARDS = 12
BLOCK_BYTES = 4096
"""LevelDB's tables are read and checked in blocks of about this size."""


def world_in(path: Path) -> World:
    vfs = PosixVfs()
    return World(vfs, LevelDbEngine(vfs), str(path), SMALL)


def build(path: Path) -> int:
    """Make a directory whose index has several tables; return the last index of shard 1."""
    world = world_in(path)
    last = 0
    for _ in range(3):
        db = world.open()
        for _ in range(40):
            db.commit(
                [
                    update(shard, 1, entries(last + 1, last + 3, size=20 + shard * last % 97))
                    for shard in range(1, SHARDS + 1)
                ]
            )
            last += 3
        world.close(db)
    return last


def tables(path: Path) -> list[Path]:
    return sorted((path / "index").glob("*.ldb"))


def lives(world: World, last: int) -> tuple[int, list[str]]:
    """Open, write and close, many times; return which runs failed, and why the index was rebuilt.
    The first run reads what the damage left, the last one what came of it.

    A supervisor would start a store again after a run that fails. LevelDB compacts on a thread of
    its own, so the write that tells of damage is any behind the opening, the one of `close`
    included, in any run, the last one included.
    """
    failures, rebuilt, built = 0, [], last
    left = LIVES
    while left:
        assert failures <= 1, "it fails at every start"
        try:
            db = world.open()
        except KvError:
            failures += 1
            assert world.directory is not None
            world.directory.close()
            continue
        left -= 1
        rebuilt += [db.recovery_report.rebuilt] if db.recovery_report.rebuilt else []
        assert len(db.replicas()) == SHARDS
        for key in db.replicas():
            log = db.log(*key)
            end = last if key[0] == 1 else built
            assert (log.first_index(), log.last_index()) == (1, end)
            read = 0 if left in (0, LIVES - 1) else end - 1
            while read < end:
                read += len(log.entries(Index(read + 1), Index(end + 1), 1 << 20))
        try:
            db.commit([update(1, 1, entries(last + 1, last + 1, size=200))])
            last += 1
            db.checkpoint()
        except KvError:
            failures += 1
            left = max(left, 1)
            crash(world, db)
            continue
        try:
            db.close()
        except KvError:
            failures += 1
            left = max(left, 1)
        finally:
            assert world.directory is not None
            world.directory.close()
    return failures, rebuilt


def crash(world: World, db: LogDb) -> None:
    """End the store as a kill does; nothing of it may stay open in this process."""
    db._failure = db._failure or "killed"
    world.close(db)


def damaged_places(path: Path) -> list[tuple[str, int]]:
    """A bit in the middle of every block of every table, and one in each footer."""
    return [
        (table.name, offset)
        for table in tables(path)
        for offset in (
            *range(BLOCK_BYTES // 2, table.stat().st_size, BLOCK_BYTES),
            table.stat().st_size - 4,
        )
    ]


def test_a_bit_in_every_block_of_the_index(tmp_path: Path) -> None:
    path = tmp_path / "one"
    last = build(path)
    world = world_in(path)
    whole = contents(path)
    places = damaged_places(path)
    assert len(places) >= 8
    told = 0
    for place in places:
        restore(path, whole)
        table = path / "index" / place[0]
        data = bytearray(table.read_bytes())
        data[place[1]] ^= 0x10
        table.write_bytes(data)
        found = offline.check(world.vfs, world.path, kv=world.kv)
        assert found.damages == ()
        assert found.ok == (not found.index)
        failures, rebuilt = lives(world, last)
        # `check` misses only rows that nobody needs, because a later row replaced them.
        assert bool(found.index) >= bool(failures or rebuilt), place
        assert failures == 0 or rebuilt, place
        assert offline.check(world.vfs, world.path, kv=world.kv).ok, place
        told += bool(found.index)
    assert told >= len(places) // 2


def contents(path: Path) -> dict[Path, bytes]:
    """Every file but the identity, which holds its own inode (INV-DIR-3)."""
    files = (one for one in path.rglob("*") if one.is_file() and one.name != "IDENTITY")
    return {one: one.read_bytes() for one in files}


def restore(path: Path, whole: dict[Path, bytes]) -> None:
    for one in contents(path):
        one.unlink()
    for one, data in whole.items():
        one.write_bytes(data)


@pytest.mark.parametrize("run", range(1, LIVES + 1))
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_whichever_write_meets_the_damage_the_next_run_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int, calls: int
) -> None:
    """What LevelDB's thread decides in the test above, one after the other: the first writes of a
    run are those of its opening, of its checkpoint and of its end.
    """
    path = tmp_path / "one"
    last = build(path)
    world = world_in(path)
    runs, writes, met = 0, 0, []
    opening, writing = LevelDbEngine.open, LevelDbKv.write

    def opened(engine: LevelDbEngine, where: str) -> LevelDbKv:
        nonlocal runs, writes
        runs, writes = runs + 1, 0
        return opening(engine, where)

    def write(kv: LevelDbKv, *rows: Any) -> None:
        nonlocal writes
        writes += 1
        if not met and (runs, writes) == (run, calls):
            met.append(True)
            kv.close()
            kv._on_failed()
            raise KvError("LevelDB, writing: block checksum mismatch")
        writing(kv, *rows)

    monkeypatch.setattr(LevelDbEngine, "open", opened)
    monkeypatch.setattr(LevelDbKv, "write", write)
    failures, rebuilt = lives(world, last)
    assert met
    assert (failures, len(rebuilt)) == (1, 1)
    assert offline.check(world.vfs, world.path, kv=world.kv).ok


def test_after_a_failed_write_the_index_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "one"
    last = build(path)
    world = world_in(path)
    db = world.open()

    class Compacted:
        """LevelDB once a compaction has met damage."""

        def write_batch(self, sync: bool) -> object:
            from logservice.logdb.io.leveldb_kv import plyvel

            raise plyvel.CorruptionError("block checksum mismatch")

        def close(self) -> None:
            database.close()

    kv = db._kv
    database = kv._database  # type: ignore[attr-defined]
    kv._database = Compacted()  # type: ignore[attr-defined]
    with pytest.raises(KvError, match="mismatch"):
        db.checkpoint()
    crash(world, db)
    assert any(
        "a write to it failed" in text
        for text in offline.check(world.vfs, world.path, kv=world.kv).index
    )
    db = world.open()
    assert "a write to it failed" in db.recovery_report.rebuilt
    assert db.log(*db.replicas()[0]).last_index() == last
    db = world.reopen(db)
    assert db.recovery_report.rebuilt == ""
    world.close(db)
    assert offline.check(world.vfs, world.path, kv=world.kv).ok


def test_check_reads_every_row_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "one"
    build(path)
    world = world_in(path)
    assert offline.check(world.vfs, world.path, kv=world.kv).ok
    table = max(tables(path), key=lambda one: one.stat().st_size)
    data = bytearray(table.read_bytes())
    data[BLOCK_BYTES // 2] ^= 1
    table.write_bytes(data)
    before = {one.name: one.read_bytes() for one in (path / "index").iterdir()}
    found = offline.check(world.vfs, world.path, kv=world.kv)
    assert not found.ok
    assert found.index
    assert found.damages == ()
    assert {one.name: one.read_bytes() for one in (path / "index").iterdir()} == before
    assert offline.check(world.vfs, world.path).ok, "without an engine only the segments are read"
    assert offline.rebuild_index(world.vfs, world.path, world.kv).ok
