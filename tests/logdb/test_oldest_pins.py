"""Which replicas pin the oldest segment: the largest few are reported, the search goes in slices,
and a replica that no longer pins it disappears.
"""

from __future__ import annotations

from dataclasses import replace

from logservice import bounds
from logservice.ids import Index
from logservice.logdb.index.index import Chunk, EntryIndex, SegmentUsage
from logservice.logdb.index.replica_state import Key, ReplicaState
from logservice.logdb.log_db import LogDb
from logservice.logdb.space.oldest_pins import OldestPin, OldestPins
from tests.logdb.helpers import SMALL, World, entries, log_of, of_plain_bytes, update

REPLICAS = bounds.METRIC_PINS_MAX + 3


def filled() -> tuple[World, LogDb]:
    """Replica n of shard n has n entries in the oldest segment; then only shard 1 goes on."""
    world = World(options=replace(SMALL, segment_bytes=32 * 1024))
    db = world.open()
    db.commit([update(n, n, entries(1, n, size=100)) for n in range(1, REPLICAS + 1)])
    for index in range(2, 60):
        db.commit([update(1, 1, entries(index, index, size=1500))])
    assert len(world.segments()) > 2
    return world, db


def look(db: LogDb) -> int:
    """Do a whole search; return how many steps it took."""
    return sum(1 for _ in db.survey_oldest())


@of_plain_bytes
def test_the_largest_few_are_told_and_what_they_hold() -> None:
    _, db = filled()
    assert db.stats().oldest_pins == (), "nobody has looked"
    look(db)
    found = db.stats().oldest_pins
    assert [pin.shard for pin in found][:2] == [1, REPLICAS]
    assert len(found) == bounds.METRIC_PINS_MAX
    assert [pin.live_bytes for pin in found] == sorted(
        (pin.live_bytes for pin in found), reverse=True
    )
    assert found[1] == OldestPin(REPLICAS, REPLICAS, REPLICAS * (72 + 104))


@of_plain_bytes
def test_what_is_not_so_any_more_is_not_told() -> None:
    world, db = filled()
    look(db)
    pins = {pin.shard: pin.live_bytes for pin in db.stats().oldest_pins}
    db.commit([update(REPLICAS, REPLICAS, snapshot=3)])
    db.commit([update(REPLICAS - 1, REPLICAS - 1, remove=True)])
    after = {pin.shard: pin.live_bytes for pin in db.stats().oldest_pins}
    assert after[REPLICAS] == pins[REPLICAS] - 3 * (72 + 104)
    assert REPLICAS - 1 not in after
    assert after[1] == pins[1]
    look(db)
    assert len(db.stats().oldest_pins) == bounds.METRIC_PINS_MAX, "the next largest are found"
    for shard in range(1, REPLICAS + 1):
        if shard != REPLICAS - 1:
            db.commit([update(shard, shard, snapshot=int(log_of(db, shard, shard).last_index()))])
    assert db.stats().oldest_pins == ()
    db.collect_garbage()
    look(db)
    assert db.stats().oldest_segment > 1
    assert db.stats().oldest_pins == ()
    db = world.reopen(db)
    look(db)
    assert db.stats().oldest_pins == ()


def test_the_segment_that_is_being_written_is_pinned_by_nobody() -> None:
    world = World()
    db = world.open()
    db.commit([update(1, 1, entries(1, 3))])
    look(db)
    assert db.stats().oldest_pins == ()


def test_copies_count_where_they_are_now() -> None:
    _, db = filled()
    db.commit([update(1, 1, snapshot=20)])
    look(db)
    assert db.stats().oldest_segment == 1
    before = {pin.shard for pin in db.stats().oldest_pins}
    assert REPLICAS in before
    db.collect_garbage()
    assert db.stats().oldest_segment > 1
    assert db.stats().oldest_pins == (), "it is another segment, at which nobody has looked"


class Counted(list[Chunk]):
    """A list that counts how often it was iterated."""

    walks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        Counted.walks += 1
        return super().__iter__()


def test_a_look_is_done_in_slices_and_only_when_something_changed() -> None:
    """The cost of a scrape does not depend on a thousand replicas with fifty chunks each."""
    usage = SegmentUsage()
    states: dict[Key, ReplicaState] = {}
    for shard in range(1000):
        state = states[shard, 1] = ReplicaState(shard, 1)
        state.index = EntryIndex()
        state.index.usage = usage
        for number in range(50):
            segment = 1 if shard % 100 == 7 and not number else number + 2
            chunk = Chunk(segment, number + 1, number + 1, 1, 1, 8 + shard, 8 + shard, None)
            state.index.chunks.append(chunk)
            state.index._firsts.append(number + 1)
            usage.add(segment, chunk.live, 1)
        state.index.last_index = Index(50)
        state.index.chunks = Counted(state.index.chunks)
    pins = OldestPins(states, usage)
    steps = sum(1 for _ in pins.survey(1))
    assert steps >= 1000 * 50 * 0.9 // bounds.LOGDB_COLLECT_SLICE_STEPS - 1
    assert [pin.shard for pin in pins.top(1)] == [907, 807, 707, 607, 507]
    Counted.walks = 0
    assert sum(1 for _ in pins.survey(1)) == 0
    assert len(pins.top(1)) == bounds.METRIC_PINS_MAX
    assert Counted.walks == 0
    assert pins.top(2) == ()
    usage.add(1, -8, 0)
    assert sum(1 for _ in pins.survey(1)) > 0
