"""SettableRate: bytes per second, as a store is configured or as the cluster's setting says."""

from __future__ import annotations

from logservice.clock import Clock
from logservice.token_bucket import TokenBucket


class SettableRate:
    """A token bucket whose rate changes while it is used."""

    __slots__ = ("_bucket", "_configured", "_set", "bytes_per_s")

    def __init__(self, clock: Clock, bytes_per_s: int, burst_s: float) -> None:
        """`bytes_per_s`: what the store is configured to; 0 for no limit."""
        self._configured = self.bytes_per_s = bytes_per_s
        self._set = 0
        self._bucket = TokenBucket(bytes_per_s, clock.monotonic, burst_s)

    def change(self, bytes_per_s: int) -> bool:
        """Another rate, in force at once; 0: what the store is configured to. Whether it differs:
        then whoever waits has to be looked at.
        """
        self._set = bytes_per_s
        return self._use()

    def configure(self, bytes_per_s: int) -> bool:
        """The store is configured to another rate; what the cluster's setting says goes on."""
        self._configured = bytes_per_s
        return self._use()

    def _use(self) -> bool:
        wanted = self._set or self._configured
        if wanted == self.bytes_per_s:
            return False
        self.bytes_per_s = wanted
        self._bucket.change(wanted)
        return True

    def wait_s(self) -> float:
        """Seconds until something may be taken; 0 for now."""
        return self._bucket.wait_s()

    def take(self, amount: float) -> None:
        """Pay for something; below zero it is given back."""
        self._bucket.take(amount)
