"""TokenBucket: a rate that holds on average, and a burst of it at once."""

from __future__ import annotations

import math
from collections.abc import Callable


class TokenBucket:
    """A token bucket that is filled at `rate` per second; it keeps what comes in `burst_s`.

    A rate of 0 means that there is no limit. No more is owed than comes in `debt_s`.
    """

    __slots__ = ("_burst_s", "_clock", "_debt_s", "_rate", "_seen_s", "_tokens")

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float],
        burst_s: float = 1.0,
        debt_s: float = math.inf,
    ) -> None:
        """Begin full."""
        self._debt_s = debt_s
        self._rate = rate
        self._clock = clock
        self._burst_s = burst_s
        self._tokens = rate * burst_s
        self._seen_s = clock()

    def change(self, rate: float) -> None:
        """Go on at another rate. What is owed stays owed, for as long as it was."""
        debt_s = self.wait_s()
        if not self._rate:
            self._seen_s = self._clock()
        full = rate * self._burst_s
        tokens = full if not self._rate else self._tokens
        self._tokens = -debt_s * rate if debt_s else min(tokens, full)
        self._rate = rate

    def wait_s(self, behind: float = 0) -> float:
        """Seconds until something may be taken when `behind` is taken before it; 0 for now."""
        if not self._rate:
            return 0.0
        now_s = self._clock()
        full = self._rate * self._burst_s
        self._tokens = min(full, self._tokens + (now_s - self._seen_s) * self._rate)
        self._seen_s = now_s
        left = self._tokens - behind
        return 0.0 if left > 0 else (1e-3 - left) / self._rate

    def take(self, amount: float) -> None:
        """Pay for something; the bucket may go below zero."""
        if self._rate:
            self._tokens = max(self._tokens - amount, -self._rate * self._debt_s)
