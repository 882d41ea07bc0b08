"""undelivered: bytes that clients have sent and no call has received, and who is cut for them.

Theory of operation. gRPC gives a call its request when the last byte is there. Until then it holds
the bytes, and no bound on calls sees them, so a client that never sends a last byte could fill a
store's memory. The kernel knows how much a connection has sent (``TCP_INFO``), and this file counts
what its calls have received. The difference is what gRPC holds, plus bytes that belong to no
message: headers, frames, TLS records, pings. To make up for these, every message is credited with a
little more than its size, every byte sent to the client with a fraction, and every second with a
ping.

When a client gives a request up half-way, gRPC drops its bytes, and nothing tells how many they
were. But a call is known from its headers on (`HalfCalls`). Bytes that came before the oldest call
that still waits for its request, on any connection, were delivered or dropped, and are forgotten.
The exception is one message of each stream of requests that has waited for its next message since.

An honest client has bytes under way, too, in proportion to its link. So a byte counts only when it
has waited for UNDELIVERED_AGE_S, and a delivery is taken to be of the oldest bytes. Bytes that
flow, however fast, are therefore never counted, and a slow connection has few.

INV-UNDELIVERED-1: the bytes of requests that have waited for longer are bounded for one identity
(for one address, before a call has told the identity) and in all; above a bound the greediest
connection of the greediest group is cut.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from logservice import bounds

_TCP_INFO: Final = 11
_RECEIVED_AT: Final = 128
"""Offset of ``tcpi_bytes_received`` in the kernel's ``struct tcp_info``, since Linux 4.1."""

_SENT_AT: Final = 200
"""Offset of ``tcpi_bytes_sent``, since Linux 4.19."""

_SAMPLES: Final = 4

_U64: Final = struct.Struct("=Q")


@dataclass(slots=True)
class Delivered:
    """What the calls of one connection have received so far."""

    messages: int = 0
    size: int = 0
    streams: dict[object, float] = field(default_factory=dict)
    """Calls under way that bring more than one message, and since when each waits for its next
    one."""

    def add(self, size: int, stream: object = None) -> None:
        """Count a message. `stream`: the call that awaits its next message now."""
        self.messages += 1
        self.size += size
        if stream is not None:
            self.streams[stream] = time.monotonic()


@dataclass(frozen=True, slots=True)
class Traffic:
    """How many bytes the kernel has counted on a connection."""

    received: int
    sent: int


