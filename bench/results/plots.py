"""plots: pictures of a run, each twice, for a light page and a dark one.

`NAME-light.svg` and `NAME-dark.svg` differ in colours and in nothing else. There are `callers`
(throughput against callers), `ratios` (ours to each peer, all rows) and `row-KEY` for each row: the
rounds of every side, and the percentiles of latency where there are some. The colours are of Okabe
and Ito's palette, which people tell apart who do not see all colours; sides have markers of their
own besides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bench.results.result import Result, Run
from bench.results.verdict import spread
from bench.rows.row import OURS, POINTS, Row
from bench.rows.sweep import CALLERS, rate_at


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a page."""

    name: str
    paper: str
    ink: str
    quiet: str
    grid: str
    ours: str
    others: tuple[str, ...]


THEMES: Final = (
    Theme(
        "light",
        "#ffffff",
        "#1f2328",
        "#59636e",
        "#d8dee4",
        "#0072b2",
        ("#d55e00", "#009e73", "#b5529c", "#b88200", "#6e7781"),
    ),
    Theme(
        "dark",
        "#0d1117",
        "#e6edf3",
        "#9198a1",
        "#30363d",
        "#56b4e9",
        ("#f0814a", "#2fc79a", "#e08fc8", "#e6b422", "#9aa4ae"),
    ),
)

FAMILIES: Final = ("etcd", "Dragonboat", "NATS", "BookKeeper")
"""A colour each; all that is none of them has the last one."""
MARKERS: Final = ("s", "^", "D", "v", "P", "X")

SHOWN: Final = (0.5, 0.9, 0.99, 0.999, 1.0)
"""Percentiles on the axis."""
NAMES: Final = ("p50", "p90", "p99", "p99.9", "max")

STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bench",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
}


