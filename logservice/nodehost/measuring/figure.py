"""Figure: one thing that was measured, and whether it will do.

Theory of operation. What is measured is judged by two thresholds that stand in `bounds` with their
reasons: *slow* is worth a look, *bad* does harm. Where more is better the thresholds are passed
from above. What cannot be judged by a number says so in its text, and whoever made it gave the
verdict.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from logservice_wire.value import value


class Verdict(enum.StrEnum):
    """What a figure means."""

    NONE = ""
    """There is nothing to judge."""
    OK = "ok"
    SLOW = "slow"
    BAD = "bad"


@value
class Figure:
    """See the module's text. `slow`, `bad`: the thresholds, 0 for none."""

    name: str
    value: float
    unit: str
    verdict: Verdict = Verdict.NONE
    slow: float = 0.0
    bad: float = 0.0
    text: str = ""


def at_most(name: str, found: float, unit: str, slow: float, bad: float, text: str = "") -> Figure:
    """A figure that should be small."""
    verdict = Verdict.BAD if found > bad else Verdict.SLOW if found > slow else Verdict.OK
    return Figure(name, found, unit, verdict, slow, bad, text)


def at_least(name: str, found: float, unit: str, slow: float, bad: float, text: str = "") -> Figure:
    """A figure that should be large."""
    verdict = Verdict.BAD if found < bad else Verdict.SLOW if found < slow else Verdict.OK
    return Figure(name, found, unit, verdict, slow, bad, text)


def fact(name: str, text: str, verdict: Verdict = Verdict.NONE) -> Figure:
    """Something that no number says."""
    return Figure(name, 0.0, "", verdict, text=text)


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """The value that so large a share of them do not exceed; 0 for none."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]
