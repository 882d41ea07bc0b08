"""The report judges ratios pair by pair, and shows table, page and plots of the same figures."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from bench.results import page, plots, table
from bench.results.verdict import judge, p99, spread
from bench.rows.catalogue import ROWS
from bench.rows.row import OURS, Figure, Row, Target
from bench.rows.sweep import CALLERS, rate_at
from tests.bench.runs import FakeRow, figure, result, run_of
from tools.own_environment import ROOT

ETCD = "etcd 3.4.23"


def test_ratios_are_of_one_round_and_not_of_medians() -> None:
    found = result(
        "r",
        {OURS: figure(100.0), ETCD: figure(50.0)},
        {OURS: figure(10.0), ETCD: figure(2.0)},
        {OURS: figure(30.0), ETCD: figure(10.0)},
    )
    assert found.ratios(ETCD, "rate") == [2.0, 5.0, 3.0]
    verdict = judge(Target("", "rate", 3.0, peer="etcd"), found)
    assert (verdict.figure, verdict.met) == (3.0, True)


def test_of_several_sides_the_worst_for_us_decides() -> None:
    found = result(
        "r",
        {OURS: figure(100.0, 1.0), "Dragonboat, a": figure(20.0, 1.0)},
        {OURS: figure(100.0, 1.0), "Dragonboat, b": figure(50.0, 0.5)},
    )
    better = judge(Target("", "rate", 3.0, peer="Dragonboat"), found)
    assert (better.figure, better.met, better.side) == (2.0, False, "Dragonboat, b")
    faster = judge(Target("", "p50_ms", 1.0, at_most=True, peer="Dragonboat"), found)
    assert (faster.figure, faster.met, faster.side) == (2.0, False, "Dragonboat, b")


def test_without_the_peer_there_is_no_verdict() -> None:
    found = result("r", {OURS: figure(100.0)})
    assert judge(Target("", "rate", 1.0, peer="etcd"), found).met is None
    assert judge(Target("", "no such value", 1.0), found).met is None


@pytest.mark.parametrize(
    ("at_most", "bound", "met"),
    [(False, 20.0, True), (False, 20.1, False), (True, 20.0, True), (True, 19.9, False)],
)
def test_a_bound_itself_is_met(at_most: bool, bound: float, met: bool) -> None:
    found = result("r", *({OURS: figure(rate)} for rate in (10.0, 20.0, 90.0)))
    assert judge(Target("", "rate", bound, at_most), found).met is met


def test_p99_of_a_few_is_the_worst() -> None:
    assert p99([3.0, 1.0, 2.0]) == 3.0
    assert p99([float(one) for one in range(200)]) == 198.0
    found = result("r", *({OURS: figure(rate)} for rate in (1.0, 1.0, 9.0)))
    assert judge(Target("", "rate", 1.5, at_most=True, p99=True), found).met is False


def test_a_spread_is_a_median_with_its_range() -> None:
    of = spread([5.0, 1.0, 2.0])
    assert (of.middle, of.low, of.high) == (2.0, 1.0, 5.0)


TARGETS = (
    Target("at least 6.5x etcd", "rate", 6.5, peer="etcd"),
    Target("p50 at most etcd's", "p50_ms", 1.0, True, "etcd"),
    Target("at least 2x NATS", "rate", 2.0, peer="NATS"),
    Target("at least 1 k/s", "rate", 1000.0),
)


def lines() -> list[tuple[str, ...]]:
    row = FakeRow("r", {}, targets=TARGETS).row
    found = result(
        "r",
        {OURS: figure(30_000.0, 2.0), ETCD: figure(5000.0, 4.0)},
        {OURS: figure(40_000.0, 2.0), ETCD: figure(5000.0, 4.0)},
    )
    return [one.texts("; ") for one in table.lines(row, found)]


def test_a_line_for_each_side_and_each_target_of_none() -> None:
    assert lines() == [
        (
            "r",
            "appends/s",
            "35k (30k - 40k)",
            "2 / 6",
            ETCD,
            "5k",
            "4 / 12",
            "7x (6x - 8x)",
            "at least 6.5x etcd; p50 at most etcd's",
            "yes; yes, 0.5x",
        ),
        ("", "", "", "", "NATS", "not measured", "", "", "at least 2x NATS", "?"),
        ("", "", "", "", "", "", "", "", "at least 1 k/s", "yes, 35k"),
    ]


def test_a_row_without_sides_or_targets_has_a_line() -> None:
    row = FakeRow("r", {}).row
    [line] = table.lines(row, result("r", {OURS: figure(123.4)}))
    assert line.cells[:3] == ("r", "appends/s", "123")


def test_another_value_is_shown_where_its_target_stands() -> None:
    row = FakeRow("r", {}, targets=(Target("starts in 3 s", "start_s", 3.0, True),)).row
    found = result("r", {OURS: Figure({"rate": 1.0, "start_s": 2.5})})
    [line] = table.lines(row, found)
    assert line.cells[5] == "start s: 2.5"
    assert line.targets == (("starts in 3 s", "yes, 2.5"),)


def test_terminal_and_document_show_the_pieces_the_notes_and_what_is_missing() -> None:
    some = result("one-caller", {OURS: figure(800.0, 1.25)})
    some.missing["nats"] = "no such program"
    some.notes.append("quick: 1 GiB instead of 10")
    some.error = "ValueError: once"
    run = run_of(some)
    console = Console(width=200, record=True, file=io.StringIO())
    table.show(console, ROWS, run)
    for text in (console.export_text(), table.markdown(ROWS, run)):
        assert "2026-01-01 to 2026-01-02, 1 rows (rounds=5). cores: 2" in text
        assert "150 / 300, then 150 / 300" in text
        assert "nats is missing: no such program (one-caller)" in text
        assert "quick: 1 GiB instead of 10 (one-caller)" in text
        assert "failed: ValueError: once (one-caller)" in text


def test_a_document_shows_the_plots_of_the_rows_that_there_are(tmp_path: Path) -> None:
    sweep = {rate_at(callers): 1000.0 for callers in CALLERS}
    run = run_of(
        result("one-caller", {OURS: figure(800.0), ETCD: figure(900.0)}),
        result("blocks"),
        result("callers", {OURS: Figure(sweep)}),
    )
    text = table.markdown(ROWS, run, "pictures")
    named = set(re.findall(r"pictures/([a-z0-9-]+\.svg)", text))
    assert named == {path.name for path in plots.draw(ROWS, run, tmp_path)}
    assert "<picture>" not in table.markdown(ROWS, run)


def test_the_table_stands_between_the_markers_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"above\n\n{page.BEGIN}\nold\n{page.END}\n\nbelow\n")
    page.put(path, "new")
    page.put(path, "newer")
    assert path.read_text() == f"above\n\n{page.BEGIN}\n\nnewer\n{page.END}\n\nbelow\n"
    path.write_text(f"{page.BEGIN}\nold\n")
    with pytest.raises(ValueError, match="one marker of two"):
        page.put(path, "new")
    page.put(tmp_path / "alone.md", "new")
    assert (tmp_path / "alone.md").read_text() == "new"


def test_the_page_begins_with_a_plot_and_six_rows_of_its_table() -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    first = text.partition("\n\n")[2]
    assert first.startswith("<picture>")
    above, _, rest = first.partition(page.SHORT_BEGIN)
    rows, _, below = rest.partition(page.SHORT_END)
    assert len(above.splitlines()) < 10
    table_text = below.partition(page.BEGIN)[2].partition(page.END)[0]
    assert rows.strip() == page.short(table_text).strip()
    assert len(rows.strip().splitlines()) == 2 + 6


def test_the_short_table_follows_the_table(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    marks = f"{page.SHORT_BEGIN}\nold\n{page.SHORT_END}\n{page.BEGIN}\nold\n{page.END}\n"
    path.write_text(marks)
    table_text = (
        "| 1 caller, 256 B | appends/s | 7 (5 - 9) | 1 / 2 | raw disk | 9 |  | 2x (1x - 3x) |\n"
        "|  |  |  |  | etcd 3.6.99 | 5 (4 - 6) | 3 / 4 | 1.4x (1x - 2x) |\n"
    )
    page.put(path, table_text)
    shown = path.read_text().partition(page.SHORT_END)[0]
    assert shown.endswith("| 1 caller, 256 B | appends/s | 7 | etcd 3.6.99 | 5 | 1.4x |\n")
    assert table_text in path.read_text()


def whole_run() -> list[Row]:
    wanted = {"one-caller", "failover", "callers"}
    return [row for row in ROWS if row.key in wanted]


def test_a_plot_is_the_same_on_a_light_and_on_a_dark_page_but_for_its_colours(
    tmp_path: Path,
) -> None:
    sweep = {rate_at(callers): 1000.0 * callers for callers in CALLERS}
    run = run_of(
        result("one-caller", {OURS: figure(800.0), ETCD: figure(900.0)}),
        result("failover", {OURS: Figure({"elections": 0.2})}),
        result("callers", {OURS: Figure(sweep), ETCD: Figure(sweep)}),
    )
    made = plots.draw(whole_run(), run, tmp_path)
    names = {"callers", "ratios", "row-one-caller", "row-failover"}
    assert {path.name for path in made} == {
        f"{name}-{theme}.svg" for name in names for theme in ("light", "dark")
    }
    for name in names:
        light, dark = (
            re.sub("#[0-9a-f]{6}", "#", (tmp_path / f"{name}-{theme}.svg").read_text())
            for theme in ("light", "dark")
        )
        assert _places(light) == _places(dark)
        assert "ms to the ack" in light or name != "row-one-caller"
        assert "acknowledged records per second" in light or name != "callers"


def _places(svg: str) -> list[str]:
    """All coordinates: names of elements depend on colours, and places do not."""
    return re.findall(r'\b(?:d|x|y|viewBox|transform)="([^"]*)"', svg)


def test_every_row_and_side_has_a_look_of_its_own() -> None:
    sides = [OURS, "etcd 3.4", "etcd 3.6", "Dragonboat, a", "Dragonboat, b", "NATS", "raw disk"]
    for theme in plots.THEMES:
        looks = [plots.look_of(side, sides, theme) for side in sides]
        assert len(set(looks)) == len(sides)
        assert looks[1].colour == looks[2].colour
        assert len({look.marker for look in looks}) == len(sides)
