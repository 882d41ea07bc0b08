"""Lobby: accepted connections whose other side has not yet proved who it is.

Theory of operation. Anybody can connect. From `accept` to a HELLO that is believed a connection is
an *arrival*. It has one deadline for all of that (PEER_CONNECT_TIMEOUT_S), it is counted, and every
way it can end passes through here. That includes a TLS handshake that fails, of which asyncio tells
the protocol nothing. Nothing of an arrival is remembered afterwards but two counters.

An arrival that says nothing costs a descriptor. Buffers and the TLS engine are made when its first
byte is there, which must be one that TLS begins with; receive buffers get their full size only when
HELLO was believed (`frame`).

Two pools, each bounded in all and per address. Addresses where known stores are have their own, so
a stranger elsewhere takes no place of theirs. A pool that is full ends one of its own arrivals for
the newcomer: of the address with the most arrivals, the oldest that has said nothing, else the
oldest. To refuse the newcomer instead would let whoever came first hold the door shut. This way a
handshake that makes progress is over before enough others have come after it.

- INV-LOBBY-1: an accepted connection that is not known is in the lobby, once; the pools hold no
  more than their bounds; each arrival leaves it within PEER_CONNECT_TIMEOUT_S.

References: THREAT_MODEL.md (a stranger).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from logservice.background import begin_task
from logservice.bounds import (
    PEER_ARRIVALS_MAX,
    PEER_ARRIVALS_PER_ADDRESS_MAX,
    PEER_CONNECT_TIMEOUT_S,
    PEER_CROWD_REPORT_S,
    PEER_STRANGERS_MAX,
    PEER_STRANGERS_PER_ADDRESS_MAX,
)
from logservice.events import Event, emit
from logservice.invariants import invariant
from logservice.nodehost.transport.link.connection import Connection
from logservice.nodehost.transport.link.stats import TransportStats

_LOG = logging.getLogger(__name__)
_TLS_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS connection: the content type of its first record."""


@dataclass(slots=True, eq=False)
class Arrival:
    """One connection in the lobby. `connection` is there from its first byte on."""

    sock: socket.socket
    host: str
    neighbourhood: str
    pool: Pool
    timer: asyncio.TimerHandle | None = None
    connection: Connection | None = None
    handshake: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Pool:
    """Arrivals in the order they came."""

    in_all_max: int
    per_address_max: int
    arrivals: dict[Arrival, None] = field(default_factory=dict)
    by_address: Counter[str] = field(default_factory=Counter)

    def add(self, arrival: Arrival) -> None:
        """The newest."""
        self.arrivals[arrival] = None
        self.by_address[arrival.neighbourhood] += 1

    def remove(self, arrival: Arrival) -> None:
        """It is none any more."""
        del self.arrivals[arrival]
        self.by_address[arrival.neighbourhood] -= 1
        if not self.by_address[arrival.neighbourhood]:
            del self.by_address[arrival.neighbourhood]

    def in_the_way_of(self, neighbourhood: str) -> Arrival | None:
        """Who must go before somebody from there can come in; None: there is room."""
        if self.by_address[neighbourhood] >= self.per_address_max:
            return self.least(neighbourhood)
        if len(self.arrivals) >= self.in_all_max:
            return self.least(self.by_address.most_common(1)[0][0])
        return None

    def least(self, neighbourhood: str) -> Arrival:
        """The oldest from there that has said nothing, else the oldest."""
        theirs = [one for one in self.arrivals if one.neighbourhood == neighbourhood]
        return next((one for one in theirs if one.connection is None), theirs[0])


