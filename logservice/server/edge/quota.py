"""Quota: what one identity may use of a store at a time and per second.

Theory of operation. Calls and streams under way are counted; requests and bytes are paid from token
buckets that hold one second's worth. The size of an answer is known only afterwards and may
overdraw a bucket; the next request then waits. A unary call that finds its bucket empty is refused
with BUSY and the time to wait. A stream is not refused, because that would end it: the store stops
reading it, and gRPC's flow control holds the sender back. What costs more than a bucket holds is
let through, too, and owed: so one request passes however low the rate is. Calls that are under way
pay when they are over, all at once; so what is owed has a bound, QUOTA_DEBT_S_MAX.

The limits may change at any time (`identity_limits`). What is under way goes on, and new buckets
begin full, so that nothing is owed at a rate that is no longer in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logservice_wire.errors import Busy

from logservice import bounds
from logservice.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """What an identity may use. A rate of 0 means that there is no limit."""

    rpcs_max: int = bounds.IDENTITY_RPCS_MAX
    streams_max: int = bounds.IDENTITY_STREAMS_MAX
    requests_per_s: float = 0.0
    bytes_per_s: float = 0.0


class Quota:
    """Shared by all connections of one identity."""

    __slots__ = ("_bytes", "_clock", "_requests", "limits", "paced", "rpcs", "streams")

    def __init__(self, limits: QuotaLimits, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is in use."""
        self._clock = clock
        self.rpcs = 0
        self.streams = 0
        self._set(limits)

    def _set(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self._requests = self._bucket(limits.requests_per_s)
        self._bytes = self._bucket(limits.bytes_per_s)
        self.paced = limits.requests_per_s > 0 or limits.bytes_per_s > 0
        """Whether messages of a stream are counted at all."""

    def _bucket(self, rate: float) -> TokenBucket:
        return TokenBucket(rate, self._clock, debt_s=bounds.QUOTA_DEBT_S_MAX)

    def change(self, limits: QuotaLimits) -> None:
        """Other limits from now on. What is under way goes on. What is owed at a rate that is gone
        is not owed any more, or a rate that was too low by mistake would be felt for long.
        """
        if limits != self.limits:
            self._set(limits)

    @property
    def busy(self) -> bool:
        """Something is under way."""
        return bool(self.rpcs or self.streams)

    @property
    def counts_bytes(self) -> bool:
        """Whether sizes of messages matter."""
        return self.limits.bytes_per_s > 0

    def begin_rpc(self) -> None:
        """Begin a unary call; `end_rpc` when it is over. Raises Busy, and then nothing has
        begun.
        """
        if self.rpcs >= self.limits.rpcs_max:
            raise _busy(f"more than {self.limits.rpcs_max} calls of one identity", 0.05)
        wait_s = self.wait_s()
        if wait_s:
            raise _busy("the identity's rate is used up", wait_s)
        self._requests.take(1)
        self.rpcs += 1

    def end_rpc(self) -> None:
        """The call is over."""
        self.rpcs -= 1

    def begin_stream(self) -> None:
        """Begin a stream; `end_stream` when it is over. Raises Busy, and then nothing has begun."""
        if self.streams >= self.limits.streams_max:
            raise _busy(f"more than {self.limits.streams_max} streams of one identity", 0.5)
        self.streams += 1

    def end_stream(self) -> None:
        """The stream is over."""
        self.streams -= 1

    def take_message(self, size: int, requests: int = 1) -> float:
        """Pay for one message of a stream; returns seconds to wait before the next one is read.
        `requests`: as how many it counts.
        """
        self._requests.take(requests)
        self._bytes.take(size)
        return self.wait_s()

    def wait_s(self) -> float:
        """Seconds until the next message or call may begin."""
        return max(self._requests.wait_s(), self._bytes.wait_s())

    def take_bytes(self, size: int) -> None:
        """Pay for the bytes of a request or an answer."""
        self._bytes.take(size)


def pay_answer(quota: Quota, answer: Any) -> None:
    """Take the bytes of an answer from `quota`."""
    quota.take_bytes(answer.ByteSize())


def _busy(problem: str, wait_s: float) -> Busy:
    return Busy(problem, retry_after_ms=max(1, round(wait_s * 1000)))