def traffic(connection: socket.socket) -> Traffic | None:
    """What the kernel has counted; None when this kernel does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SENT_AT + _U64.size)
    if len(info) < _RECEIVED_AT + _U64.size:
        return None
    received: int = _U64.unpack_from(info, _RECEIVED_AT)[0]
    sent: int = _U64.unpack_from(info, _SENT_AT)[0] if len(info) >= _SENT_AT + _U64.size else 0
    return Traffic(received, sent)


class _Ago:
    """A number that only grows, as it was `age_s` ago, or up to a fourth of it earlier."""

    __slots__ = ("_age_s", "_seen")

    def __init__(self, age_s: float, now_s: float) -> None:
        self._age_s = age_s
        self._seen = deque([(now_s, 0)])

    def look(self, now_s: float, value: int) -> int:
        """Note that the number is `value` now; returns what it was."""
        seen = self._seen
        if now_s - seen[-1][0] >= self._age_s / _SAMPLES:
            seen.append((now_s, value))
        while len(seen) > 1 and now_s - seen[1][0] >= self._age_s:
            seen.popleft()
        return seen[0][1]


class Undelivered:
    """The account of one connection. Only one thread looks at it."""

    __slots__ = ("_ago", "_last", "_looked_s", "_mark", "_messages", "_sent", "_size", "held")

    def __init__(self, now_s: float) -> None:
        """The account of a new connection."""
        self.held = 0.0
        """Bytes that gRPC holds, as nearly as can be told."""
        self._looked_s = now_s
        self._last = self._sent = self._size = self._messages = 0
        self._ago = _Ago(bounds.UNDELIVERED_AGE_S, now_s)
        self._mark = now_s, 0

    def look(self, now_s: float, delivered: Delivered, seen: Traffic, oldest_s: float) -> float:
        """Bytes that have waited too long. `delivered` must be read before `seen`: the kernel has
        received everything that a call has received. `oldest_s`: no older call waits for its
        request.
        """
        size, messages = delivered.size, delivered.messages
        credit = (
            (size - self._size) * (1 + 1 / bounds.UNDELIVERED_FRAMING)
            + (messages - self._messages) * bounds.UNDELIVERED_MESSAGE_BYTES
            + (seen.sent - self._sent) / bounds.UNDELIVERED_ANSWERS
            + (now_s - self._looked_s) * bounds.UNDELIVERED_PING_BYTES_PER_S
        )
        self.held = max(0.0, self.held + (seen.received - self._last) - credit)
        self._size, self._messages, self._looked_s = size, messages, now_s
        self._last, self._sent = seen.received, seen.sent
        if oldest_s >= self._mark[0] + bounds.UNDELIVERED_AGE_S:
            # Bytes that are in the kernel at the mark are dispatched within that age.
            until_s = self._mark[0] + bounds.UNDELIVERED_AGE_S
            old = sum(since_s < until_s for since_s in list(delivered.streams.values()))
            since = seen.received - self._mark[1]
            self.held = min(self.held, float(since + old * bounds.REQUEST_BYTES_RECEIVED_MAX))
            self._mark = now_s, seen.received
        return max(0.0, self.held - (seen.received - self._ago.look(now_s, seen.received)))


class Held(Protocol):
    """What `greediest` needs to know of a connection."""

    @property
    def waiting(self) -> float:
        """Bytes that have waited too long."""

    @property
    def group(self) -> Hashable:
        """The identity or address whose bytes they are."""


HeldT = TypeVar("HeldT", bound=Held)


def greediest(connections: Iterable[HeldT], of_group: int, in_all: int) -> Iterator[HeldT]:
    """The connections that must be cut to keep INV-UNDELIVERED-1."""
    groups: dict[Hashable, list[HeldT]] = {}
    for one in connections:
        if one.waiting:
            groups.setdefault(one.group, []).append(one)
    sums: dict[Hashable, float] = {}
    for name, group in groups.items():
        group.sort(key=lambda one: one.waiting)
        left = sum(one.waiting for one in group)
        while left > of_group:
            last = group.pop()
            left -= last.waiting
            yield last
        sums[name] = left
    while sum(sums.values()) > in_all:
        most = max(sums, key=sums.__getitem__)
        last = groups[most].pop()
        sums[most] -= last.waiting
        yield last


class HalfCalls:
    """Calls that are known by their headers alone. Methods run on the event loop."""

    def __init__(self) -> None:
        """There are no calls yet."""
        self._oldest_s = time.monotonic()
        self._began_s: dict[asyncio.Task[Any] | None, float] = {}
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._began_s)

    def oldest_s(self) -> float:
        """None of the calls began before this time. Any thread may ask."""
        now_s, oldest_s = time.monotonic(), self._oldest_s
        return oldest_s if self._began_s else now_s

    def began(self) -> None:
        """The task that runs now is a call whose request is awaited."""
        now_s = self._began_s[asyncio.current_task()] = time.monotonic()
        if not self._sweeping:
            self._sweeping = True
            self._oldest_s = now_s
            self._sweep_later()

    def whole(self) -> None:
        """The request of the task that runs now is there."""
        self._began_s.pop(asyncio.current_task(), None)

    def _sweep_later(self) -> None:
        asyncio.get_running_loop().call_later(bounds.HALF_CALLS_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Forget the calls that ended without a request."""
        for task in [task for task in self._began_s if task is None or task.done()]:
            del self._began_s[task]
        self._oldest_s = next(iter(self._began_s.values()), time.monotonic())
        self._sweeping = bool(self._began_s)
        if self._sweeping:
            self._sweep_later()
