"""The rows are those of the list of targets, and a run keeps what it has, whatever ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as program
from bench.measuring import Measuring, measure_row
from bench.results.result import Result, Run, read
from bench.rows.catalogue import FURTHER, ROWS, WORKLOADS
from bench.rows.row import OURS, Figure, Setting
from tests.bench.runs import FakeRow, figure


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with asyncio.Runner() as runner:
        yield Setting(tmp_path, 2, 0.0, 0.1, runner=runner)


DESIGN = {
    "1 caller, 256 B": 2,
    "64 callers in one client, 256 B": 1,
    "64 separate connections, unary": 1,
    "1000 callers, 16 B, one shard": 1,
    "1000 callers, 16 B and 1 KiB, 48 shards": 2,
    "blocks of 1000 x 100 B": 1,
    "1 KiB records in bulk": 1,
    "reads": 2,
    "Spark replay, 100 B records, from a real cluster": 1,
    "catch-up of 1 GiB beside load": 1,
    "leader killed -> next acked append": 1,
    "restart with 10 GiB retained": 1,
    "idle cluster; 1 000; 10 000 idle shards, three stores together": 3,
    "HAKeeper, 100 stores x 10 000 shards": 1,
}
"""The workloads that the design has targets for, and how many rows each has."""


def test_every_target_of_the_design_has_its_rows_and_no_row_is_of_another() -> None:
    counts: dict[str, int] = {}
    for row in ROWS:
        if row.workload != FURTHER:
            assert row.targets, f"{row.key} must reach something"
            counts[row.workload] = counts.get(row.workload, 0) + 1
    assert counts == DESIGN
    assert tuple(DESIGN) == WORKLOADS


def test_keys_and_names_are_used_once() -> None:
    assert len({row.key for row in ROWS}) == len({row.name for row in ROWS}) == len(ROWS)


def test_rows_are_chosen_by_key_and_a_wrong_key_names_those_there_are() -> None:
    chosen = program.chosen("64-callers, one-caller", short=False)
    assert [row.key for row in chosen] == ["one-caller", "64-callers"]
    with pytest.raises(SystemExit, match="no row two-callers; there are: one-caller,"):
        program.chosen("two-callers", short=False)
    assert not any(row.long for row in program.chosen("", short=True))
    assert len(program.chosen("", short=False)) == len(ROWS)


def test_the_list_names_every_row_with_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(row.key in listed for row in ROWS)
    assert "at least 1.2x Dragonboat in process" in listed


def test_sides_take_turns_round_after_round(setting: Setting) -> None:
    row = FakeRow("r", {"a": lambda: figure(50.0), "b": lambda: figure(20.0)})
    result = Result("r", "now")
    setting.rounds = 3
    measure_row(row.row, setting, print, result)
    assert row.turns == [OURS, "a"] * 3 + [OURS, "b"] * 3
    assert [set(one) for one in result.rounds] == [{OURS, "a"}] * 3 + [{OURS, "b"}] * 3
    assert list(setting.directory.iterdir()) == []


def test_a_missing_peer_is_named_and_ours_is_measured_without_any(setting: Setting) -> None:
    row = FakeRow("r", {}, missing=("a",))
    result = Result("r", "now")
    measure_row(row.row, setting, print, result)
    assert result.missing == {"a": "no such program"}
    assert row.turns == [OURS, OURS]


def test_a_peer_that_fails_is_left_out_and_the_next_one_is_measured(setting: Setting) -> None:
    def fails() -> Figure:
        raise ExceptionGroup("several", [ConnectionError("gone")])

    row = FakeRow("r", {"a": fails, "b": lambda: figure(1.0)})
    result = Result("r", "now")
    measure_row(row.row, setting, print, result)
    assert result.missing == {"a": "failed in round 1: ConnectionError: gone"}
    assert row.turns == [OURS, "a", OURS, "b", OURS, "b"]
    assert result.ratios("a", "rate") == []


def test_a_row_that_fails_is_in_the_file_and_measured_again(
    tmp_path: Path, setting: Setting
) -> None:
    def wrong() -> Figure:
        raise ValueError("a record is not there")

    path = tmp_path / "run.json"
    rows = [FakeRow("bad", {}, ours=wrong), FakeRow("good", {"a": lambda: figure(50.0)})]
    measuring = Measuring(Run(), path, setting, {}, print)
    told: list[str] = []
    measuring.rows([one.row for one in rows], lambda row, _: told.append(row.key))
    measuring.end()
    run = read(path)
    assert told == ["bad", "good"]
    assert run.rows["bad"].error == "ValueError: a record is not there"
    assert not run.rows["bad"].whole
    assert run.rows["good"].whole
    assert run.rows["good"].ratios("a", "rate") == [2.0, 2.0]
    assert run.pieces[0].disk_after is not None


def test_a_run_that_is_stopped_keeps_what_it_has(tmp_path: Path, setting: Setting) -> None:
    seen = 0

    def stops() -> Figure:
        nonlocal seen
        seen += 1
        if seen == 2:
            signal.raise_signal(signal.SIGINT)
        return figure(1.0)

    path = tmp_path / "run.json"
    setting.rounds = 3
    rows = [FakeRow("first", {}), FakeRow("second", {}, ours=stops), FakeRow("third", {})]
    measuring = Measuring(Run(), path, setting, {}, print)
    with pytest.raises(KeyboardInterrupt):
        measuring.rows([one.row for one in rows], lambda *_: None)
    run = read(path)
    assert list(run.rows) == ["first", "second"]
    assert (run.rows["first"].whole, run.rows["second"].whole) == (True, False)
    assert run.rows["second"].error == "stopped"
    assert rows[2].turns == []
    assert [one.name for one in tmp_path.iterdir()] == ["run.json"]


def test_resuming_measures_what_the_file_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    flaky = [ValueError("once")]

    def once_wrong() -> Figure:
        if flaky:
            raise flaky.pop()
        return figure(3.0)

    rows = [FakeRow("first", {}), FakeRow("second", {}, ours=once_wrong)]
    monkeypatch.setattr(program, "ROWS", tuple(one.row for one in rows))
    monkeypatch.setattr(program, "tune_interpreter", lambda: None)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    words = ["--rounds", "1", "--dir", str(tmp_path)]
    assert program.main([*words, "--json", str(path)]) == 1
    assert program.main([*words, "--resume", str(path)]) == 0
    assert rows[0].turns == [OURS]
    assert rows[1].turns == [OURS, OURS]
    run = read(path)
    assert [piece.rows for piece in run.pieces] == [["first", "second"], ["second"]]
    assert "failed: second" in capsys.readouterr().out


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format 99"):
        read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="no run of the bench"):
        read(path)


def test_a_smaller_size_says_so(setting: Setting) -> None:
    assert setting.size(10, 1, "GiB") == 10
    setting.quick = True
    assert setting.size(10, 1, "GiB") == 1
    assert setting.notes == ["quick: 1 GiB instead of 10"]
