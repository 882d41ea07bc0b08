"""connections: how many connections to the client port one identity or address may hold.

Theory of operation. gRPC accepts connections by itself, and bounds their number and the time of a
handshake. It does not know whose a connection is, and offers no way to end one. So a thread looks
at this process's own sockets (``/proc/self/fd``), finds those of the client port, and shuts down
those that are over a bound. gRPC then sees a broken connection and frees what it held for it.

A connection is *heard* once a call with an accepted identity came over it. Until then it is half
open: it said nothing yet, or is in its handshake, or idles. Half-open connections are bounded per
address and in all. Over the bound the oldest one is cut, because it has had the most time to say
something. So a stranger who holds many pushes out its own, while a client is heard with its first
call.

gRPC has no way to refuse a connection, or to be given one that another part has accepted. So these
bounds hold from look to look: in a flood an address has its bound and what it opens in between. Two
things keep that small. A look comes early when many connect, and CONNECTIONS_LOOK_S_MAX after the
last one at the latest, however many sockets there are. And when an address is above its bound by
more than FLOOD_EXCESS_MAX, the kernel drops most of the connections that it begins (`syn_filter`).
It is told before anything is cut, because to cut many takes its time. Where the kernel refuses, the
log says so once, and the looks alone keep the bound.

An identity over its bound is told BUSY on the new connection, which is cut CONNECTIONS_LOOK_S
later: the answer goes out first.

The bounds of identities and addresses may change at any time (`limit`). A connection that was
within them once is not cut when they become lower.

While nobody is connected a look is rare, because an idle store would do little else. Who connects
then ends the rest (`doorbell`), and so does a call.

A connection is also cut by name in two cases: its client sent what no client of gRPC can send
(`dispatch`), or too many of the bytes it sent wait to become a whole request (`undelivered`).

INV-CUT-1: a socket is shut down only after its own and its remote address were looked at on a
descriptor of our own (`dup`); the number that gRPC knows it by may belong to another socket by
then.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from urllib.parse import unquote

from logservice_wire.errors import Busy
from logservice_wire.value import value

from logservice import bounds
from logservice.server.edge import syn_filter
from logservice.server.edge.call import refused
from logservice.server.edge.doorbell import Doorbell
from logservice.server.edge.undelivered import (
    Delivered,
    HalfCalls,
    Undelivered,
    greediest,
    traffic,
)

logger = logging.getLogger(__name__)

_FOLDER: Final = "/proc/self/fd"
_REST: Final = 20
"""Looking takes one part in so many of a core, as long as `pause_s` allows it."""

_REST_IN_A_FLOOD: Final = 4
"""The same while many connect."""

Peer = tuple[str, int]
"""Address and port of the other side."""

_Socket = tuple[int, int]
"""A descriptor and the inode behind it. Each socket has an inode of its own, so a number
that is used again is another socket.
"""

_Seen = TypeVar("_Seen")
_NOTHING: Final = Delivered()


@value
class ConnectionLimits:
    """How many connections, and how many waiting bytes, the client port takes."""

    identity: int = bounds.IDENTITY_CONNECTIONS_MAX
    address: int = bounds.ADDRESS_CONNECTIONS_MAX
    half_open_of_address: int = bounds.ADDRESS_HALF_OPEN_MAX
    half_open: int = bounds.HALF_OPEN_MAX
    undelivered_of_identity: int = bounds.IDENTITY_UNDELIVERED_BYTES_MAX
    undelivered: int = bounds.UNDELIVERED_BYTES_MAX

    @staticmethod
    def of(
        clients: int,
        identity: int,
        address: int,
        undelivered_of_identity: int = bounds.IDENTITY_UNDELIVERED_BYTES_MAX,
        undelivered: int = bounds.UNDELIVERED_BYTES_MAX,
    ) -> ConnectionLimits:
        """The limits of a client port that may have `clients` connections in all."""
        return ConnectionLimits(
            identity=min(identity, clients),
            address=min(address, clients),
            half_open_of_address=min(bounds.ADDRESS_HALF_OPEN_MAX, max(1, clients // 8)),
            half_open=min(bounds.HALF_OPEN_MAX, max(1, clients // 4)),
            undelivered_of_identity=min(undelivered_of_identity, undelivered),
            undelivered=undelivered,
        )


@dataclass(slots=True)
class _Connection:
    descriptor: int
    peer: Peer
    seen: int
    undelivered: Undelivered
    waiting: float = 0.0
    group: str = ""
    """Whose bytes wait: an identity, or an address before a call has told the identity."""
    cut: bool = False
    excess: bool = False
    """It was cut for a bound of its address, or of half-open connections."""
    within: bool = False
    """At a look it was within the bound of its address."""


@dataclass(slots=True)
class ConnectionCounts:
    """Connections as they were at the last look."""

    open: int = 0
    half_open: int = 0
    waiting_bytes: int = 0
    """See `undelivered`."""
    undelivered_cut: int = 0
    """How many were cut for such bytes, since the start."""


class Connections:
    """One per store. `heard`, `delivered` and `cut` are called on the event loop."""

    def __init__(self, limits: ConnectionLimits, *ports: int) -> None:
        """`ports`: those that clients connect to, as they are bound."""
        self.counts = ConnectionCounts()
        self.half_calls = HalfCalls()
        """The calls of all connections whose request is not whole yet."""
        self._ports = frozenset(ports)
        self._limits = limits
        self._identity_max: Callable[[str], int] = lambda _: limits.identity
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[Peer, str]] = {}
        self._delivered: dict[str, tuple[Peer | None, Delivered]] = {}
        self._of_identity: dict[str, int] = {}
        self._doomed: dict[Peer, tuple[str, float]] = {}
        """Connections that a look will end: the reason, and the time from which it does."""
        self._sockets: dict[_Socket, _Connection] = {}
        self._others: set[_Socket] = set()
        """Sockets that are no connections of the client port."""
        self._listening: dict[_Socket, int] = {}
        """Where clients connect to, and how many packets the kernel had dropped there."""
        self._floods = syn_filter.Floods()
        self._filter_refused = False
        self._looks = 0
        self._traffic_due_s = 0.0
        """When the bytes that wait are looked at again: it costs more than to count connections."""
        self._told_s = -bounds.CONNECTIONS_TELL_S
        self._bell = Doorbell()
        self._ended = False
        self._spare = -1
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)

    def change(self, limits: ConnectionLimits) -> None:
        """Other limits from now on; half-open connections above them are cut at the next look."""
        self._limits = limits
        self._bell.ring()

    def start(self) -> None:
        """Begin to look."""
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._thread.start()

    def stop(self) -> None:
        """No more looks."""
        self._ended = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join()
        self._bell.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def limit(self, identity_max: Callable[[str], int], address_max: int) -> None:
        """From now on an identity and an address may have so many."""
        self._identity_max = identity_max
        self._limits = replace(self._limits, address=address_max)

    def heard(self, name: str, identity: str) -> None:
        """A call came over the connection that gRPC calls `name`. Raises Busy: over the bound."""
        if name in self._heard:
            return
        self._wake_up()
        peer = peer_of(name)
        if peer is None:
            return
        most = self._identity_max(identity)
        with self._lock:
            count = self._of_identity.get(identity, 0)
            if count < most:
                self._of_identity[identity] = count + 1
                self._heard[name] = (peer, identity)
                return
            self._doomed[peer] = "identity", time.monotonic() + bounds.CONNECTIONS_LOOK_S
        raise Busy(f"more than {most} connections of one identity", retry_after_ms=500)

    def delivered(self, name: str) -> Delivered:
        """The account to add to when a call on the connection `name` of gRPC gets a message."""
        found = self._delivered.get(name)
        if found is None:
            found = peer_of(name), Delivered()
            self._wake_up()
            with self._lock:
                self._delivered[name] = found
        return found[1]

    def cut(self, name: str, why: str) -> None:
        """End the connection that gRPC calls `name`, at once."""
        peer = peer_of(name)
        if peer is not None:
            with self._lock:
                self._doomed[peer] = why, 0.0
            self._bell.ring()

    def _wake_up(self) -> None:
        """A call came: somebody is connected, although the newest look found nobody."""
        if not self.counts.open:
            self._bell.ring()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ended:
                began_s = time.monotonic()
                try:
                    self._look()
                except OSError as error:
                    # Descriptors are short everywhere; the next look is soon.
                    logger.warning("the connections cannot be looked at: %s", error)
                self._rest(time.monotonic() - began_s)
        finally:
            # Nobody would let an address in again.
            self._floods.halvings.clear()
            self._filter()

    def _rest(self, spent_s: float) -> None:
        """Until the next look, after one that took `spent_s`. A ring ends it."""
        began_s = time.monotonic()
        if not self.counts.open and self._bell.sleep(bounds.CONNECTIONS_REST_S, arrivals=1):
            return
        for least_s, arrivals in (
            (crowded_pause_s(spent_s), 0),
            (pause_s(spent_s), bounds.ARRIVALS_MAX),
        ):
            left_s = began_s + least_s - time.monotonic()
            if left_s > 0 and self._bell.sleep(left_s, arrivals=arrivals):
                return

    def _look(self) -> None:
        self._looks += 1
        with self._lock:
            now_s = time.monotonic()
            doomed = {peer: why for peer, (why, due_s) in self._doomed.items() if due_s <= now_s}
            for peer in doomed:
                del self._doomed[peer]
            known = list(self._heard)
            delivered = list(self._delivered)
        self._find()
        with self._lock:
            self._forget_gone(known)
            self._forget_delivered(delivered)
            heard = dict(self._heard.values())
            messages = dict(self._delivered.values())
        half_open = [one for one in self._sockets.values() if one.peer not in heard]
        every = list(self._sockets.values())
        self.counts.open, self.counts.half_open = len(every), len(half_open)
        # gRPC takes its time to close what is cut.
        left = [one for one in every if not one.cut]
        over = list(_over(left, [one for one in half_open if not one.cut], self._limits))
        # First the kernel is told: to cut many takes its time, in which as many come.
        self._tell_floods([one for one in every if one.excess] + [one for one, _ in over])
        with self._one_descriptor():
            for one in every:
                if one.peer in doomed:
                    self._shut(one, doomed[one.peer])
            for one, why in over:
                self._shut(one, why)
                one.excess = one.cut
        began_s = time.monotonic()
        if began_s >= self._traffic_due_s:
            self._cut_the_greedy(every, heard, messages)
            ended_s = time.monotonic()
            self._traffic_due_s = ended_s + traffic_pause_s(ended_s - began_s)

    def _cut_the_greedy(
        self,
        every: list[_Connection],
        heard: dict[Peer, str],
        delivered: dict[Peer | None, Delivered],
    ) -> None:
        """Cut the connections that INV-UNDELIVERED-1 names."""
        now_s, oldest_s = time.monotonic(), self.half_calls.oldest_s()
        for one in every:
            # First what was delivered, then what was received: see `Undelivered.look`.
            got = delivered.get(one.peer, _NOTHING)
            got = Delivered(got.messages, got.size, got.streams)
            seen = self._with_socket(one.descriptor, lambda _, found: traffic(found))
            one.group = heard.get(one.peer, one.peer[0])
            one.waiting = (
                one.undelivered.look(now_s, got, seen, oldest_s) if seen and not one.cut else 0.0
            )
        self.counts.waiting_bytes = int(sum(one.waiting for one in every))
        limits = self._limits
        with self._one_descriptor():
            for one in greediest(every, limits.undelivered_of_identity, limits.undelivered):
                self.counts.undelivered_cut += 1
                self._shut(one, "undelivered")

    def _find(self) -> None:
        """Bring `_sockets` up to date; its order is the order in which the sockets were first
        seen.
        """
        present: set[_Socket] = set()
        found_listening = False
        with self._one_descriptor():
            names = os.listdir(_FOLDER)
        for name in names:
            descriptor = int(name)
            try:
                found = os.fstat(descriptor)
            except OSError:
                continue
            if not stat.S_ISSOCK(found.st_mode):
                continue
            key = (descriptor, found.st_ino)
            present.add(key)
            if key not in self._sockets and key not in self._others:
                peer = self._client_of(descriptor)
                if peer is None:
                    self._others.add(key)
                    if self._listens(descriptor):
                        self._bell.watch(descriptor)
                        self._listening[key] = 0
                        found_listening = True
                    continue
                new = Undelivered(time.monotonic())
                self._sockets[key] = _Connection(descriptor, peer, self._looks, new)
        for key in [key for key in self._sockets if key not in present]:
            del self._sockets[key]
        self._others &= present
        for key in [key for key in self._listening if key not in present]:
            del self._listening[key]
        if found_listening:
            self._filter()  # no address yet: now is the time to say that the kernel refuses

    def _client_of(self, descriptor: int) -> Peer | None:
        """The other side, if it is a connection of the client port."""
        return self._with_socket(descriptor, lambda peer, _: peer)

    def _listens(self, descriptor: int) -> bool:
        """It is where clients connect to."""
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=descriptor)
            try:
                if found.family in (socket.AF_INET, socket.AF_INET6):
                    listening = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    return bool(listening) and found.getsockname()[1] in self._ports
            finally:
                found.detach()
        return False

    def _at_listening(self, act: Callable[[_Socket, socket.socket], None]) -> None:
        """Do something with each socket that clients connect to, on a descriptor of our own, for
        the reason of INV-CUT-1.
        """
        with self._one_descriptor():
            for key in self._listening:
                with contextlib.suppress(OSError):
                    mine = os.dup(key[0])
                    if not self._listens(mine):
                        os.close(mine)
                        continue
                    with socket.socket(fileno=mine) as held:
                        act(key, held)

    def _tell_floods(self, excess: list[_Connection]) -> None:
        self._at_listening(self._count_dropped)
        if self._floods.look(Counter(one.peer[0] for one in excess)):
            self._filter()

    def _filter(self) -> None:
        """Tell the kernel which addresses are in a flood."""
        self._at_listening(self._filter_at)

    def _filter_at(self, _: _Socket, listening: socket.socket) -> None:
        try:
            syn_filter.attach(listening, self._floods.halvings)
        except OSError as error:
            if not self._filter_refused:
                self._filter_refused = True
                logger.warning(
                    "the kernel does not drop connections for this process (%s): in a flood an"
                    " address has what it opens between two looks above its bound",
                    error,
                )
            return
        if not self._floods.halvings:
            syn_filter.detach(listening)

    def _count_dropped(self, key: _Socket, listening: socket.socket) -> None:
        before, self._listening[key] = self._listening[key], syn_filter.dropped(listening)
        if self._listening[key] != before:
            refused["Connection/dropped"] += (self._listening[key] - before) & 0xFFFFFFFF

    def _with_socket(
        self, descriptor: int, look: Callable[[Peer, socket.socket], _Seen]
    ) -> _Seen | None:
        """`look` at it if it is a connection of the client port; does not keep the descriptor."""
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:
            return None
        try:
            if found.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            if found.getsockname()[1] not in self._ports:
                return None
            host, port = found.getpeername()[:2]
            return look((_plain(host), port), found)
        except OSError:
            return None
        finally:
            found.detach()

    def _forget_delivered(self, known: list[str]) -> None:
        """Drop the accounts of connections that ended; `known` were there before the look."""
        there = {one.peer for one in self._sockets.values()}
        for name in known:
            if self._delivered[name][0] not in there:
                del self._delivered[name]

    def _forget_gone(self, known: list[str]) -> None:
        """Drop the identities of connections that ended; `known` were heard before the look."""
        there = {one.peer for one in self._sockets.values()}
        gone = [name for name in known if self._heard[name][0] not in there]
        for name in gone:
            _, identity = self._heard.pop(name)
            left = self._of_identity[identity] - 1
            if left:
                self._of_identity[identity] = left
            else:
                del self._of_identity[identity]

    def _shut(self, one: _Connection, why: str) -> None:
        """Shut one connection down, as INV-CUT-1 demands, while one descriptor is free."""
        with contextlib.suppress(OSError):
            mine = os.dup(one.descriptor)
            if self._client_of(mine) != one.peer:
                os.close(mine)
                return
            with socket.socket(fileno=mine) as held:
                held.shutdown(socket.SHUT_RDWR)
            one.cut = True
            self._tell(one, why)

    def _tell(self, one: _Connection, why: str) -> None:
        refused[f"Connection/{why}"] += 1
        now_s = time.monotonic()
        if now_s - self._told_s >= bounds.CONNECTIONS_TELL_S:
            self._told_s = now_s
            logger.warning(
                "a connection of %s was cut (%s): %d open, %d of them half open; "
                "addresses of which the kernel drops connections: %d",
                one.peer[0],
                why,
                self.counts.open,
                self.counts.half_open,
                len(self._floods.halvings),
            )

    @contextlib.contextmanager
    def _one_descriptor(self) -> Iterator[None]:
        """Inside, one descriptor is free even when the process has used up all others."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def pause_s(spent_s: float) -> float:
    """How long the thread rests after a look that took `spent_s`."""
    return min(max(bounds.CONNECTIONS_LOOK_S, spent_s * _REST), bounds.CONNECTIONS_LOOK_S_MAX)


