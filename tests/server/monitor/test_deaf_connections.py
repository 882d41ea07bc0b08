"""Clients of the admin port that ask and never read, that pipeline, or that never end a request."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.app import AdminApp
from logservice.server.monitor.port.server import AdminServer
from tests.waiting import wait_until

PAGE = b"x" * (4 << 20)
"""Larger than what two sockets buffer."""

LIMIT_S = 30.0


class Board:
    def status(self) -> StoreStatus:
        return StoreStatus(store="s1")


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return self.ahead_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[AdminServer]:
    app = AdminApp(Board(), lambda _: (PAGE, "text/plain"), loopback_only=True)  # type: ignore[arg-type]
    made = AdminServer(Address("127.0.0.1", 0), app, clock=clock)
    made.start()
    yield made
    made.stop()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def connect(server: AdminServer, said: bytes, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = server.address.rpartition(":")
    made = socket.create_connection((host, int(port)), LIMIT_S, (source, 0))
    made.sendall(said)
    return made


def answer(server: AdminServer, path: str, source: str = "127.0.0.1") -> bytes:
    """Read an answer whole."""
    said = get(path).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    found = bytearray()
    with connect(server, said, source) as one:
        while data := one.recv(1 << 20):
            found += data
    return bytes(found)


def probed(one: socket.socket) -> bytes:
    """The answer to a probe on a connection that stays, read whole."""
    one.sendall(get("/healthz"))
    found = b""
    while not found.endswith(b"ok\n"):
        data = one.recv(1 << 16)
        assert data, found
        found += data
    return found


def ended(one: socket.socket) -> bool:
    """The other side has closed it; what had arrived is read."""
    try:
        while one.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_who_pipelines_pages_and_never_reads_costs_itself_only(server: AdminServer) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(2 * bounds.ADMIN_THREADS):
            open_ones.enter_context(connect(server, get("/metrics") * (8192 // 44)))
        for _ in range(20):
            assert answer(server, "/metrics").endswith(PAGE)
            assert b"200 OK" in answer(server, "/healthz")


def test_a_hundred_who_pipeline_and_never_read_leave_probes_and_pages(server: AdminServer) -> None:
    """INV-ADMIN-4. It reaches ADMIN_CONNECTIONS_MAX and ADMIN_ANSWER_BYTES_MAX."""
    with contextlib.ExitStack() as open_ones:
        for number in range(100):
            path = "/metrics" if number % 2 else "/readyz"
            open_ones.enter_context(connect(server, get(path) * (8192 // 44)))
        for _ in range(3):
            assert b"200 OK" in answer(server, "/readyz")
            assert answer(server, "/metrics").endswith(PAGE)
        assert server.answers.used <= bounds.ADMIN_ANSWER_BYTES_MAX
        assert server.answers.cut > 0


def test_probes_that_are_pipelined_and_read_hold_up_no_other_probe(server: AdminServer) -> None:
    over = threading.Event()

    def flood() -> None:
        held: list[socket.socket] = []
        while not over.is_set():
            while len(held) < 20:
                held.append(connect(server, b"", "127.0.0.2"))
            for one in [*held]:
                try:
                    one.settimeout(0.01)
                    one.sendall(get("/readyz") * 186)
                    while one.recv(1 << 16):
                        pass
                    raise ConnectionResetError
                except TimeoutError:
                    continue
                except OSError:
                    held.remove(one)
                    one.close()
        for one in held:
            one.close()

    threads = [threading.Thread(target=flood) for _ in range(5)]
    for one in threads:
        one.start()
    try:
        for _ in range(20):
            assert b"200 OK" in answer(server, "/healthz")
    finally:
        over.set()
        for one in threads:
            one.join()


def test_a_connection_answers_one_request_of_those_that_come_at_once(server: AdminServer) -> None:
    with connect(server, get("/healthz") * 3) as one:
        found = bytearray()
        while data := one.recv(1 << 16):
            found += data
    assert found.count(b"HTTP/1.1 200 OK") == 1
    assert b"Connection: close" in found


def test_a_connection_may_ask_again_after_its_answer(server: AdminServer) -> None:
    with connect(server, b"") as one:
        for _ in range(3):
            assert b"200 OK" in probed(one)


@pytest.mark.parametrize("said", [b"", b"GET /healthz HT", get("/metrics")])
def test_what_does_not_go_on_ends(server: AdminServer, clock: Clock, said: bytes) -> None:
    """It reaches ADMIN_PATIENCE_S; a byte now and then does not help."""
    with connect(server, said) as one:
        wait_until(lambda: bool(server.answers.used) == (said == get("/metrics")))
        # Connections are accepted in order, so it has been, before the clock moves.
        assert b"200 OK" in answer(server, "/healthz")
        clock.ahead_s = bounds.ADMIN_PATIENCE_S / 2
        if said and said != get("/metrics"):
            one.sendall(b"T")
        assert b"200 OK" in answer(server, "/healthz")
        clock.ahead_s = bounds.ADMIN_PATIENCE_S + 1
        # A deaf client does not read before it is cut: it would have its answer.
        wait_until(lambda: not server.answers.used)
        assert ended(one)


def test_every_connection_has_an_age(server: AdminServer, clock: Clock) -> None:
    """It reaches ADMIN_CONNECTION_AGE_S: the answer to the next request is the last one."""
    with connect(server, b"") as one:
        for _ in range(int(bounds.ADMIN_CONNECTION_AGE_S / bounds.ADMIN_PATIENCE_S * 2)):
            assert b"Connection: close" not in probed(one)
            clock.ahead_s += bounds.ADMIN_PATIENCE_S / 2
        clock.ahead_s += 1
        assert b"Connection: close" in probed(one)
        assert ended(one)


def test_an_address_with_many_pushes_out_its_own(server: AdminServer) -> None:
    with contextlib.ExitStack() as open_ones:
        kept = open_ones.enter_context(connect(server, b""))
        for _ in range(2 * bounds.ADMIN_CONNECTIONS_MAX):
            open_ones.enter_context(connect(server, b"", "127.0.0.2"))
        assert b"200 OK" in answer(server, "/healthz", "127.0.0.2")
        assert b"200 OK" in probed(kept)


def test_resets_leave_nothing_behind(server: AdminServer) -> None:
    for _ in range(200):
        one = connect(server, get("/metrics") * 3)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
    assert answer(server, "/metrics").endswith(PAGE)
    wait_until(lambda: not server.answers.used)
