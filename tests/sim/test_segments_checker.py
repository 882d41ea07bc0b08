"""Tests of the checker `segments-go` on a real log storage: what is an alarm, and what is none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.segment_writer import SegmentWriter
from logservice.sim.checkers.segments import READ_COLLECTIONS_MAX, SegmentsGo
from logservice.sim.oracle import Oracle
from tests.logdb.helpers import SMALL, World, entries, update

SEGMENT = SMALL.segment_bytes
RATIO = 0.9


class Watched:
    """Log storage in which log 1 is dead and log 2 lives, segment by segment."""

    def __init__(self, live: list[int]) -> None:
        self.said: list[str] = []
        self.checker: Any = SegmentsGo(Oracle(), lambda _, detail: self.said.append(detail))
        config = SimpleNamespace(segment_bytes=SEGMENT, rewrite_live_ratio=RATIO, reserve_bytes=0)
        self.store: Any = SimpleNamespace(
            store_id="s1",
            process=SimpleNamespace(name="s1#1"),
            world=SimpleNamespace(config=config),
        )
        self.world = World(
            options=replace(SMALL, rewrite_live_ratio=RATIO, rewrite_bytes_max=4 * SEGMENT)
        )
        self.db = self.world.open()
        for number, size in enumerate(live, 1):
            both = [update(1, 1, entries(number, number, size=3500 - size))]
            if size:
                lsn = len([one for one in live[:number] if one])
                both.append(update(2, 1, entries(lsn, lsn, size=size)))
            self.db.commit(both)
        top = len(live) + 1
        self.db.commit([update(1, 1, entries(top, top, size=3700))])
        self.db.commit([update(1, 1, snapshot=len(live))])
        assert self.db.stats().segment_files == top + 1
        self.db.observer = self  # type: ignore[assignment]

    def collecting(self, collection: GarbageCollection) -> None:
        self.checker.collecting(self.store, collection)

    def collected(self, collection: GarbageCollection) -> None:
        self.checker.collected(self.store, collection)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def test_a_segment_that_waits_its_turn_is_no_alarm() -> None:
    """As in the worlds of seeds 29202 and 29212: older ones take all copies, time and again."""
    watched = Watched([3000] * 12)
    gone = [set(watched.db.collect_garbage().unlinked) for _ in range(3)]
    assert [len(one & set(range(1, 13))) for one in gone] == [5, 5, 2]
    assert watched.said == []


@pytest.mark.parametrize(
    ("victims", "alarms"),
    [
        pytest.param([1, 2, 3], 0, id="all go"),
        pytest.param([1, 3], 1, id="there was room for the copies"),
        pytest.param([2, 3], 1, id="the oldest waits"),
        pytest.param([1, 2], 1, id="a dead one waits"),
    ],
)
def test_a_collection_that_leaves_one(
    monkeypatch: pytest.MonkeyPatch, victims: list[int], alarms: int
) -> None:
    watched = Watched([3000, 3000, 0])
    begin = watched.db.begin_collection

    def fewer() -> GarbageCollection:
        collection = begin()
        collection._victims &= set(victims)
        return collection

    monkeypatch.setattr(watched.db, "begin_collection", fewer)
    watched.db.collect_garbage()
    assert len(watched.said) == alarms, watched.said


def test_a_segment_that_is_always_read_is_an_alarm() -> None:
    watched = Watched([3000, 3000])
    watched.db._files.pin(1)
    for _ in range(READ_COLLECTIONS_MAX):
        watched.db.collect_garbage()
    assert watched.said == []
    watched.db.collect_garbage()
    assert len(watched.said) == 1


def test_a_file_that_nobody_knows_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched([3000, 0])
    monkeypatch.setattr(SegmentWriter, "_remove", lambda self, segments: None)
    watched.db.collect_garbage()
    assert [detail.partition(": ")[2] for detail in watched.said] == [
        "files of segments [1, 2] stay, and nobody knows them"
    ]
