"""table: a run as lines of cells, for the terminal and for Markdown.

A row has a line for each side that it was compared with, and one more for each target that is about
none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.results.result import Piece, Result, Run
from bench.results.verdict import Verdict, judge, spread
from bench.rows.row import OURS, Row
from bench.rows.sweep import CALLERS, rate_at

HEADER: Final = (
    "workload",
    "unit",
    "ours: median (range)",
    "p50 / p99 ms",
    "beside it",
    "its median (range)",
    "its p50 / p99 ms",
    "ours to it (range)",
    "target",
    "met",
)
NOTHING: Final = ("", "", "", "")
_UNITS: Final = {"core": "%", "kept": "%"}
"""Values that are shares."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `targets`: each with whether it is met, in words. `met` is None where there is no
    target, or nothing to judge it by.
    """

    cells: tuple[str, ...]
    targets: tuple[tuple[str, str], ...]
    met: bool | None

    def texts(self, between: str) -> tuple[str, ...]:
        """All cells; what is between several targets."""
        targets, words = zip(*self.targets, strict=True) if self.targets else ((), ())
        return (*self.cells, between.join(targets), between.join(words))


def lines(row: Row, result: Result) -> list[Line]:
    """The lines of one row."""
    verdicts = [judge(target, result) for target in row.targets]
    mine = _mine(row, result)
    found = []
    for side in result.sides():
        about = [one for one in verdicts if one.side == side]
        found.append(_line(row, mine, _theirs(row, result, side), about))
        mine = NOTHING
    missed: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.side:
            missed.setdefault(verdict.target.peer or verdict.target.value, []).append(verdict)
    for some in missed.values():
        found.append(_line(row, mine, _alone(row, result, some[0]), some))
        mine = NOTHING
    if mine[0]:
        found.append(_line(row, mine, NOTHING, []))
    return found


def _mine(row: Row, result: Result) -> tuple[str, str, str, str]:
    values = result.values(OURS, row.value)
    name = row.name + (f" ({result.error.splitlines()[0]})" if result.error else "")
    return name, row.unit, _spread(values, row.value), _latencies(result, OURS)


def _theirs(row: Row, result: Result, side: str) -> tuple[str, str, str, str]:
    ratios = result.ratios(side, row.value)
    ratio = ""
    if ratios:
        of = spread(ratios)
        ratio = _ratio(of.middle)
        if of.low != of.high:
            ratio += f" ({_ratio(of.low)} - {_ratio(of.high)})"
    figures = _spread(result.values(side, row.value), row.value)
    return side, figures, _latencies(result, side), ratio


def _alone(row: Row, result: Result, verdict: Verdict) -> tuple[str, str, str, str]:
    """What the target is about, when it is not the value of the row itself."""
    value = verdict.target.value
    if verdict.target.peer:
        return verdict.target.peer, "not measured", "", ""
    if value == row.value or verdict.met is None:
        return "", "", "", ""
    return (
        "",
        f"{value.replace('_', ' ')}: {_spread(result.values(OURS, value), value)}",
        "",
        "",
    )


def _line(
    row: Row,
    mine: tuple[str, str, str, str],
    theirs: tuple[str, str, str, str],
    verdicts: Sequence[Verdict],
) -> Line:
    known = [one for one in verdicts if one.met is not None]
    met = all(one.met for one in known) if known else None
    words = tuple((one.target.text, _met(one, row)) for one in verdicts)
    return Line((*mine, *theirs), words, met)


def _met(verdict: Verdict, row: Row) -> str:
    if verdict.met is None:
        return "?"
    word = "yes" if verdict.met else "no"
    target = verdict.target
    if target.peer and target.value == row.value and not target.p99:
        return word
    figure = _ratio(verdict.figure) if target.peer else _figure(verdict.figure, target.value)
    return f"{word}, {figure}"


def _spread(values: Sequence[float], value: str) -> str:
    if not values:
        return "-"
    of = spread(values)
    middle, low, high = (_figure(one, value) for one in (of.middle, of.low, of.high))
    return middle if low == high else f"{middle} ({low} - {high})"


def _latencies(result: Result, side: str) -> str:
    p50, p99 = (result.values(side, value) for value in ("p50_ms", "p99_ms"))
    if not p50 or not p99:
        return ""
    return f"{_figure(spread(p50).middle, '')} / {_figure(spread(p99).middle, '')}"


def _figure(number: float, value: str) -> str:
    """Three digits, and thousands as a person reads them."""
    if value in _UNITS:
        return f"{100 * number:.3g} {_UNITS[value]}"
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{_digits(number / factor)}{letter}"
    return _digits(number)


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _ratio(number: float) -> str:
    return f"{_digits(number)}x"


def all_lines(rows: Iterable[Row], run: Run) -> list[tuple[Row, list[Line]]]:
    """The lines of all rows that the run has."""
    return [(row, lines(row, run.rows[row.key])) for row in rows if row.key in run.rows]


def show(console: Console, rows: Iterable[Row], run: Run) -> None:
    """Print everything: the pieces with their machine, the table, the notes."""
    for piece in run.pieces:
        console.print(piece_text(piece), markup=False)
    table = Table(*HEADER, title="Acknowledged by a majority's fdatasync; ratios are of one round")
    for _, some in all_lines(rows, run):
        table.add_section()
        for line in some:
            style = {True: "green", False: "red", None: ""}[line.met]
            *cells, met = line.texts("\n")
            table.add_row(*map(Text, cells), Text(met, style))
    console.print(table)
    for note in notes(rows, run):
        console.print(f"- {note}", markup=False)


def piece_text(piece: Piece) -> str:
    """When, where, and how fast the disk was."""
    machine = "; ".join(f"{name}: {value}" for name, value in piece.environment.items())
    options = " ".join(f"{name}={value}" for name, value in piece.options.items())
    return (
        f"{piece.began} to {piece.ended}, {len(piece.rows)} rows ({options}). {machine}. "
        f"{disk_text(piece)}"
    )


def disk_text(piece: Piece) -> str:
    """The raw disk before and after."""
    looks = [piece.disk_before, *([piece.disk_after] if piece.disk_after else [])]
    p50 = ", then ".join(f"{one.write_p50_us:.0f} / {one.write_p99_us:.0f}" for one in looks)
    rate = ", then ".join(f"{one.sequential_mb_s:.0f}" for one in looks)
    return f"4 KiB pwrite + fdatasync, p50 / p99 us: {p50}; in order, MB/s: {rate}"


def notes(rows: Iterable[Row], run: Run) -> list[str]:
    """What rows say of themselves, and which peers are missing and why."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if (result := run.rows.get(row.key)) is None:
            continue
        for note in result.notes:
            found.setdefault(note, []).append(row.key)
        for peer, why in result.missing.items():
            found.setdefault(f"{peer} is missing: {why}", []).append(row.key)
        if result.error:
            found.setdefault(f"failed: {result.error.splitlines()[0]}", []).append(row.key)
    return [f"{note} ({', '.join(keys)})" for note, keys in found.items()]


