"""The smoke run fails on a collapse, and on nothing less."""

from __future__ import annotations

import pytest

from bench import smoke
from bench.rows.catalogue import ROWS
from bench.rows.row import OURS
from bench.smoke import COLLAPSE, EXPECTED, Expected, judge
from tests.bench.runs import figure, result

ETCD = "etcd 3.4.23"


def found(ratio: float, expected: float = 4.0) -> bool:
    some = {"r": result("r", *[{OURS: figure(100 * ratio), ETCD: figure(100.0)}] * 3)}
    [one] = judge(some, [Expected("r", "etcd", expected)])
    assert one.ratio == pytest.approx(ratio)
    return one.collapsed


def test_less_than_a_third_is_a_collapse() -> None:
    assert found(4.0 * COLLAPSE * 0.99)
    assert not found(4.0 * COLLAPSE * 1.01)
    assert not found(4.0)
    assert not found(40.0)


def test_one_bad_round_of_three_is_none() -> None:
    pair = {OURS: figure(400.0), ETCD: figure(100.0)}
    some = {"r": result("r", pair, {**pair, OURS: figure(1.0)}, pair)}
    [one] = judge(some, [Expected("r", "etcd", 4.0)])
    assert not one.collapsed


def test_without_etcd_the_others_decide() -> None:
    some = {"r": result("r", {OURS: figure(1.0), "raw disk": figure(100.0)})}
    etcd, disk = judge(some, [Expected("r", "etcd", 4.0), Expected("r", "raw disk", 0.1)])
    assert etcd.ratio is None
    assert not etcd.collapsed
    assert disk.collapsed


def test_what_is_expected_is_of_rows_that_there_are() -> None:
    assert {one.row for one in EXPECTED} <= {row.key for row in ROWS}


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 1), (4.0, 0)])
def test_a_collapse_is_the_exit_code_and_named(
    ratio: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(row: object, setting: object, say: object, into: object) -> None:
        into.rounds = [{OURS: figure(100 * ratio), ETCD: figure(100.0)}]  # type: ignore[attr-defined]

    monkeypatch.setattr(smoke, "measure_row", measured)
    monkeypatch.setattr(smoke, "tune_interpreter", lambda: None)
    monkeypatch.setattr(smoke, "EXPECTED", (Expected("one-caller", "etcd", 4.0),))
    monkeypatch.setattr(smoke.judge, "__defaults__", (smoke.EXPECTED,))
    assert smoke.main() == code
    said = capsys.readouterr().out
    assert ("bench-smoke failed: one-caller is 0.5x of etcd" in said) == bool(code)
