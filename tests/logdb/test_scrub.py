"""Scrub: it finds every flipped bit of sealed segments, and attributes it to its owner."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.vfs import read_file
from logservice.logdb.log_db import LogDb
from logservice.logdb.scrub import DamagedRange, ScrubTarget, Verdict, affected, read_slice
from tests.logdb.dying import DyingVfs
from tests.logdb.helpers import SMALL, World, all_entries, entries, entry, real_world, update
from tests.logdb.page_cache import (
    cached_pages,
    fetched_bytes,
    need_counted_reads,
    need_page_cache,
)

KEYS = ((ShardId(1), ReplicaId(1)), (ShardId(2), ReplicaId(2)))


def filled() -> tuple[World, LogDb]:
    """A store with two replicas, ten entries of each in a group, and several sealed segments."""
    world = World()
    db = world.open()
    for first in range(1, 200, 10):
        db.commit(
            [
                update(1, 1, entries(first, first + 9), hard=(1, 1, first - 1)),
                update(2, 2, entries(first, first + 9), hard=(1, 2, first - 1)),
            ]
        )
    return world, db


def scrub(world: World, db: LogDb, budget: int = 700) -> dict[int, list[DamagedRange]]:
    """Do one pass; return what it found, by segment."""
    found: dict[int, list[DamagedRange]] = {}
    after = 0
    while (target := db.scrub_target(after)) is not None:
        after = target.segment
        offset = SEGMENT_HEADER_BYTES
        while offset < target.size:
            piece = read_slice(world.vfs, target, offset, budget)
            assert piece.next_offset > offset
            offset = piece.next_offset
            if piece.damages:
                found.setdefault(target.segment, []).extend(piece.damages)
    return found


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    world, db = filled()
    for budget in (64, 700, 1 << 20):
        assert scrub(world, db, budget) == {}
    db = world.reopen(db)
    assert scrub(world, db) == {}
    assert db.scrub_target(0) is not None


def test_every_flipped_byte_of_a_sealed_segment_is_found_and_attributed() -> None:
    world, db = filled()
    target = db.scrub_target(1)
    assert target is not None
    places = [db.log(*key)._state.index for key in KEYS]
    owners: dict[int, set[tuple[int, int]]] = {}
    for key, index in zip(KEYS, places, strict=True):
        for i in range(1, index.last_index + 1):
            place = index.place(i)
            if place.segment == target.segment:
                for at in range(place.offset, place.offset + 72 + place.length):
                    owners.setdefault(at, set()).add(key)
    end = max(owners) + 1
    rng = random.Random(3)
    hit = 0
    for offset in range(SEGMENT_HEADER_BYTES, end):
        flipped = world.copy()
        flipped.memory.flip(target.path, offset, 1 << rng.randrange(8))
        damages = []
        at = SEGMENT_HEADER_BYTES
        while at < target.size:
            piece = read_slice(flipped.vfs, target, at, 4096)
            damages += piece.damages
            at = piece.next_offset
        if not damages:
            assert offset not in owners
            continue
        hit += 1
        assert any(damage.start <= offset < damage.end for damage in damages)
    assert hit > 0.95 * (end - SEGMENT_HEADER_BYTES)


@pytest.mark.parametrize("victim", [0, 1])
def test_damage_costs_one_replica_and_its_segment_is_emptied_when_that_is_whole(
    victim: int,
) -> None:
    world, db = filled()
    key, other = KEYS[victim], KEYS[1 - victim]
    place = db.log(*key)._state.index.place(5)
    path = world.segments()[place.segment - 1]
    world.memory.flip(path, place.offset + 73, 1)
    found = scrub(world, db)
    assert list(found) == [place.segment]
    assert db.scrub_found(place.segment, found[place.segment]) == Verdict([key], 1)
    fault = db.log(*key).fault
    assert fault is not None
    # A run is damaged as a whole: its first entry counts.
    assert (fault.damaged_from, fault.acked_through) == (1, 200)
    assert not db.log(*other).faulty
    db.record_faults()
    assert db.collect_garbage().unlinked == ()
    assert world.copy().open().log(*key).fault == fault
    db.commit([replace(update(*key, entries(1, 200)), repair=fault)])
    assert db.log(*key).fault is None
    assert place.segment in db.collect_garbage().unlinked
    for reopened in (world.copy().open(), world.without_index().open()):
        for one in KEYS:
            assert all_entries(reopened.log(*one)) == entries(1, 200)
        assert not reopened.recovery_report.damages


def test_damage_to_what_is_only_said_twice_empties_the_segment() -> None:
    """A group header is damaged: nothing is lost, but a second flip might have no known owner."""
    world, db = filled()
    world.memory.flip(world.segments()[0], SEGMENT_HEADER_BYTES + 20, 4)
    found = scrub(world, db)
    assert db.scrub_found(1, found[1]) == Verdict([], 1)
    assert 1 in db.collect_garbage().unlinked
    assert scrub(world, db) == {}


def test_a_hole_is_attributed_by_the_index() -> None:
    """Header and directory of a group are gone: recovery would call every replica faulty."""
    world, db = filled()
    for offset in (20, 90):
        world.memory.flip(world.segments()[1], SEGMENT_HEADER_BYTES + offset, 4)
    found = scrub(world, db)
    verdict = db.scrub_found(2, found[2])
    assert (sorted(verdict.replicas), verdict.damages) == (list(KEYS), 1)
    assert all((fault := db.log(*key).fault) is not None and fault.repairable for key in KEYS)


def test_a_segment_that_was_collected_meanwhile_harms_nobody() -> None:
    world, db = filled()
    gone = ScrubTarget(99, "/data/segments/none", 4096, 1)
    assert read_slice(world.vfs, gone, 64, 700).next_offset == 4096
    assert db.scrub_found(99, [DamagedRange(64, 4096, "of another life")]) == Verdict([], 0)


def test_what_an_earlier_life_left_behind_the_last_group_is_no_damage() -> None:
    """INV-SCRUB-2. The scrub of a healthy store once counted the old bytes of a recycled file."""
    _, db = filled()
    left = DamagedRange(db._files.sizes[1] - 8, db._files.sizes[1], "no group", tail=True)
    assert db.scrub_found(1, [left]) == Verdict([], 0)
    assert 1 not in db._files.condemned
    place = db.log(*KEYS[0])._state.index.place(5)
    lost = DamagedRange(place.offset, place.offset + 8, "no group", tail=True)
    assert db.scrub_found(place.segment, [lost, left]) == Verdict([KEYS[0]], 1)
    assert db.scrub_found(place.segment, [lost]) == Verdict([], 1), "and each pass counts it"


def test_what_rotted_under_the_page_cache_is_found() -> None:
    """INV-SCRUB-3. Every read finds the good copy in memory, only the disk has the bad one."""
    world, db = filled()
    target = db.scrub_target(1)
    assert target is not None
    place = next(
        place
        for place in map(db.log(*KEYS[0])._state.index.place, range(1, 200))
        if place.segment == target.segment
    )
    for budget in (64, 700, 1 << 20):
        for offset in range(place.offset, place.offset + 72 + place.length):
            rotten = world.copy()
            rotten.memory.flip(target.path, offset, 1, in_cache=False)
            assert read_file(rotten.vfs, target.path) == read_file(world.vfs, target.path)
            assert list(scrub(rotten, db, budget)) == [target.segment]


def test_a_pass_over_real_files_leaves_only_the_tail_in_the_page_cache(
    tmp_path: Path,
) -> None:
    """INV-SCRUB-3. Segments of 1 MiB, of which the newest two that are sealed belong to the tail.
    All bytes come from the disk, also those of the tail.
    """
    need_page_cache(tmp_path)
    need_counted_reads(tmp_path)
    options = replace(SMALL, segment_bytes=1 << 20, cached_bytes=3 << 20)
    world = real_world(str(tmp_path / "d"), options)
    db = world.open()
    for first in range(1, 64, 8):
        db.commit([update(1, 1, entries(first, first + 7, size=1 << 17))])
    paths = [Path(path) for path in world.segments()]
    assert len(paths) >= 8
    targets = []
    while (target := db.scrub_target(targets[-1].segment if targets else 0)) is not None:
        targets.append(target)
    assert [target.cached for target in targets] == [False] * (len(targets) - 2) + [True] * 2
    for path in paths:
        path.read_bytes()
        assert all(cached_pages(path))
    before = fetched_bytes()
    assert scrub(world, db, 1 << 18) == {}
    assert fetched_bytes() - before >= sum(target.size for target in targets)
    cached = [sum(cached_pages(path)) / len(cached_pages(path)) for path in paths]
    assert max(cached[: len(targets) - 2]) < 0.05
    assert min(cached[len(targets) - 2 :]) > 0.9
    world.close(db)


@pytest.mark.parametrize("sector", [512, 4096])
def test_an_unreadable_page_costs_those_whose_bytes_are_in_it(sector: int) -> None:
    """Only replicas with bytes in the page are faulty, and not all with entries in the slice. An
    unreadable page behind the last group damages none.
    """
    world = World(options=replace(SMALL, segment_bytes=16 * 4096))
    db = world.open()
    for first in range(1, 40, 2):
        db.commit(
            [
                update(1, 1, entries(first, first + 1, size=1000), hard=(1, 1, first - 1)),
                update(2, 2, [entry(n, payload=bytes(6000)) for n in (first, first + 1)]),
            ]
        )
    target = db.scrub_target(0)
    assert target is not None
    owners: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for key in KEYS:
        index = db.log(*key)._state.index
        places = (index.place(n) for n in range(1, index.last_index + 1))
        owners[key] = [
            (one.offset, one.offset + 72 + one.length)
            for one in places
            if one.segment == target.segment
        ]
    whole = world.memory
    blamed = []
    for page in range(0, target.size, 4096):
        vfs = DyingVfs(whole, sector)
        vfs.kill_bytes(target.path, page + 512, page + 513)
        offset, damages = SEGMENT_HEADER_BYTES, list[DamagedRange]()
        while offset < target.size:
            piece = read_slice(vfs, target, offset, 1 << 20)
            offset = piece.next_offset
            damages += piece.damages
        found = set()
        for key in KEYS:
            index = db.log(*key)._state.index
            if any(affected(index, target.segment, damage) is not None for damage in damages):
                found.add(key)
        mine = {
            key
            for key in KEYS
            if any(low < page + 4096 and page < high for low, high in owners[key])
        }
        assert found == mine, page
        blamed.append(len(found))
    assert blamed.count(1) > 3
    assert 2 in blamed
    assert 0 in blamed, "behind the last group"


def test_a_disk_that_gives_nothing_is_not_asked_for_every_page() -> None:
    world, db = filled()
    target = db.scrub_target(0)
    assert target is not None
    large = replace(target, size=1 << 20)
    vfs = DyingVfs(world.memory)
    vfs.kill_bytes(target.path, 0, large.size)
    piece = read_slice(vfs, large, 64, 1 << 20)
    assert (piece.next_offset, len(piece.damages)) == (large.size, 1)
    assert vfs.refused < 200
