"""histogram: how often something took how long, or was how large, by fixed buckets.

Theory of operation. A `Tally` counts, one search among some fifteen bounds and two additions for
each figure. A `Histogram` is what it had counted at one moment. The counts only grow, so whoever
looks twice knows what lay between, and the counts of stores add up. All figures are whole numbers
of the unit that the bounds are in.

Everything that takes time has the same bounds, so that the stages of a call can be compared, and
compared with the disk.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

LATENCY_BUCKETS_US: Final = (
    *(50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 50_000),
    *(100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000),
)
"""From a cache with a battery to a disk that hangs, closest where disks and networks are."""


class Histogram(NamedTuple):
    """``counts[k]`` says how often a figure was at most `bounds[k]` and above the bound before it;
    the last count says how often it was above all bounds. total: the sum of all figures.
    """

    bounds: tuple[int, ...]
    counts: tuple[int, ...]
    total: int


class Tally:
    """Counts figures by bucket. Not for two threads that add."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        """Nothing is counted yet. `bounds` are the upper bounds of the buckets, ascending."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0

    def add(self, figure: int, times: int = 1) -> None:
        """Count `figure`, so many times."""
        self._counts[bisect_left(self._bounds, figure)] += times
        self._total += figure * times

    def add_all(self, figures: Sequence[int]) -> None:
        """Count each of `figures`; many cost half of as many `add`."""
        bounds, counts = self._bounds, self._counts
        for figure in figures:
            counts[bisect_left(bounds, figure)] += 1
        self._total += sum(figures)

    def histogram(self) -> Histogram:
        """Everything so far."""
        return Histogram(self._bounds, tuple(self._counts), self._total)


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """About the figure that `share` of the figures do not exceed, as if those of a bucket were
    spread over it evenly. 0 without figures; the last bound when it lies above all of them.
    """
    sums = list(accumulate(counts))
    if not sums or not sums[-1]:
        return 0.0
    wanted = share * sums[-1]
    place = bisect_left(sums, wanted)
    while not counts[place]:  # a share of 0 begins with the first bucket that has something
        place += 1
    if place == len(bounds):
        return float(bounds[-1])
    low = bounds[place - 1] if place else 0
    below = sums[place] - counts[place]
    return low + (bounds[place] - low) * (wanted - below) / counts[place]
