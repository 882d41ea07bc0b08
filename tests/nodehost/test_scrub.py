"""The scrub of a data directory: its rate, its pauses, and whom it tells of what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise

import pytest

from logservice.clock import ManualClock
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.log_db import LogDb
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.disks.read_budget import ReadBudget
from logservice.nodehost.integrity.scrub import Scrubber, ScrubPass
from logservice.pause import Pause
from tests.logdb.helpers import World, entries, update

RATE = 1000.0
SLICE = 700
PASS_S = 3600.0
ENOUGH_S = 2 * PASS_S


class Enough(Exception):
    """The clock shows what the test wanted to see."""


def sleeps(
    monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], Coroutine[None, None, None]]
) -> None:
    """Every sleep of the scrubber is `sleep`: between slices, and the one that a reload may end."""
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(Pause, "sleep", lambda _, seconds: sleep(seconds))


class Scrub:
    """A scrubber whose time passes only while it sleeps; it notes (seconds, bytes verified)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World()
        self.db: LogDb = self.world.open()
        for first in range(1, 40, 2):
            self.db.commit(
                [
                    update(1, 1, entries(first, first + 1, size=300)),
                    update(2, 2, entries(first, first + 1, size=30)),
                ]
            )
        self.clock = ManualClock()
        self.damaged: list[tuple[ShardId, ReplicaId]] = []
        self.seen: list[tuple[float, int]] = []
        self.until_s = ENOUGH_S
        budget = ReadBudget(self.clock, bytes_per_s=RATE)
        self.scrubber = Scrubber(
            self.db,
            self.world.vfs,
            InlineExecutor(),
            self.clock,
            budget,
            self._damaged,
            pass_interval_s=PASS_S,
            slice_bytes=SLICE,
        )
        sleeps(monkeypatch, self._sleep)

    def _damaged(self, keys: Sequence[tuple[ShardId, ReplicaId]]) -> None:
        self.damaged += keys

    def _look(self) -> None:
        self.seen.append((self.clock.monotonic(), self.scrubber.progress.bytes_verified))

    async def _sleep(self, seconds: float) -> None:
        self._look()
        self.clock.advance(seconds)
        self._look()
        if self.clock.monotonic() > self.until_s:
            raise Enough

    async def run(self) -> None:
        with pytest.raises(Enough):
            await self.scrubber.run()


async def test_never_more_than_two_slices_above_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = Scrub(monkeypatch)
    await scrub.run()
    progress = scrub.scrubber.progress
    assert progress.passes == 2
    assert progress.segments == 2 * (len(scrub.world.segments()) - 1), "every sealed one, each time"
    largest = max(after - before for (_, before), (_, after) in pairwise(scrub.seen))
    assert 0 < largest < 3 * SLICE, "a slice goes on to the end of its group"
    for at_s, before in scrub.seen:
        for later_s, after in scrub.seen:
            if later_s >= at_s:
                assert after - before <= RATE * (later_s - at_s) + 2 * largest + 1
    busy_s = max(later_s for later_s, after in scrub.seen if later_s < PASS_S)
    assert busy_s > 0.8 * progress.bytes_verified / 2 / RATE, "it really takes that long"


async def test_between_two_passes_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = Scrub(monkeypatch)
    await scrub.run()
    pauses = [
        (later_s - at_s, after - before)
        for (at_s, before), (later_s, after) in pairwise(scrub.seen)
        if later_s - at_s > PASS_S / 2
    ]
    assert [size for _, size in pauses] == [0] * len(pauses)
    assert all(seconds >= PASS_S - 1 for seconds, _ in pauses)
    assert pauses


async def test_the_damaged_replica_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scrub = Scrub(monkeypatch)
    place = scrub.db.log(ShardId(1), ReplicaId(1))._state.index.place(1)
    scrub.world.memory.flip(scrub.world.segments()[0], place.offset + 100, 4)
    scrub.until_s = PASS_S
    await scrub.run()
    assert scrub.damaged == [(1, 1)]
    assert scrub.scrubber.progress.damages == 1
    assert scrub.db.log(ShardId(1), ReplicaId(1)).faulty
    assert not scrub.db.log(ShardId(2), ReplicaId(2)).faulty
    assert scrub.scrubber.progress.passes == 1, "it went on to the end"


async def test_one_that_is_cancelled_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = Scrub(monkeypatch)
    whole = Scrub(monkeypatch)
    whole.until_s = PASS_S
    await whole.run()
    sleeps(monkeypatch, scrub._sleep)
    for until_s in (8.0, 9.0, 12.0, PASS_S):
        scrub.until_s = until_s
        await scrub.run()
    assert scrub.scrubber.progress == whole.scrubber.progress


async def test_a_pass_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = Scrub(monkeypatch)
    sealed = scrub.db.sealed_bytes(0)
    memory, segments = scrub.world.memory, scrub.world.segments()
    sizes = [memory.size(memory.open_read(path)) for path in segments]
    assert sealed == sum(sizes[:-1]), "all but the one that is being written"
    assert scrub.scrubber.look() == ScrubPass(RATE, sealed, 0, 0.0)
    looks: list[tuple[float, ScrubPass]] = []
    sleep = scrub._sleep

    async def watched(seconds: float) -> None:
        looks.append((scrub.clock.monotonic(), scrub.scrubber.look()))
        await sleep(seconds)

    sleeps(monkeypatch, watched)
    scrub.until_s = PASS_S
    await scrub.run()
    under_way = [(at_s, look) for at_s, look in looks if look.done_bytes]
    assert len(under_way) > 10
    done = [look.done_bytes for _, look in under_way]
    assert done == sorted(done), "it never goes back"
    assert {look.bytes for _, look in under_way} == {sealed}
    after = scrub.scrubber.look()
    assert (after.bytes, after.done_bytes) == (sealed, 0)
    assert after.last_s == pytest.approx(sealed / RATE, rel=0.2), "what was to be expected"
    # When half of the bytes are done, half of the time is gone.
    at_s, look = min(under_way, key=lambda one: abs(one[1].done_bytes - sealed / 2))
    began_s = under_way[0][0]
    left_s = (look.bytes - look.done_bytes) / look.rate
    assert at_s - began_s + left_s == pytest.approx(after.last_s, rel=0.2)


async def test_what_is_sealed_during_a_pass_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scrub = Scrub(monkeypatch)
    before = scrub.scrubber.look().bytes
    scrub.until_s = 6.0
    await scrub.run()
    half = scrub.scrubber.look()
    assert 0 < half.done_bytes < half.bytes == before
    for first in range(41, 61, 2):
        scrub.db.commit([update(1, 1, entries(first, first + 1, size=300))])
    grown = scrub.scrubber.look()
    assert grown.done_bytes == half.done_bytes
    assert grown.bytes == scrub.db.sealed_bytes(0) > before
