"""Deadline, Backoff and LeaderHint: how long a call may go on, how fast it repeats itself, and how
often it follows a hint.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice_client.bounds import (
    BACKOFF_FIRST_S,
    BACKOFF_MAX_S,
    HINT_AGAIN_MAX_S,
    HINT_AGAIN_S,
)

LEAST_S: Final = 0.001
"""The shortest time that gRPC is given for a call."""


class Deadline:
    """A moment on the running loop's clock; every attempt and pause of a call counts against it."""

    __slots__ = ("at_s",)

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` from now."""
        self.at_s = asyncio.get_running_loop().time() + timeout_s

    def remaining_s(self) -> float:
        """Seconds left; not positive once it has passed."""
        return self.at_s - asyncio.get_running_loop().time()

    def left_s(self) -> float:
        """The timeout of what comes next: positive, as every timeout, also when nothing is left."""
        return max(self.remaining_s(), LEAST_S)


class Backoff:
    """Growing, jittered pauses: many clients that failed together do not come back together."""

    __slots__ = ("_pause_s",)

    def __init__(self) -> None:
        """Start with the shortest pause."""
        self._pause_s = BACKOFF_FIRST_S

    def reset(self) -> None:
        """Progress was made: start over with the shortest pause."""
        self._pause_s = BACKOFF_FIRST_S

    def next_s(self, error: LogServiceError | None = None) -> float:
        """The next pause, never below what a BUSY server asked for."""
        asked_s = error.number("retry_after_ms") / 1000 if error is not None else 0.0
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, BACKOFF_MAX_S)
        return max(asked_s, pause_s)


class LeaderHint:
    """When a stream moves to the leader that its acks name: at once, and again after growing
    pauses. A store that connects and does not answer must not cost a stream per block. A leader
    that failed for a moment must not be left for good: all appends would go through a follower.
    """

    __slots__ = ("_address", "_again_s", "_pause_s")

    def __init__(self) -> None:
        """No hint was followed."""
        self._address = ""
        self._again_s = 0.0
        self._pause_s = 0.0

    def reached(self) -> None:
        """The stream is where its acks point to."""
        self._address = ""

    def follow(self, address: str) -> bool:
        """Whether the stream shall move to `address` now; then it does."""
        now = asyncio.get_running_loop().time()
        if address != self._address:
            self._address, self._pause_s = address, HINT_AGAIN_S
        elif now < self._again_s:
            return False
        else:
            self._pause_s = min(2 * self._pause_s, HINT_AGAIN_MAX_S)
        self._again_s = now + self._pause_s
        return True
