"""The parts of a chaos run that need no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from logservice.sim.history import Run, check
from tests.chaos.good_histories import good_history
from tests.chaos.history_file import HistoryWriter, decode, encode, load
from tests.chaos.nemesis import Fault, Wanted, kills_of, plan
from tests.chaos.records import identify, make_record, make_records, runs_of


@pytest.mark.parametrize("size", [0, 5, 40, 1000])
def test_records_are_identified(size: int) -> None:
    record = make_record("c1.2-77", 5, size)
    assert len(record) >= size
    assert identify(record) == ("c1.2-77", 5)


def test_damaged_records_are_foreign() -> None:
    record = bytearray(make_record("c1.2-77", 5, 60))
    for position in range(len(record)):
        damaged = bytearray(record)
        damaged[position] ^= 1
        assert identify(bytes(damaged)) in (None, ("c1.2-77", 4), ("c1.2-76", 5)) or position < 8
        assert identify(bytes(damaged)) != ("c1.2-77", 5)
    assert identify(bytes(record[:-1])) is None
    assert identify(b"") is None
    assert identify(b"\xff\xff/1/10/") is None


def test_runs_split_where_batches_meet() -> None:
    records = [
        *make_records("a", 3, 20),
        b"what is this",
        *make_records("b", 2, 20)[1:],
        *make_records("b", 4, 20)[2:],
    ]
    assert runs_of(10, records) == [
        Run(10, 3, "a", 0),
        Run(13, 1),
        Run(14, 3, "b", 1),
    ]
    assert runs_of(1, []) == []


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    history = good_history(7)
    assert [decode(encode(operation)) for operation in history] == history
    writers = [HistoryWriter(tmp_path / f"{number}.jsonl") for number in range(2)]
    for number, operation in enumerate(history):
        writers[number % 2].add(operation)
    for writer in writers:
        writer.close()
    loaded = load(sorted(tmp_path.iterdir()))
    assert sorted(map(encode, loaded)) == sorted(map(encode, history))
    assert check(loaded).ok


@pytest.mark.parametrize("stores", [1, 2, 3, 5])
@pytest.mark.parametrize("kills", [0, 1, 7, 30])
def test_a_plan_has_what_was_asked_for(kills: int, stores: int) -> None:
    for seed in range(20):
        wanted = Wanted(kills, pauses=5, stops=2, replacements=1)
        steps = plan(seed, wanted, stores)
        assert sum(kills_of(step.fault, stores) for step in steps) == kills
        assert sum(step.fault in (Fault.PAUSE, Fault.PAUSE_LEADER) for step in steps) == 5
        assert sum(step.fault is Fault.STOP for step in steps) == 2
        assert sum(step.fault is Fault.REPLACE for step in steps) == 1
        assert all(sorted(step.victims) == list(range(stores)) for step in steps)
        assert steps == plan(seed, wanted, stores)
    assert plan(1, wanted, stores) != plan(2, wanted, stores)