def draw(rows: Iterable[Row], run: Run, folder: Path, form: str = "svg") -> list[Path]:
    """Draw everything that the run has figures for; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = [(row, run.rows[row.key]) for row in rows if _has_figures(run, row)]
    made = []
    for theme in THEMES:
        with pyplot.rc_context({**STYLE, **_colours(theme)}):
            for row, result in measured:
                if row.value == rate_at(CALLERS[-1]):
                    name, picture = "callers", against_callers(row, result, theme)
                else:
                    name, picture = f"row-{row.key}", one_row(row, result, theme)
                made.append(_save(picture, folder / f"{name}-{theme.name}.{form}"))
            if (ratios := all_ratios(measured, theme)) is not None:
                made.append(_save(ratios, folder / f"ratios-{theme.name}.{form}"))
    return made


def _save(picture: Picture, path: Path) -> Path:
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    picture.savefig(path, metadata=metadata, dpi=120)
    pyplot.close(picture)
    return path


def _has_figures(run: Run, row: Row) -> bool:
    return row.key in run.rows and bool(run.rows[row.key].values(OURS, row.value))


def _colours(theme: Theme) -> dict[Any, Any]:
    names = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    papers = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    return {
        **dict.fromkeys(names, theme.ink),
        **dict.fromkeys(papers, theme.paper),
        "axes.edgecolor": theme.quiet,
        "legend.edgecolor": theme.grid,
        "grid.color": theme.grid,
    }


@dataclass(frozen=True, slots=True)
class Look:
    """How a side is drawn."""

    colour: str
    marker: str
    line: str


def look_of(side: str, sides: Sequence[str], theme: Theme) -> Look:
    """Sides of one family share a colour, and differ in marker and line."""
    if side == OURS:
        return Look(theme.ours, "o", "-")
    place = next((n for n, name in enumerate(FAMILIES) if side.startswith(name)), len(FAMILIES))
    family = [one for one in sides if one != OURS and _family(one) == _family(side)]
    line = ("-", "--", ":", "-.")[family.index(side) % 4]
    return Look(theme.others[place], MARKERS[sides.index(side) % len(MARKERS)], line)


def _family(side: str) -> str:
    return next((name for name in FAMILIES if side.startswith(name)), "")


def against_callers(row: Row, result: Result, theme: Theme) -> Picture:
    """Both axes logarithmic; a band is the range of the rounds."""
    picture, axes = pyplot.subplots(figsize=(8, 4.8), layout="constrained")
    sides = [OURS, *result.sides()]
    for side in sides:
        look = look_of(side, sides, theme)
        points = [
            (callers, spread(values))
            for callers in CALLERS
            if (values := result.values(side, rate_at(callers)))
        ]
        if not points:
            continue
        callers = [one for one, _ in points]
        axes.plot(
            callers,
            [of.middle for _, of in points],
            look.line,
            color=look.colour,
            marker=look.marker,
            linewidth=2.4 if side == OURS else 1.6,
            label=side,
        )
        axes.fill_between(
            callers,
            [of.low for _, of in points],
            [of.high for _, of in points],
            color=look.colour,
            alpha=0.15,
            linewidth=0,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(CALLERS, [f"{one:g}" for one in CALLERS])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    _thousands(axes.yaxis)
    axes.set_xlabel("callers, each with one request under way")
    axes.set_ylabel("acknowledged records per second")
    axes.set_title("Throughput against callers, 256 B, three replicas")
    axes.grid(visible=True, linewidth=0.6)
    axes.legend(frameon=False)
    return picture


def all_ratios(measured: Sequence[tuple[Row, Result]], theme: Theme) -> Picture | None:
    """Ours to each side it was compared with, on a logarithmic axis; right of 1 is better."""
    bars = [
        (row, side, spread(ratios))
        for row, result in measured
        if row.value == "rate"
        for side in result.sides()
        if (ratios := result.ratios(side, row.value))
    ]
    if not bars:
        return None
    sides = list(dict.fromkeys(side for _, side, _ in bars))
    groups = list(dict.fromkeys(row.name for row, _, _ in bars))
    lines = len(bars) + len(groups)
    picture, axes = pyplot.subplots(figsize=(8, 1.3 + 0.23 * lines), layout="constrained")
    places: list[int] = []
    place = -1
    last = ""
    for row, side, of in bars:
        place += 1 if row.name == last else 2
        places.append(place)
        look = look_of(side, [OURS, *sides], theme)
        axes.plot([of.low, of.high], [place, place], color=look.colour, linewidth=2.5)
        axes.plot(of.middle, place, look.marker, color=look.colour, markersize=7)
        text = f"{of.middle:.2g}x" if of.middle < 10 else f"{of.middle:.0f}x"
        _beside(axes, text, (of.high, place), (7, -3.5), theme)
        if row.name != last:
            at = axes.get_yaxis_transform()
            axes.text(0.005, place - 1, row.name, transform=at, fontweight="bold", va="center")
            axes.axhline(place - 1.5, color=theme.grid, linewidth=0.8)
        last = row.name
    axes.set_yticks(places, [side for _, side, _ in bars])
    axes.set_ylim(place + 0.7, -0.6)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.5), max(high * 1.6, 2.0))
    axes.axvline(1.0, color=theme.ink, linewidth=1.0, zorder=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", linewidth=0.6)
    axes.set_xlabel("ours to the one named in the same round: median and range")
    title = "Records per second beside others: right of 1x ours is faster"
    picture.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    return picture


def _beside(
    axes: Axes, text: str, place: tuple[float, float], shift: tuple[float, float], theme: Theme
) -> None:
    axes.annotate(
        text,
        place,
        textcoords="offset points",
        xytext=shift,
        fontsize=9,
        color=theme.quiet,
    )


def one_row(row: Row, result: Result, theme: Theme) -> Picture:
    """The rounds of each side; beside it the percentiles of latency where there are some."""
    sides = [OURS, *(one for one in result.sides() if result.values(one, row.value))]
    timed = [one for one in sides if _latencies(result, one)]
    height = 1.6 + 0.34 * len(sides) if not timed else max(3.0, 1.6 + 0.34 * len(sides))
    if timed:
        picture, (left, right) = pyplot.subplots(
            1, 2, figsize=(9.5, height), layout="constrained", width_ratios=(1, 1)
        )
        _percentiles(right, result, timed, sides, theme)
    else:
        picture, left = pyplot.subplots(figsize=(7, height), layout="constrained")
    _rounds(left, row, result, sides, theme)
    picture.suptitle(row.name, x=0.01, ha="left", fontweight="bold", fontsize=12)
    return picture


def _rounds(axes: Axes, row: Row, result: Result, sides: Sequence[str], theme: Theme) -> None:
    everything: list[float] = []
    for place, side in enumerate(sides):
        look = look_of(side, sides, theme)
        values = result.values(side, row.value)
        everything += values
        axes.plot(
            values,
            [place] * len(values),
            look.marker,
            color=look.colour,
            alpha=0.45,
            markersize=6,
            markeredgewidth=0,
        )
        axes.plot([median(values)] * 2, [place - 0.3, place + 0.3], color=look.colour, linewidth=3)
    for target in row.targets:
        if not target.peer and target.value == row.value:
            everything.append(target.bound)
            axes.axvline(target.bound, color=theme.ink, linewidth=1.2, linestyle="--")
            axes.annotate(
                "target",
                (target.bound, 1),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                xytext=(3, -9),
                fontsize=8.5,
                color=theme.quiet,
            )
    axes.set_yticks(range(len(sides)), list(sides))
    for label, side in zip(axes.get_yticklabels(), sides, strict=True):
        label.set_color(look_of(side, sides, theme).colour)
        label.set_fontweight("bold" if side == OURS else "normal")
    axes.set_ylim(len(sides) - 0.5, -0.7)
    axes.tick_params(axis="y", length=0)
    above = [one for one in everything if one > 0]
    if above and max(above) > 8 * min(above):
        axes.set_xscale("log")
        subs = (1.0, 3.0) if max(above) < 100 * min(above) else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, 1.1 * max(everything))
    _thousands(axes.xaxis)
    axes.grid(visible=True, axis="x", linewidth=0.6)
    unit = "share " + row.unit if row.unit.startswith("of ") else row.unit
    axes.set_xlabel(f"{unit} (dots: rounds, bar: median)")


def _percentiles(
    axes: Axes, result: Result, timed: Sequence[str], sides: Sequence[str], theme: Theme
) -> None:
    places = [POINTS.index(point) for point in SHOWN]
    for side in timed:
        look = look_of(side, sides, theme)
        every = _latencies(result, side)
        columns = [[one[place] for one in every] for place in places]
        axes.plot(
            range(len(places)),
            [median(column) for column in columns],
            look.line,
            color=look.colour,
            marker=look.marker,
            linewidth=2.4 if side == OURS else 1.6,
            label=side,
        )
        axes.fill_between(
            range(len(places)),
            [min(column) for column in columns],
            [max(column) for column in columns],
            color=look.colour,
            alpha=0.12,
            linewidth=0,
        )
    axes.set_yscale("log")
    axes.set_xticks(range(len(places)), list(NAMES))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, linewidth=0.6)
    axes.set_ylabel("ms to the ack")
    axes.set_xlabel("percentile (line: median of rounds, band: range)")


def _latencies(result: Result, side: str) -> list[list[float]]:
    return [
        one[side].latencies_ms for one in result.rounds if side in one and one[side].latencies_ms
    ]


def _thousands(axis: object) -> None:
    def text(value: float, _: object) -> str:
        for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= factor:
                return f"{value / factor:g}{letter}"
        return f"{value:g}"

    axis.set_major_formatter(FuncFormatter(text))  # type: ignore[attr-defined]