def crowded_pause_s(spent_s: float) -> float:
    """The same while many connect."""
    return min(max(bounds.CONNECTIONS_LOOK_S_MIN, spent_s * _REST_IN_A_FLOOD), pause_s(spent_s))


def traffic_pause_s(spent_s: float) -> float:
    """How long undelivered bytes are not looked at after a look at them that took `spent_s`."""
    return min(spent_s * _REST, bounds.UNDELIVERED_LOOK_S_MAX)


def peer_of(name: str) -> Peer | None:
    """The other side as gRPC calls it (``ipv4:127.0.0.1:5``, ``ipv6:%5B::1%5D:5``), in our form."""
    kind, _, rest = unquote(name).partition(":")
    host, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return _plain(host.removeprefix("[").removesuffix("]")), int(port)


def _plain(host: str) -> str:
    """One form for an address: without the scope of a link, IPv4 not as IPv6."""
    return host.partition("%")[0].removeprefix("::ffff:")


def _over(
    every: list[_Connection], half_open: list[_Connection], limits: ConnectionLimits
) -> Iterator[tuple[_Connection, str]]:
    """Which connections must go, and why: the oldest half-open one, or the newest of an address."""
    chosen: set[int] = set()
    for group in _by_address(half_open).values():
        for one in group[: max(0, len(group) - limits.half_open_of_address)]:
            chosen.add(id(one))
            yield one, "half_open_of_address"
    left = [one for one in half_open if id(one) not in chosen]
    for one in left[: max(0, len(left) - limits.half_open)]:
        chosen.add(id(one))
        yield one, "half_open"
    for group in _by_address(every).values():
        rest = [one for one in group if id(one) not in chosen]
        for one in rest[: limits.address]:
            one.within = True
        for one in rest[limits.address :]:
            if not one.within:
                yield one, "address"


def _by_address(connections: list[_Connection]) -> dict[str, list[_Connection]]:
    groups: dict[str, list[_Connection]] = {}
    for one in connections:
        groups.setdefault(one.peer[0], []).append(one)
    return groups