class Lobby:
    """See the module."""

    def __init__(
        self,
        stats: TransportStats,
        make_connection: Callable[[str], Connection],
        context: Callable[[], ssl.SSLContext | None],
        is_known: Callable[[str], bool],
    ) -> None:
        """`make_connection` gets the other side's host. `context`: for a handshake that begins now,
        None in plaintext. `is_known`: a store that this one knows is at that host.
        """
        self._stats = stats
        self._make_connection = make_connection
        self._context = context
        self._is_known = is_known
        self._strangers = Pool(PEER_STRANGERS_MAX, PEER_STRANGERS_PER_ADDRESS_MAX)
        self._neighbours = Pool(PEER_ARRIVALS_MAX, PEER_ARRIVALS_PER_ADDRESS_MAX)
        self._pools = (self._strangers, self._neighbours)
        self._by_connection: dict[Connection, Arrival] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._crowded_s = float("-inf")
        self._reported_s = float("-inf")
        self._unreported = 0

    @property
    def crowded(self) -> bool:
        """Somebody was turned away within the last PEER_CROWD_REPORT_S."""
        return self._loop.time() - self._crowded_s < PEER_CROWD_REPORT_S

    def enter(self, sock: socket.socket, host: str) -> None:
        """An accepted socket, non-blocking; the lobby closes it unless it becomes known."""
        pool = self._neighbours if self._is_known(host) else self._strangers
        neighbourhood = neighbourhood_of(host)
        in_the_way = pool.in_the_way_of(neighbourhood)
        if in_the_way is not None:
            self._turn_away(in_the_way)
        arrival = Arrival(sock, host, neighbourhood, pool)
        arrival.timer = self._loop.call_later(
            PEER_CONNECT_TIMEOUT_S, self._end, arrival, "it did not say who it is in time"
        )
        pool.add(arrival)
        self._stats.strangers += 1
        invariant(len(pool.arrivals) <= pool.in_all_max, "INV-LOBBY-1", host=host)
        self._loop.add_reader(sock.fileno(), self._spoke, arrival)

    def make_room(self) -> bool:
        """End the arrival that matters least, for its descriptor; False when there is none."""
        for pool in self._pools:
            if pool.arrivals:
                self._turn_away(pool.least(pool.by_address.most_common(1)[0][0]))
                return True
        return False

    def turned_away(self, neighbourhood: str = "") -> None:
        """Count one that had to go for another; tell the log now and then."""
        self._stats.strangers_turned_away += 1
        now_s = self._loop.time()
        self._crowded_s = now_s
        self._unreported += 1
        if now_s - self._reported_s >= PEER_CROWD_REPORT_S:
            self._reported_s = now_s
            count, self._unreported = self._unreported, 0
            emit(_LOG, Event.PEER_PORT_CROWDED, count=count, address=neighbourhood or "?")

    def leave(self, connection: Connection | None) -> None:
        """Its HELLO is believed, or it is gone: it is no arrival any more."""
        if connection is not None and connection in self._by_connection:
            self._leave(self._by_connection[connection])

    async def close(self) -> None:
        """End all arrivals; returns when nothing of them is left."""
        connections = list(self._by_connection)
        for pool in self._pools:
            for arrival in list(pool.arrivals):
                self._end(arrival, "closed here")
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        for connection in connections:
            if connection.begun:
                await connection.wait_lost()

    # --- inside -----------------------------------------------------------------------------------

    def _spoke(self, arrival: Arrival) -> None:
        """The first byte is there, or the other side is gone."""
        try:
            first = arrival.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        context = self._context()
        if not first or (context is not None and first != _TLS_HANDSHAKE):
            self._stats.corrupt_frames += bool(first)
            self._end(arrival, "no handshake")
            return
        self._loop.remove_reader(arrival.sock.fileno())
        connection = arrival.connection = self._make_connection(arrival.host)
        self._by_connection[connection] = arrival
        work = self._shake_hands(arrival, connection, context)
        arrival.handshake = begin_task(work, self._handshakes.discard)
        self._handshakes.add(arrival.handshake)

    async def _shake_hands(
        self, arrival: Arrival, connection: Connection, context: ssl.SSLContext | None
    ) -> None:
        limit_s = PEER_CONNECT_TIMEOUT_S if context is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                arrival.sock,
                ssl=context,
                ssl_handshake_timeout=limit_s,
                ssl_shutdown_timeout=limit_s,
            )
        except (OSError, asyncio.CancelledError) as error:
            # The frames of the traceback hold the TLS engine and its buffers in a cycle, which only
            # the collector would find, and that runs rarely here.
            error.__traceback__ = None
            self._leave(arrival)

    def _turn_away(self, arrival: Arrival) -> None:
        self.turned_away(arrival.neighbourhood)
        self._end(arrival, "too many unauthenticated connections")

    def _end(self, arrival: Arrival, cause: str) -> None:
        """Close it in whatever state it is."""
        connection, handshake = arrival.connection, arrival.handshake
        self._leave(arrival)
        if connection is None or handshake is None:
            self._loop.remove_reader(arrival.sock.fileno())
            arrival.sock.close()
        elif connection.begun:
            connection.abort(cause)
        else:
            handshake.cancel()

    def _leave(self, arrival: Arrival) -> None:
        """INV-LOBBY-1: an arrival is counted until here, whatever ended it."""
        if arrival not in arrival.pool.arrivals:
            return
        arrival.pool.remove(arrival)
        self._stats.strangers -= 1
        if arrival.timer is not None:
            arrival.timer.cancel()
        if arrival.connection is not None:
            del self._by_connection[arrival.connection]
        arrival.handshake = None


def neighbourhood_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 that one IPv6 host may have whole."""
    if ":" not in host:
        return host
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return socket.inet_ntop(socket.AF_INET6, packed[:8] + bytes(8))
