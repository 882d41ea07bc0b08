"""connections: how many connections to the client port one identity or address may hold.

Theory of operation. gRPC accepts connections by itself, and bounds their number and the time of a
handshake. It does not know whose a connection is, and offers no way to end one. So a thread looks
at this process's own sockets (``/proc/self/fd``), finds those of the client port, and shuts down
those that are over a bound. gRPC then sees a broken connection and frees what it held for it.

A connection is *heard* once a call with an accepted identity came over it. Until then it is half
open: it said nothing yet, or is in its handshake, or idles. Half-open connections are bounded per
address and in all. Over the bound the oldest one is cut, because it has had the most time to say
something. So a stranger who holds many pushes out its own, while a client is heard with its first
call. An identity over its bound is told BUSY on the new connection, which is cut by the look after
the next one: the answer goes out first.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from urllib.parse import unquote

from logservice_wire.errors import Busy
from logservice_wire.value import value

from logservice import bounds
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
"""Looking takes at most one part in so many of a core, however many sockets there are."""

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
        self._doomed: dict[Peer, str] = {}
        """Those that the next look cuts, and why."""
        self._told: dict[Peer, str] = {}
        """Those that are cut a look later, so that the answer to their call goes out first."""
        self._sockets: dict[_Socket, _Connection] = {}
        self._others: set[_Socket] = set()
        """Sockets that are no connections of the client port."""
        self._looks = 0
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
            self._told[peer] = "identity"
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
                self._doomed[peer] = why
            self._bell.ring()

    def _wake_up(self) -> None:
        """A call came: somebody is connected, although the newest look found nobody."""
        if not self.counts.open:
            self._bell.ring()

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended:
            began_s = time.monotonic()
            try:
                self._look()
            except OSError as error:
                # Descriptors are short everywhere; the next look is soon.
                logger.warning("the connections cannot be looked at: %s", error)
            spent_s = time.monotonic() - began_s
            self._rest(max(bounds.CONNECTIONS_LOOK_S, spent_s * _REST))

    def _rest(self, least_s: float) -> None:
        """Until the next look, which comes no earlier than `least_s` unless the bell rings."""
        if not self.counts.open:
            began_s = time.monotonic()
            if self._bell.sleep(bounds.CONNECTIONS_REST_S, arrivals=True):
                return
            least_s -= time.monotonic() - began_s
        if least_s > 0:
            self._bell.sleep(least_s)

    def _look(self) -> None:
        self._looks += 1
        with self._lock:
            doomed, self._doomed, self._told = self._doomed, self._told, {}
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
        for one in every:
            if one.peer in doomed:
                self._shut(one, doomed[one.peer])
        for one, why in _over(every, half_open, self._limits):
            self._shut(one, why)
        self._cut_the_greedy(every, heard, messages)

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
        for one in greediest(every, limits.undelivered_of_identity, limits.undelivered):
            self.counts.undelivered_cut += 1
            self._shut(one, "undelivered")

    def _find(self) -> None:
        """Bring `_sockets` up to date; its order is the order in which the sockets were first
        seen.
        """
        present: set[_Socket] = set()
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
                    continue
                new = Undelivered(time.monotonic())
                self._sockets[key] = _Connection(descriptor, peer, self._looks, new)
        for key in [key for key in self._sockets if key not in present]:
            del self._sockets[key]
        self._others &= present

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
        """Shut one connection down, as INV-CUT-1 demands."""
        with self._one_descriptor(), contextlib.suppress(OSError):
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
                "a connection of %s was cut (%s): %d open, %d of them half open",
                one.peer[0],
                why,
                self.counts.open,
                self.counts.half_open,
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
