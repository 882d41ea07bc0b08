"""Attacks on the peer port by strangers and by a rogue, each with sockets of its own.

Strangers have no certificate. They come from many addresses of the loopback network, so that a
bound per address cannot stand in for the bound on all of them; some come from the stores' own
addresses. A rogue has the certificate of a store that is in no membership.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import struct
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable

from logservice.bounds import PEER_CONNECT_TIMEOUT_S
from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.wire.control import PROTOCOL, Hello, Lane, encode_hello
from logservice.nodehost.transport.wire.frame import FrameKind, encode_frame

GONE = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError, ssl.SSLError, TimeoutError)


class Target:
    """One store of a cluster, seen by an attacker."""

    def __init__(self, cluster: LocalCluster, store: str) -> None:
        self.cluster = cluster
        self.store = store
        place = cluster.stores[store]
        host, _, port = place.peer.rpartition(":")
        self.address = (host, int(port))
        self._admin = place.admin
        pid = cluster.pids()[store]
        assert pid is not None
        self.pid = pid

    def figure(self, name: str) -> float:
        """The value of one metric of the store."""
        with urllib.request.urlopen(f"http://{self._admin}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        line = next(line for line in text.splitlines() if line.startswith(f"logservice_{name} "))
        return float(line.split()[1])

    def connected(self, number: int, timeout_s: float = 30) -> socket.socket:
        """A connection from the `number`-th of many addresses; each second one is from that of the
        stores.
        """
        host = f"127.0.{number % 5}.{1 + number % 7}" if number % 2 else "127.0.0.1"
        return socket.create_connection(self.address, timeout_s, source_address=(host, 0))

    def rogue(self) -> ssl.SSLContext:
        """The TLS context of a store that the authority signed and no store knows."""
        folder = self.cluster.directory / "certs"
        mine = folder / "stores" / "rogue"
        if not mine.exists():
            Authority.open(folder).issue_store("rogue", ["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(mine / "peer-plane.pem", mine / "peer-plane.key")
        return context

    def greeted(
        self, context: ssl.SSLContext, lane: Lane = Lane.MAIN, timeout_s: float = 30
    ) -> ssl.SSLSocket:
        """A connection of the rogue whose handshakes are done; no step of it may take longer than
        `timeout_s`. Raises what sockets raise.
        """
        connection = context.wrap_socket(self.connected(0, timeout_s))
        me = PeerIdentity(
            ClusterId(self.cluster.cluster_id), StoreId("rogue"), (Incarnation(1),), 1
        )
        body = encode_hello(Hello(PROTOCOL, lane, me, StoreId(self.store)))
        connection.sendall(b"".join(encode_frame(FrameKind.HELLO, [body], len(body))))
        answer = connection.recv(4096)
        if not answer:
            connection.close()
            raise ConnectionResetError("no hello")
        assert answer[3] == FrameKind.HELLO
        return connection


class Comer:
    """Connects with a certificate again and again while the block runs, and is as patient as a
    store; counts how often it got in, and how often it gave up or was turned away.
    """

    def __init__(self, target: Target) -> None:
        self.welcomed = 0
        self.failed = 0
        self._target = target
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Comer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        context = self._target.rogue()
        while not self._ended.wait(0.05):
            try:
                self._target.greeted(context, timeout_s=PEER_CONNECT_TIMEOUT_S).close()
            except GONE:
                self.failed += 1
            else:
                self.welcomed += 1


# --- strangers ------------------------------------------------------------------------------------


def probes(target: Target, count: int) -> None:
    """Connect and hang up, as a load balancer does."""
    for number in range(count):
        target.connected(number).close()


def held(target: Target, count: int, said: bytes) -> None:
    """Open connections that send `said` and nothing more, until the store hangs up on each."""
    with contextlib.ExitStack() as opened:
        sockets = []
        for number in range(count):
            with contextlib.suppress(*GONE):
                one = opened.enter_context(target.connected(number))
                sockets.append(one)
                one.sendall(said)
        _until_hung_up(sockets)


def client_hello() -> bytes:
    """The first message of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def without_certificate(target: Target, count: int) -> None:
    """Do whole handshakes as a client that shows no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for number in range(count):
        with contextlib.suppress(*GONE), context.wrap_socket(target.connected(number)) as one:
            one.recv(1)


STRANGERS: dict[str, Callable[[Target, int], None]] = {
    "probes": probes,
    "silent": lambda target, count: held(target, count, b""),
    "half a handshake": lambda target, count: held(target, count, client_hello()),
    "one byte of TLS": lambda target, count: held(target, count, b"\x16"),
    "not TLS": lambda target, count: held(target, count, b"GET / HTTP/1.1\r\n\r\n"),
    "without a certificate": without_certificate,
}
"""Attacks: each takes a store and a number of connections."""


async def all_at_once(target: Target, count: int) -> None:
    """Run every attack of a stranger at once, each in a thread of its own."""
    await asyncio.gather(
        *(asyncio.to_thread(attack, target, count) for attack in STRANGERS.values())
    )


def _until_hung_up(sockets: list[socket.socket], limit_s: float = 20.0) -> None:
    poll = select.poll()
    left = {one.fileno(): one for one in sockets}
    for number in left:
        poll.register(number, select.POLLIN)
    end_s = time.monotonic() + limit_s
    while left:
        assert time.monotonic() < end_s, f"{len(left)} connections are still held"
        for number, _ in poll.poll(1000):
            with contextlib.suppress(*GONE):
                if left[number].recv(65536):
                    continue  # the store's half of a handshake
            poll.unregister(number)
            del left[number]


# --- a rogue --------------------------------------------------------------------------------------


def announced(kind: FrameKind, size: int) -> bytes:
    """The header of a frame whose body never comes whole."""
    head = struct.pack("<HBBII", 0x4C57, 1, kind, size, 0)
    return head + struct.pack("<I", zlib.crc32(head))


def until_taken(target: Target, size: int, limit_s: float = 20.0) -> None:
    """Wait until the store has received `size` bytes of frames that are not whole."""
    end_s = time.monotonic() + limit_s
    while target.figure("peer_partial_bytes") < size:
        assert time.monotonic() < end_s, "the store does not take it"
        time.sleep(0.02)
