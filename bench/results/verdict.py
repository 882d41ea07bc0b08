"""verdict: whether a target is met, and by which figure.

A ratio is of one round; what is judged is the median of the ratios. Several sides that a target
speaks of are judged by the one that is worst for us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.results.result import Result
from bench.rows.row import OURS, Target


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the range."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a target. `side`: whom it was compared with. `met` is None where there is
    nothing to compare with.
    """

    target: Target
    met: bool | None
    figure: float = 0.0
    side: str = ""


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


def p99(values: Sequence[float]) -> float:
    """What 99 % of the values keep to; of fewer than a hundred, the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def judge(target: Target, result: Result) -> Verdict:
    """The verdict on a row's figures."""
    statistic = p99 if target.p99 else median
    if not target.peer:
        values = result.values(OURS, target.value)
        found = [(statistic(values), "")] if values else []
    else:
        found = [
            (statistic(ratios), side)
            for side in result.sides()
            if side.startswith(target.peer) and (ratios := result.ratios(side, target.value))
        ]
    if not found:
        return Verdict(target, None)
    figure, side = max(found) if target.at_most else min(found)
    met = figure <= target.bound if target.at_most else figure >= target.bound
    return Verdict(target, met, figure, side)
