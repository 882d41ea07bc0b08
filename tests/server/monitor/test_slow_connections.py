"""The admin port answers probes although other clients are slow, or ask much."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.app import AdminApp
from logservice.server.monitor.port.server import AdminServer

PROBE_S = 5.0
"""A limit for probes: one that starves waits for waitress's half minute."""


class Board:
    """A loop that answers probes at once, and never gives a report on the cluster."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.asked = threading.Semaphore(0)

    def status(self) -> StoreStatus:
        return StoreStatus(store="s1")

    def cluster(self) -> object:
        self.asked.release()
        self.may_go_on.wait(60)
        raise RuntimeError("too late")


@pytest.fixture
def board() -> Iterator[Board]:
    made = Board()
    yield made
    made.may_go_on.set()


@pytest.fixture
def address(board: Board) -> Iterator[tuple[str, int]]:
    app = AdminApp(board, lambda _: (b"", "text/plain"), loopback_only=True)  # type: ignore[arg-type]
    server = AdminServer(Address("127.0.0.1", 0), app)
    server.start()
    host, _, port = server.address.rpartition(":")
    yield host, int(port)
    board.may_go_on.set()
    server.stop()


def connect(address: tuple[str, int], said: bytes) -> socket.socket:
    made = socket.create_connection(address, PROBE_S)
    made.sendall(said)
    return made


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def healthy(address: tuple[str, int], path: str = "/healthz") -> bool:
    with connect(address, get(path)) as probe:
        answer = probe.recv(1 << 16)  # TimeoutError after PROBE_S
    return answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("count", [60, 3 * bounds.ADMIN_CONNECTIONS_MAX])
@pytest.mark.parametrize("said", [b"", b"GET /healthz HT", get("/metrics")[:-2], get("/healthz")])
def test_slow_connections_do_not_starve_a_probe(
    address: tuple[str, int], said: bytes, count: int
) -> None:
    """The slow connections send nothing, or a part of a request, or never read their answer."""
    with contextlib.ExitStack() as open_ones:
        slow = [open_ones.enter_context(connect(address, said)) for _ in range(count)]
        for _ in range(5):
            assert healthy(address)
            assert healthy(address, "/readyz")
            for one in slow[-10:]:
                with contextlib.suppress(ConnectionError):  # this one had to make room
                    one.sendall(b"X")


def test_requests_that_take_long_do_not_starve_a_probe(
    address: tuple[str, int], board: Board
) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(2 * bounds.ADMIN_THREADS):
            open_ones.enter_context(connect(address, get("/api/v1/cluster")))
        for _ in range(bounds.ADMIN_THREADS):
            assert board.asked.acquire(timeout=60)
        for _ in range(5):
            assert healthy(address)


def test_the_pipe_of_the_selecting_thread_outlives_every_writer(board: Board) -> None:
    """A request that ends while the port stops wakes the thread that selects, or one that is gone.

    The sockets and the pipe used to be closed together. A thread that wrote a moment later failed
    with EBADF, or wrote into the file that had got the descriptor.
    """
    app = AdminApp(board, lambda _: (b"", "text/plain"), loopback_only=True)  # type: ignore[arg-type]
    server = AdminServer(Address("127.0.0.1", 0), app)
    server.start()
    trigger, selecting = server._server.trigger, server._thread
    woken = trigger._physical_pull

    def wake_twice() -> None:
        woken()
        selecting.join()
        woken()

    trigger._physical_pull = wake_twice
    server.stop()
    assert trigger._fds == []
