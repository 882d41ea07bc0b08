"""CallBook: how calls ended and how long they took, by method.

Theory of operation. The guard takes the row of each method when it registers it, and notes every
call there when the call is over: its outcome, and for a unary one the time from the moment in which
its request was whole and was handed to us. So the wait for its turn is in it, and what gRPC and the
network need is not. A stream has no such time: it lasts as long as its caller likes.

An outcome is ``OK``, the reason of an operating error, ``STALLED`` (a stream that nobody read),
``CANCELLED`` (the caller went away, or its time was over) or ``INTERNAL``.

INV-CALLS-1: there are rows of registered methods only, and an outcome is one of those: whatever
callers send, what a store shows of its calls stays so large.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from logservice.histogram import LATENCY_BUCKETS_US, Histogram, Tally

OK: Final = "OK"


class MethodCalls:
    """The calls of one method; used on the loop thread."""

    __slots__ = ("ended", "took")

    def __init__(self, *, timed: bool) -> None:
        """Nobody has called yet. `timed`: the method is unary."""
        self.ended: Counter[str] = Counter()
        self.took = Tally(LATENCY_BUCKETS_US) if timed else None

    def end(self, outcome: str, began_s: float) -> None:
        """A call is over that began at `began_s` by `time.monotonic`."""
        self.ended[outcome] += 1
        if self.took is not None:
            self.took.add(int((time.monotonic() - began_s) * 1e6))


class CallBook:
    """The calls of one client port."""

    def __init__(self) -> None:
        """No method is registered."""
        self._methods: dict[str, MethodCalls] = {}

    def row(self, method: str, *, timed: bool) -> MethodCalls:
        """The row of a method that is being registered (INV-CALLS-1)."""
        return self._methods.setdefault(method, MethodCalls(timed=timed))

    def ended(self) -> dict[str, int]:
        """How many calls ended how, by ``Method/OUTCOME``."""
        return {
            f"{method}/{outcome}": count
            for method, row in self._methods.items()
            for outcome, count in row.ended.items()
        }

    def took(self) -> Mapping[str, Histogram]:
        """Microseconds of unary calls, of the methods that were called."""
        return {
            method: row.took.histogram()
            for method, row in self._methods.items()
            if row.took is not None and row.ended
        }
