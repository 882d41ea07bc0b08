"""The admin port under TLS: slow or broken handshakes, certificates that change, callers."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logservice import bounds
from logservice.config import Address
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.app import AdminApp
from logservice.server.monitor.port.caller import CHAIN
from logservice.server.monitor.port.server import AdminServer
from logservice.server.tls.store_tls import server_context_of
from tests.papers import SERVER, Papers, uri
from tests.server.secured import CLIENTS, papers_of

PROBE_S = 5.0
"""A limit for probes: one that starves waits for waitress's half minute."""

WEB = CLIENTS.issue(uri("store", "web"), purposes=SERVER)
LONG = b"x" * 300_000
"""It does not fit into a connection's buffers; three of them fit into waitress's memory."""


class Answering:
    """An application's board, whose report is long enough to fill every buffer on the way."""

    def status(self) -> StoreStatus:
        return StoreStatus(store="s1")


@pytest.fixture
def server() -> Iterator[AdminServer]:
    app = AdminApp(Answering(), lambda _: (LONG, "text/plain"), loopback_only=True)  # type: ignore[arg-type]

    def context() -> ssl.SSLContext:
        return server_context_of(
            WEB.certificate, WEB.key, CLIENTS.pem, "", asking=ssl.CERT_OPTIONAL
        )

    made = context()
    served = AdminServer(Address("127.0.0.1", 0), app, lambda: made)
    seen: list[bytes] = []

    def noting(environ: Any, start_response: Any) -> Any:
        seen.append(environ[CHAIN])
        return app(environ, start_response)

    served._server.application = noting
    served.seen = seen  # type: ignore[attr-defined]
    served.start()
    yield served
    served.stop()


def trusting(papers: Papers | None = None, directory: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=CLIENTS.pem.decode())
    if papers is not None:
        assert directory is not None
        papers.write(directory / "shown")
        context.load_cert_chain(directory / "shown.pem", directory / "shown.key")
    return context


def where(server: AdminServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def connect(server: AdminServer, said: bytes | None) -> socket.socket:
    """`said` None: not even a handshake."""
    plain = socket.create_connection(where(server), PROBE_S)
    if said is None:
        return plain
    made = trusting().wrap_socket(plain, server_hostname="localhost")
    made.sendall(said)
    return made


def healthy(server: AdminServer) -> bool:
    with connect(server, get("/healthz")) as probe:
        return probe.recv(1 << 16).startswith(b"HTTP/1.1 200")


HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a handshake that never goes on."""


@pytest.mark.parametrize("count", [60, 3 * bounds.ADMIN_CONNECTIONS_MAX])
@pytest.mark.parametrize(
    "said", ["nothing", "half a hello", "a handshake", "half a request", "all"]
)
def test_slow_connections_do_not_starve_a_probe(server: AdminServer, said: str, count: int) -> None:
    """Some never begin their handshake or stop in it; others finish it and are slow then."""
    with contextlib.ExitStack() as open_ones:
        slow = []
        for _ in range(count):
            if said in ("nothing", "half a hello"):
                one = open_ones.enter_context(connect(server, None))
                one.sendall(HELLO if said == "half a hello" else b"")
            else:
                request = get("/metrics")
                cut = {"a handshake": 0, "half a request": -2, "all": len(request)}[said]
                one = open_ones.enter_context(connect(server, request[:cut]))
            slow.append(one)
        for _ in range(5):
            assert healthy(server)
            for one in slow[-10:]:
                with contextlib.suppress(OSError):  # this one had to make room
                    one.sendall(b"X")


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\x16\x03\x01\0\x05abcde"]
)
def test_what_is_no_tls_is_cut(server: AdminServer, said: bytes) -> None:
    with connect(server, None) as plain:
        plain.sendall(said)
        with contextlib.suppress(ConnectionError):
            while plain.recv(1000):  # an alert, perhaps
                pass
    assert healthy(server)


def test_long_answers_arrive_whole_one_after_the_other(server: AdminServer) -> None:
    """One thread writes an answer while another reads what arrives."""
    with connect(server, get("/metrics")) as made:
        made.settimeout(60)
        for number in range(3):
            if number:
                made.sendall(get("/metrics"))
            got, head = 0, b""
            while got < len(LONG):
                data = made.recv(1 << 16)
                assert data
                got += data.count(b"x")
                head = head or data[:15]
            assert head == b"HTTP/1.1 200 OK"
        made.sendall(get("/healthz"))
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_a_request_in_single_bytes_and_in_one_large_record(server: AdminServer) -> None:
    with connect(server, b"") as made:
        for byte in get("/healthz"):
            made.sendall(bytes([byte]))
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 200")
    padded = get("/healthz")[:-2] + b"X-Pad: " + b"p" * 12_000 + b"\r\n\r\n"
    with connect(server, padded) as made:
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_the_certificate_that_was_shown_is_known_to_the_application(
    server: AdminServer, tmp_path: Path
) -> None:
    """With its chain, of an accepted authority only; none is needed."""
    who = papers_of("somebody")
    for papers in (None, who):
        context = trusting(papers, tmp_path)
        connection = http.client.HTTPSConnection(*where(server), timeout=60, context=context)
        connection.request("GET", "/healthz", headers={"Host": "localhost"})
        assert connection.getresponse().status == http.client.OK
        connection.close()
    without, with_it = server.seen  # type: ignore[attr-defined]
    assert without == b""
    assert with_it.startswith(who.certificate)


async def test_many_at_once(server: AdminServer) -> None:
    """No answer is mixed up with another one's."""
    failed: list[object] = []

    def ask() -> None:
        try:
            for _ in range(20):
                assert healthy(server)
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failed == []