def markdown(rows: Iterable[Row], run: Run, pictures: str = "") -> str:
    """The table and what belongs to it, for a document. `pictures`: the folder of the plots, as the
    document names it.
    """
    rows = [row for row in rows if row.key in run.rows]
    out = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    out += [
        "| " + " | ".join(cell.replace("|", "/") for cell in line.texts("; ")) + " |"
        for _, some in all_lines(rows, run)
        for line in some
    ]
    if pictures:
        out += ["", picture(pictures, "callers", "Throughput against callers")]
        out += ["", picture(pictures, "ratios", "Records per second beside others")]
    out += ["", *(f"- {piece_text(piece)}" for piece in run.pieces)]
    out += [f"- {note}" for note in notes(rows, run)]
    if pictures:
        out += ["", "<details><summary>A plot for each row</summary>"]
        for row in rows:
            if row.value != rate_at(CALLERS[-1]) and run.rows[row.key].values(OURS, row.value):
                out += ["", picture(pictures, f"row-{row.key}", row.name)]
        out += ["", "</details>"]
    return "\n".join(out) + "\n"


def picture(folder: str, name: str, what: str) -> str:
    """A plot in the colours of the reader's page."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">'
        f'<img alt="{what}" src="{folder}/{name}-light.svg"></picture>'
    )
