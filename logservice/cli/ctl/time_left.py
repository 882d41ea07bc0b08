"""time_left: one budget of time for all that a command asks, one after the other.

Every call is given what is left until the end of the budget. The last ones get
COMMAND_TIME_LEFT_MIN_S all the same: a call without any time could not say why it failed.
"""

from __future__ import annotations

import time

from logservice.bounds import COMMAND_TIME_LEFT_MIN_S


def now_s() -> float:
    """The clock of all budgets."""
    return time.monotonic()


def left_s(ends_s: float) -> float:
    """The time until then, for the next call."""
    return max(COMMAND_TIME_LEFT_MIN_S, ends_s - now_s())
