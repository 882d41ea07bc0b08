"""Agreement: the time that a majority of clocks agrees on.

Theory of operation. A clock is written as its *offset*: what it shows less what this store's
monotonic clock shows at the same moment. Offsets of clocks that are right are nearly equal, and
stay what they are while time passes.

A majority of all clocks, those that did not answer counted too, agrees if its offsets lie within
CLOCK_SKEW_MAX_S of each other. The closest such majority is taken, and its median.

INV-CLOCK-AGREE: if a majority of the clocks is right, what is found is within CLOCK_SKEW_MAX_S of a
right one: two majorities have a clock in common. The lowest clock of any majority is at most at the
true time, for the same reason.

Reference: Marzullo and Owicki, *Maintaining the time in a distributed system* (1983).
"""

from __future__ import annotations

from collections.abc import Sequence


def majority_answered(offsets: Sequence[int], known: int) -> bool:
    """Whether these are the offsets of a majority of `known` clocks."""
    return 2 * len(offsets) > known


def agreed_us(offsets: Sequence[int], known: int, within_us: int) -> int | None:
    """The offset that a majority of `known` clocks agrees on; None if none does."""
    most = known // 2 + 1
    ordered = sorted(offsets)
    widths = [
        (ordered[first + most - 1] - ordered[first], first)
        for first in range(len(ordered) - most + 1)
    ]
    width, first = min(widths, default=(within_us + 1, 0))
    return ordered[first + (most - 1) // 2] if width <= within_us else None
