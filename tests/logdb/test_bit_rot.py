"""Bit rot: whatever bit of a segment flips, nobody reads wrong data, and the damage is attributed
to its owner.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index
from logservice.invariants import InvariantViolation
from logservice.logdb.options import LogDbOptions
from tests.logdb.helpers import (
    World,
    all_entries,
    entries,
    log_of,
    of_plain_bytes,
    real_world,
    update,
    visible,
)

OPTIONS = LogDbOptions(segment_bytes=16 * 1024, entry_cache_bytes=0, ballast_bytes=0)


def build(mark: bool = False) -> tuple[World, list[dict[tuple[int, int], object]], list[int]]:
    """Write one segment of several groups; return what was visible after each, and where it
    ends.
    """
    world = World(options=OPTIONS)
    db = world.open()
    steps = [
        [update(1, 1, snapshot=1, reset=True, bootstrap=True), update(2, 5, hard=(1, 5, 0))],
        [update(1, 1, entries(2, 9), hard=(2, 1, 3)), update(2, 5, entries(1, 3))],
        [update(1, 1, entries(8, 12, term=3), hard=(3, 3, 6))],
        [update(2, 5, entries(4, 6)), update(3, 1, entries(1, 1))],
    ]
    pictures, ends = [], []
    for step in steps:
        db.commit(step)
        pictures.append(visible(db))
        ends.append(db.stats().bytes_written)
    if mark:
        db.mark_durable()
    world.memory.kill()
    return world, pictures, ends


def flips(size: int, seed: int) -> list[tuple[int, int]]:
    """One random bit of every third byte; each seed takes another third of the bytes."""
    rng = random.Random(seed)
    return [(offset, 1 << rng.randrange(8)) for offset in range(seed % 3, size, 3)]


@pytest.mark.parametrize("index", ["no index", "old index"])
def test_a_flipped_bit_is_attributed_or_dropped_with_the_newest_group(index: str) -> None:
    world, pictures, ends = build()
    path = world.segments()[0]
    total = 64 + ends[-1]
    newest = 64 + ends[-2]
    found = {"same": 0, "torn": 0, "faulty": 0}
    for offset, mask in flips(total + 64, 10 + len(index)):
        hurt = world.without_index() if index == "no index" else world.copy()
        hurt.memory.flip(path, offset, mask)
        db = hurt.open()
        seen = visible(db)
        if seen == pictures[-1]:
            found["same"] += 1
        elif newest <= offset < total and seen == pictures[-2]:
            found["torn"] += 1
        else:
            assert offset < newest, offset
            faulty = [key for key, value in seen.items() if value is None]
            assert len(faulty) == 1, (offset, db.recovery_report)
            healthy = {key: value for key, value in seen.items() if value is not None}
            assert healthy.items() <= pictures[-1].items(), offset
            found["faulty"] += 1
            # The mark of the damage is durable: the next opening reports it, too.
            hurt.memory.crash()
            assert visible(hurt.open()) == seen
    assert found["torn"] > 100
    assert found["faulty"] > 100
    assert found["same"] > 50, found


def test_behind_the_durable_mark_nothing_is_dropped() -> None:
    world, pictures, ends = build(mark=True)
    path = world.segments()[0]
    for offset, mask in flips(64 + ends[-1], 12):
        hurt = world.without_index()
        hurt.memory.flip(path, offset, mask)
        seen = visible(hurt.open())
        assert seen.keys() == pictures[-1].keys(), offset
        lost = [key for key, value in seen.items() if value is None]
        assert len(lost) <= 1, offset
        healthy = {key: value for key, value in seen.items() if value is not None}
        assert healthy.items() <= pictures[-1].items(), offset


@of_plain_bytes
@pytest.mark.parametrize("index", ["no index", "old index"])
@pytest.mark.parametrize("alone", [False, True])
def test_a_lost_group_is_missed_when_nobody_can_name_it(index: str, alone: bool) -> None:
    """The header and the directory of the last group of a segment are gone, and so is the header of
    the next group, in the next segment; that group still has its number (G6).
    """
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 12, size=200)), update(2, 1, hard=(1, 1, 0))])
    if alone:
        db._writer.seal()
    db.commit([update(2, 1, hard=(9, 2, 0))])
    lost = db._writer.position.last
    db._writer.seal()
    db.commit([update(1, 1, entries(13, 14))])
    db.commit([update(1, 1, entries(15, 16))])
    world.memory.kill()
    hurt = world.without_index() if index == "no index" else world.copy()
    paths = hurt.segments()
    assert len(paths) == lost.segment + 1 == 2 + alone
    hurt.memory.flip(paths[-2], lost.offset + 20, 4)
    hurt.memory.flip(paths[-2], lost.offset + 90, 4)
    hurt.memory.flip(paths[-1], 64 + 20, 4)
    db = hurt.open()
    log = log_of(db, 2, 1)
    assert log.faulty or log.hard_state.term == 9


def test_damage_found_while_reading_makes_one_replica_faulty() -> None:
    world = World()
    db = world.open()
    for first in range(1, 40, 2):
        db.commit(
            [
                update(1, 1, entries(first, first + 1, size=300)),
                update(2, 2, entries(first, first + 1, size=30)),
            ]
        )
    db = world.reopen(db)
    log = log_of(db)
    position = log._state.index.place(1)
    world.memory.flip(world.segments()[0], position.offset + 100, 4)
    with pytest.raises(Halted):
        all_entries(log)
    assert log.faulty
    assert all_entries(log_of(db, 2, 2)) == entries(1, 40, size=30)
    db.commit([update(2, 2, entries(41, 41))])
    db = world.kill()
    assert log_of(db).faulty
    assert not log_of(db, 2, 2).faulty
    assert db.stats().faulty_replicas == 1


def test_damage_of_what_was_superseded_hurts_nobody() -> None:
    world = World(options=OPTIONS)
    db = world.open()
    db.commit([update(1, 1, entries(1, 9), hard=(1, 1, 0))])
    db.commit([update(1, 1, entries(5, 9, term=2), hard=(2, 1, 0))])
    db.commit([update(1, 1, snapshot=6, snapshot_term=2)])
    expected = visible(db)
    place = log_of(db)._state.index.place(7)
    world.memory.kill()
    path = world.segments()[0]
    for offset in range(64, place.offset - 300):
        hurt = world.without_index()
        hurt.memory.flip(path, offset, 1)
        db = hurt.open()
        seen = visible(db)
        assert seen == expected, (offset, db.recovery_report)


def test_a_lost_segment_makes_its_replicas_faulty() -> None:
    world = World()
    db = world.open()
    for first in range(1, 40, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=300))])
    db.commit([update(2, 2, entries(1, 1))])
    world.close(db)
    world.memory.unlink(world.segments()[2])
    db = world.open()
    assert db.recovery_report.rebuilt
    assert "missing" in log_of(db).faulty
    assert all_entries(log_of(db, 2, 2)) == entries(1, 1)


def test_two_damaged_witnesses_blame_everybody() -> None:
    """A group whose header and directory are both gone could have belonged to any replica."""
    world, pictures, ends = build()
    path = world.segments()[0]
    start = 64 + ends[0]
    world.memory.flip(path, start + 20, 1)
    world.memory.flip(path, start + 100, 1)
    hurt = world.without_index()
    db = hurt.open()
    assert set(visible(db).values()) == {None}
    assert any(damage.key is None for damage in db.recovery_report.damages)
    assert pictures


def test_a_damaged_index_is_rebuilt() -> None:
    world, pictures, _ = build()
    world.kv.damage("/data/index")  # type: ignore[attr-defined]
    db = world.open()
    assert "damaged" in db.recovery_report.rebuilt
    assert visible(db) == pictures[-1]


def test_an_index_that_cannot_be_read_is_rebuilt(tmp_path: Path) -> None:
    """LevelDB calls a table that was cut short an IO error, and not corruption, so the store once
    did not start.
    """
    world = real_world(str(tmp_path / "data"), OPTIONS)
    db = world.open()
    for first in range(1, 10, 3):
        db.commit([update(1, 1, entries(first, first + 2))])
        db = world.reopen(db)
    expected = visible(db)
    world.close(db)
    for table in (tmp_path / "data" / "index").glob("*.ldb"):
        os.truncate(table, 60)
    db = world.open()
    assert "IO error" in db.recovery_report.rebuilt
    assert visible(db) == expected
    world.close(db)


def test_columns_that_the_index_cannot_give_come_from_their_segment() -> None:
    world = World()
    db = world.open()
    for first in range(1, 30, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=300))])
    expected = visible(db)
    db = world.reopen(db)
    db._kv.close()
    assert visible(db) == expected


def test_any_damaged_row_of_the_index_is_noticed_or_harmless() -> None:
    world = World()
    db = world.open()
    for first in range(1, 30, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=300), hard=(1, 1, first))])
    db.commit([update(1, 1, snapshot=3), update(2, 1, bootstrap=True)])
    expected = visible(db)
    world.close(db)
    rows = world.copy().kv.open("/data/index")
    for key, value in list(rows.scan(b"")):
        for cut in (value[:-1], value + b"\0", b""):
            hurt = world.copy()
            hurt.kv.open("/data/index").write([(key, cut)])
            try:
                seen = visible(hurt.open())
            except InvariantViolation:
                pytest.fail(f"row {key!r} of {len(cut)} bytes")
            assert seen == expected, key


def test_columns_lost_in_the_index_and_in_the_segment_halt_one_replica() -> None:
    world = World()
    db = world.open()
    for first in range(1, 30, 2):
        db.commit([update(1, 1, entries(first, first + 1, size=300))])
        db.commit([update(2, 1, entries(first, first + 1, size=10))])
    db.commit([update(1, 1, snapshot=1), update(2, 1, snapshot=30)])
    place = log_of(db)._state.index.place(2)
    world.close(db)
    rows = world.kv.open("/data/index")
    rows.write([(key, value[:-1]) for key, value in rows.scan(b"d")])
    world.memory.flip(world.segments()[0], place.offset + 80, 1)
    db = world.open(replace(world.options, rewrite_live_ratio=1.0))
    report = db.collect_garbage()
    assert [pin.reason for pin in report.pinned if pin.segment == 1] == [
        "entries of a faulty replica"
    ]
    log = log_of(db)
    with pytest.raises(Halted):
        log.entries(log.first_index(), Index(log.last_index() + 1), 1000)
    assert "no entries" in log.faulty
    assert not log_of(db, 2, 1).faulty
    db = world.reopen(db)
    assert log_of(db).faulty


@pytest.mark.parametrize("also", [(), (20, 100)])
def test_what_was_replaced_is_not_taken_for_columns_that_are_lost(also: tuple[int, ...]) -> None:
    """The index has lost the columns, and a run that replaced others is damaged in its segment, or
    its whole group is. The replaced entries have the same LSNs.
    """
    world = World(options=OPTIONS)
    db = world.open()
    db.commit([update(1, 1, entries(1, 8, size=200))])
    start = 64 + db.stats().bytes_written
    db.commit([update(1, 1, entries(5, 8, term=2, size=200))])
    place = log_of(db)._state.index.place(6)
    db.commit([update(1, 1, entries(9, 30, term=2, size=900))])
    world.close(db)
    rows = world.kv.open("/data/index")
    rows.write([(key, value[:-1]) for key, value in rows.scan(b"d")])
    for at in [start + offset for offset in also] or [place.offset + 80]:
        world.memory.flip(world.segments()[0], at, 1)
    db = world.open()
    with pytest.raises(Halted):
        all_entries(log_of(db))
    assert log_of(db).faulty
