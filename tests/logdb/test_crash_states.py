"""Every file operation of a scenario is a moment at which power may fail or the process may die.

Before each operation the whole disk is copied. Each copy is then reopened in several legal states:
after a kill, after a power cut, and after a power cut with some of the un-synced bytes on the disk.
In each of them the store opens, nothing acked is missing, no vote is forgotten, and nothing is
faulty; without the derived index it shows the same.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from logservice_wire.errors import Halted

from logservice.ids import Index
from logservice.logdb.format.update import Update
from logservice.logdb.io.memory_vfs import MemoryVfs, SurvivingBytes
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import Survey
from logservice.logdb.log_db import LogDb
from logservice.logdb.recovery.recovery import recover
from logservice.sealing_keys import Keys
from tests.logdb.helpers import RING, World, all_entries, entries, log_of, picture, update

Acked = dict[tuple[int, int], tuple[tuple[int, int], int, tuple[object, ...]]]
"""For each replica: (term, vote), the first index, the entries."""


@dataclass
class Moment:
    """The disk just before an operation: what was acked, and what may also be there."""

    operation: str
    world: World
    acked: dict[object, object]
    next: dict[object, object] | None = None


@dataclass
class Recorder:
    """Runs a scenario on a memory file system and keeps every moment."""

    world: World = field(default_factory=World)
    moments: list[Moment] = field(default_factory=list)
    acked: dict[object, object] = field(default_factory=lambda: {"removed": set()})

    def __post_init__(self) -> None:
        vfs = self.world.memory
        for name in (
            "create",
            "pwritev",
            "fdatasync",
            "sync_written",
            "preallocate",
            "truncate",
            "rename",
            "unlink",
            "fsync_directory",
        ):
            setattr(vfs, name, self._watched(name, getattr(vfs, name)))
        kv = self.world.kv
        kv.before_write = self._watched("kv", lambda: None)  # type: ignore[attr-defined]

    def _watched(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def watched(*arguments: object, **named: object) -> object:
            self.moments.append(Moment(name, self.world.copy(), dict(self.acked)))
            return call(*arguments, **named)

        return watched

    def commit(self, db: LogDb, updates: Sequence[Update]) -> None:
        start = len(self.moments)
        db.commit(updates)
        self.acked = durable(db)
        for moment in self.moments[start:]:
            moment.next = self.acked

    def quiet(self, db: LogDb) -> None:
        """Note a change of the picture alone, as by compaction: what was acked did not change."""
        self.acked = durable(db)


def durable(db: LogDb) -> dict[object, object]:
    """What a reader sees; the commit index is left out, because it may be lost."""
    seen: dict[object, object] = {"removed": db.removed()}
    for shard, replica in db.replicas():
        log = log_of(db, shard, replica)
        hard = log.hard_state
        seen[shard, replica] = (
            (hard.term, hard.vote),
            log.bootstrap,
            log.installed,
            log.faulty,
            all_entries(log),
        )
    return seen


def cuts(rng: random.Random) -> list[tuple[str, SurvivingBytes | None, bool]]:
    """The ways in which the power fails."""
    share = rng.random()
    return [
        ("nothing survives", None, False),
        ("names survive", None, True),
        ("all survives", lambda path, number, size: size, True),
        ("half of every write", lambda path, number, size: size // 2, True),
        ("first bytes", lambda path, number, size: min(size, 64), False),
        ("a share", lambda path, number, size: int(size * share), True),
        ("one write", lambda path, number, size: size if number == 0 else 0, True),
        ("all but the first", lambda path, number, size: size if number else 0, True),
    ]


def check(world: World, moment: Moment, how: str) -> None:
    db = world.open()
    seen = durable(db)
    allowed = [moment.acked] if moment.next is None else [moment.acked, moment.next]
    assert seen in allowed, (moment.operation, how)
    assert not db.recovery_report.damages, (moment.operation, how, db.recovery_report.damages)
    full = picture(db)
    # The next opening decides the same, from the index and from the segments alone.
    rebuilt_world = world.without_index()
    world.memory.kill()
    again = world.open()
    assert picture(again) == full, (moment.operation, how)
    rebuilt_world.memory.kill()
    rebuilt = rebuilt_world.open()
    assert picture(rebuilt) == full, (moment.operation, how)
    # The log goes on from here.
    log = log_of(again, 9, 9)
    last = log.last_index()
    again.commit([update(9, 9, entries(last + 1, last + 2))])
    assert log.last_index() == last + 2


def replay_all(recorder: Recorder, stride: int = 1) -> int:
    states = 0
    rng = random.Random(5)
    for number, moment in enumerate(recorder.moments):
        if number % stride:
            continue
        killed = moment.world.copy()
        killed.memory.kill()
        check(killed, moment, "killed")
        states += 1
        for how, surviving, names in cuts(rng):
            crashed = moment.world.copy()
            crashed.memory.crash(surviving, keep_names=names)
            check(crashed, moment, how)
            states += 1
    return states


def grow(recorder: Recorder) -> None:
    db = recorder.world.open()
    recorder.quiet(db)
    for first in range(1, 22, 3):
        recorder.commit(
            db,
            [
                update(1, 1, entries(first, first + 2, size=150), hard=(first, 2, first)),
                update(2, 5, entries(first, first + 2)),
            ],
        )
    recorder.world.close(db)


def overwrite(recorder: Recorder) -> None:
    db = recorder.world.open()
    recorder.commit(db, [update(1, 1, entries(1, 9, size=200), bootstrap=True)])
    recorder.commit(db, [update(1, 1, entries(5, 6, term=2), hard=(2, 3, 0))])
    recorder.commit(db, [update(1, 1, entries(7, 20, term=3, size=200), hard=(3, 1, 4))])
    recorder.commit(db, [update(1, 1, entries(6, 6, term=4), hard=(4, 0, 5))])
    db = recorder.world.reopen(db)
    recorder.commit(db, [update(1, 1, entries(7, 9, term=5), hard=(5, 1, 6))])


def snapshots(recorder: Recorder) -> None:
    db = recorder.world.open()
    recorder.commit(db, [update(1, 1, snapshot=1, reset=True, bootstrap=True, hard=(1, 0, 1))])
    recorder.commit(db, [update(1, 1, entries(2, 20, size=150), hard=(1, 1, 12))])
    recorder.commit(db, [update(1, 1, snapshot=10)])
    recorder.commit(db, [update(1, 1, snapshot=8)])
    recorder.commit(db, [update(1, 1, snapshot=10)])
    recorder.commit(db, [update(1, 1, snapshot=30, snapshot_term=4, reset=True, hard=(4, 0, 30))])
    recorder.commit(db, [update(1, 1, entries(31, 33, term=4))])
    recorder.commit(db, [update(2, 2, remove=True)])
    recorder.world.close(db)


def collection(recorder: Recorder) -> None:
    db = recorder.world.open()
    recorder.commit(db, [update(3, 3, entries(1, 2), bootstrap=True, hard=(2, 3, 1))])
    recorder.commit(db, [update(4, 4, entries(1, 1))])
    recorder.commit(db, [update(4, 4, remove=True)])
    for first in range(1, 31, 3):
        new = entries(first, first + 2, size=400)
        recorder.commit(db, [update(1, 1, new, hard=(1, 1, max(0, first - 3)))])
    recorder.commit(db, [update(1, 1, entries(28, 29, term=2, size=400), hard=(2, 1, 27))])
    recorder.commit(db, [update(1, 1, snapshot=25)])
    assert db.collect_garbage().unlinked
    recorder.commit(db, [update(1, 1, entries(30, 32, term=2, size=400))])
    recorder.commit(db, [update(3, 3, entries(3, 4))])
    db = recorder.world.kill()
    recorder.quiet(db)
    db.collect_garbage()
    recorder.world.close(db)


def commit_indexes(recorder: Recorder) -> None:
    db = recorder.world.open()
    recorder.commit(db, [update(1, 1, entries(1, 5), hard=(1, 1, 0))])
    db.commit([update(1, 1, hard=(1, 1, 2))], sync=False)
    recorder.commit(db, [update(2, 1, entries(1, 2))])
    db.mark_durable()
    db.commit([update(1, 1, hard=(1, 1, 4))], sync=False)
    recorder.world.close(db)


def between(recorder: Recorder) -> None:
    """A segment between two others is collected, and the store falls idle before and after."""
    db = recorder.world.open()
    recorder.commit(db, [update(1, 1, entries(1, 3, size=1_000)), update(2, 1, hard=(7, 2, 0))])
    for first in (1, 4, 7):
        recorder.commit(db, [update(3, 1, entries(first, first + 2, size=900), hard=(1, 1, 2))])
        db.mark_durable()
    recorder.commit(db, [update(3, 1, snapshot=8, hard=(1, 1, 8))])
    assert db.collect_garbage().unlinked[0] == 2
    db.mark_durable()
    db = recorder.world.kill()
    recorder.quiet(db)
    db.mark_durable()
    recorder.commit(db, [update(3, 1, entries(10, 12, size=900))])
    recorder.world.close(db)


def rotated(recorder: Recorder) -> None:
    """The key is another one twice; what lives in the oldest segments is copied."""
    db = recorder.world.open()
    recorder.commit(db, [update(1, 1, entries(1, 3, size=900)), update(2, 1, entries(1, 1))])
    recorder.world.keys = replace(RING, active="b")
    db.use_keys(recorder.world.keys)
    for first in (4, 7, 10):
        recorder.commit(db, [update(1, 1, entries(first, first + 2, size=900), hard=(1, 1, 2))])
    recorder.commit(db, [update(1, 1, snapshot=9)])
    db.use_keys(RING)
    assert db.collect_garbage().unlinked
    recorder.commit(db, [update(2, 1, entries(2, 2))])
    db = recorder.world.kill()
    recorder.quiet(db)
    recorder.commit(db, [update(1, 1, entries(13, 14, size=900))])
    recorder.world.close(db)


@pytest.mark.parametrize(
    ("scenario", "stride", "cluster_version", "keys"),
    [
        (grow, 1, 1, None),
        (overwrite, 1, 1, None),
        (snapshots, 1, 1, None),
        (collection, 1, 1, None),
        (commit_indexes, 1, 1, None),
        (between, 1, 1, None),
        (grow, 2, 2, None),
        (collection, 2, 2, None),
        (commit_indexes, 1, 2, None),
        (between, 1, 2, None),
        (grow, 3, 2, RING),
        (overwrite, 3, 2, RING),
        (collection, 3, 2, RING),
        (rotated, 1, 2, RING),
    ],
)
def test_every_crash_state(
    scenario: Callable[[Recorder], None], stride: int, cluster_version: int, keys: Keys | None
) -> None:
    """INV-WRITER-2: without the name of a new segment acked entries are missing."""
    recorder = Recorder(World(cluster_version=cluster_version, keys=keys))
    scenario(recorder)
    states = replay_all(recorder, stride)
    assert states >= 100


def anything(seed: int) -> Callable[[Recorder], None]:
    """A scenario of random operations; the same for the same seed."""

    def scenario(recorder: Recorder) -> None:
        rng = random.Random(seed)
        world = recorder.world
        world.options = replace(
            world.options,
            segment_bytes=rng.choice([4096, 5000, 12_000]),
            rewrite_live_ratio=rng.choice([0.0, 0.25, 0.9]),
            rewrite_bytes_max=rng.choice([500, 100_000]),
        )
        db = world.open()
        for _ in range(rng.randrange(10, 30)):
            key = (rng.randrange(1, 4), 1)
            if key in db.removed():
                continue
            log = log_of(db, *key)
            hard, last = log.hard_state, log.last_index()
            term: int
            match rng.randrange(12):
                case 0:
                    recorder.quiet(db)
                    db.collect_garbage()
                case 1:
                    db = world.reopen(db)
                case 2:
                    db = world.kill()
                    recorder.quiet(db)
                case 3 if log.first_index() < hard.commit:
                    index = rng.randrange(log.first_index(), hard.commit + 1)
                    at, lsn = log.term(Index(index)), log.next_lsn(Index(index))
                    step = update(*key, snapshot=index, snapshot_term=at, next_lsn=lsn)
                    recorder.commit(db, [step])
                case 4:
                    index, term = last + rng.randrange(5), hard.term + 1
                    recorder.commit(
                        db,
                        [
                            update(
                                *key,
                                snapshot=index,
                                snapshot_term=term,
                                reset=True,
                                next_lsn=index + 1,
                                hard=(term, 2, index),
                            )
                        ],
                    )
                case 5 if key[0] == 3:
                    recorder.commit(db, [update(*key, remove=True)])
                case _:
                    first = max(last + 1 - rng.choice([0, 0, 0, 4]), hard.commit + 1)
                    first = max(first, log.first_index())
                    term = max(hard.term, 1) + rng.randrange(2)
                    top = first + rng.randrange(4)
                    new = entries(first, top, term=term, size=rng.choice([10, 300, 900]))
                    commit = rng.randrange(hard.commit, top + 1)
                    vote = hard.vote if term == hard.term else 3
                    recorder.commit(db, [update(*key, new, hard=(term, vote, commit))])

    return scenario


@pytest.mark.parametrize("seed", range(4))
def test_every_third_crash_state_of_random_operations(seed: int) -> None:
    recorder = Recorder()
    anything(seed)(recorder)
    assert replay_all(recorder, 3) >= 50


@pytest.mark.parametrize("left_out", ["sync_written", "fsync_directory"])
def test_the_tester_notices_a_skipped_sync(left_out: str) -> None:
    """A test of the tester: it must find that acked entries are missing."""
    recorder = Recorder()
    db = recorder.world.open()
    setattr(recorder.world.memory, left_out, lambda *_: None)
    for index in range(1, 4):
        recorder.commit(db, [update(1, 1, entries(index, index))])
    with pytest.raises(AssertionError):
        replay_all(recorder)


@pytest.mark.parametrize("left_out", ["", "fdatasync"])
def test_the_tester_notices_a_recovery_without_its_sync(left_out: str) -> None:
    """Recovery takes a group that a killed process wrote and did not sync, so it must sync it."""
    recorder = Recorder()
    world = recorder.world
    db = world.open()
    recorder.commit(db, [update(1, 1, entries(1, 1))])
    group = db.begin([update(1, 1, entries(2, 2))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    recorder.moments.clear()
    if left_out:
        setattr(world.memory, left_out, lambda *_: None)
    db = world.kill()
    assert log_of(db).last_index() == 2
    recorder.moments.clear()
    recorder.quiet(db)
    recorder.commit(db, [update(1, 1, entries(3, 3))])
    # The derived index tells of the file, so the store misses it and halts.
    caught = pytest.raises((AssertionError, Halted)) if left_out else contextlib.nullcontext()
    with caught:
        replay_all(recorder)


def test_a_torn_group_is_dropped_whole() -> None:
    """INV-GROUP-1: however much of a group reached the disk, both replicas have it or neither."""
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 2)), update(2, 1, entries(1, 2))])
    before = picture(db)
    group = db.begin([update(1, 1, entries(3, 4)), update(2, 1, entries(3, 4))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    for keep in range(0, group.encoded.size - 8, 8):
        copy = world.without_index()
        copy.memory.crash(lambda path, number, size, keep=keep: keep)  # type: ignore[misc]
        assert picture(copy.open()) == before, keep
    world.memory.crash(lambda path, number, size: size)
    db = world.open()
    assert [log_of(db, shard).last_index() for shard in (1, 2)] == [4, 4]


def test_recovery_writes_nothing_before_it_has_decided() -> None:
    """INV-REC-3, with a torn group and a segment that is never used."""
    world = World()
    db = world.open()
    for first in range(1, 40, 3):
        db.commit([update(1, 1, entries(first, first + 2, size=300))])
    group = db.begin([update(1, 1, entries(40, 42, size=300))])
    world.memory.pwritev(group.handle, group.encoded.buffers, group.encoded.position.offset)
    world.memory.crash(lambda path, number, size: size // 2)
    files = SegmentFiles(world.memory, "/data/segments", world.directory.incarnation)
    for name in ("pwritev", "fdatasync", "sync_written", "truncate", "rename", "unlink", "create"):
        setattr(world.memory, name, lambda *_: pytest.fail("recovery writes"))
    first_time, again = (recover(Survey(files), None) for _ in range(2))
    assert first_time.report.torn_bytes
    for found in (first_time, again):
        (state,) = found.states.values()
        assert (state.index.last_index, state.index.tail_lsn, state.fault) == (39, 40, None)
    assert first_time.position == again.position
    assert first_time.seal == again.seal
    assert first_time.report == again.report


def test_memory_worlds_are_independent() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 3))])
    twin = world.copy()
    assert isinstance(twin.vfs, MemoryVfs)
    db.commit([update(1, 1, entries(4, 6))])
    assert log_of(twin.open()).last_index() == 3
