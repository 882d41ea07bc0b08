"""What a row of the bench is: sides that take turns, figures that they give, targets for ours.

A row opens what its sides need and hands out *bouts*. In a bout the sides take turns, round after
round, so that a neighbour on the machine hits all of them. Figures are compared within a round
only. At most one peer runs at a time, so each has a bout of its own; a row without peers has one.

The names of the values are the same in all rows: `rate` is records (or bytes) a second, and what
ends in `_ms`, `_s`, `_us` or `_kib` is in that unit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict

from bench.load.closed_loop import Sample

OURS: Final = "ours"

POINTS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0)
"""The percentiles that are kept of each window."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one side gave in one round."""

    values: dict[str, float]
    checked: int = 0
    """Records that were read back and found right."""
    latencies_ms: list[float] = field(default_factory=list)
    """At POINTS; empty where there are none."""


def figure_of(sample: Sample, checked: int = 0, **more: float) -> Figure:
    """A window of a load as a figure."""
    values = {"rate": sample.rate, **more}
    if not sample.latencies_ms:
        return Figure(values, checked)
    points = [sample.percentile(point) for point in POINTS]
    at = dict(zip(POINTS, points, strict=True))
    values |= {"p50_ms": at[0.5], "p99_ms": at[0.99], "p999_ms": at[0.999], "max_ms": at[1.0]}
    return Figure(values, checked, points)


class Span(TypedDict):
    """How long a window is, as what measures takes it."""

    warmup_s: float
    seconds: float


Turn = Callable[[], Awaitable[Figure]]
"""Measures one side once."""


@dataclass(frozen=True, slots=True)
class Bout:
    """Sides that take turns. `open` is entered outside an event loop; it raises `Unavailable` where
    a peer cannot be had. The turns are by the name of the side, ours first.
    """

    name: str
    open: Callable[[], AbstractContextManager[Mapping[str, Turn]]]
    fallback: bool = False
    """Only where no bout before it gave anything."""


@dataclass(slots=True)
class Setting:
    """How a run is to be done, and where its data goes."""

    directory: Path
    rounds: int = 5
    warmup_s: float = 1.0
    seconds: float = 3.0
    quick: bool = False
    """Smaller sizes for the rows that take long; they say so."""
    peers: frozenset[str] | None = None
    """Keys of the peers that are wanted; None: all."""
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    """The one event loop of the run: gRPC's library dislikes several in a process."""
    notes: list[str] = field(default_factory=list)
    """What a row says of itself: sizes, what was left out and why. Emptied before each row."""

    @property
    def span(self) -> Span:
        """A window."""
        return Span(warmup_s=self.warmup_s, seconds=self.seconds)

    def size(self, full: float, quick: float, unit: str) -> float:
        """The size of a row, and a note when it is the smaller one."""
        if self.quick:
            self.notes.append(f"quick: {quick:g} {unit} instead of {full:g}")
            return quick
        return full


@dataclass(frozen=True, slots=True)
class Target:
    """What ours must reach. Without `peer` the value itself is bounded, else its ratio to the same
    value of each side whose name begins with `peer`; the worst of several such sides decides.
    """

    text: str
    value: str
    bound: float
    at_most: bool = False
    peer: str = ""
    p99: bool = False
    """Not the median of the rounds, but what 99 % of them keep to."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    key: str
    name: str
    workload: str
    """The line of the list of targets (`catalogue.WORKLOADS`) that it belongs to."""
    unit: str
    open: Callable[[Setting], AbstractContextManager[list[Bout]]]
    targets: tuple[Target, ...] = ()
    value: str = "rate"
    """The value that the table shows of each side."""
    rounds: Callable[[int], int] = field(default=lambda rounds: rounds)
    """Rounds of a bout, from those asked for."""
    long: bool = False
    """Minutes: left out by `--short`."""
