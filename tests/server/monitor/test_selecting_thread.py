"""The thread that selects over the admin port's connections outlives what strangers do to it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest

from logservice.config import Address
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.monitor.port.app import AdminApp
from logservice.server.monitor.port.server import AdminServer
from logservice.server.tls.store_tls import server_context_of
from tests.papers import SERVER, uri
from tests.server.secured import CLIENTS

WEB = CLIENTS.issue(uri("store", "web"), purposes=SERVER)
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SELECT_DESCRIPTORS = 1024
"""FD_SETSIZE of the C library: select() takes no descriptor from here on."""


class Answering:
    def status(self) -> StoreStatus:
        return StoreStatus(store="s1")


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def server(request: pytest.FixtureRequest) -> Iterator[AdminServer]:
    context = server_context_of(WEB.certificate, WEB.key, CLIENTS.pem, "", asking=ssl.CERT_OPTIONAL)
    tls: Callable[[], ssl.SSLContext] | None = (lambda: context) if request.param else None
    app = AdminApp(Answering(), lambda _: (b"", "text/plain"), loopback_only=True)  # type: ignore[arg-type]
    made = AdminServer(Address("127.0.0.1", 0), app, tls)
    made.start()
    yield made
    made.stop()


def connected(server: AdminServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


def healthy(server: AdminServer) -> bool:
    made = connected(server)
    if server._server.tls is not None:
        trusting = ssl.create_default_context(cadata=CLIENTS.pem.decode())
        made = trusting.wrap_socket(made, server_hostname="localhost")
    with made:
        made.sendall(GET)
        return made.recv(1 << 16).startswith(b"HTTP/1.1 200")


# Python's ssl leaves the descriptor of such a connection to whoever counts references.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_clients_that_are_gone_before_they_are_accepted(server: AdminServer) -> None:
    """INV-ADMIN-3. Some have sent something, and all of them reset their connection."""
    for number in range(200):
        with connected(server) as one:
            if number % 2:
                one.sendall(b"hello")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert healthy(server)
    assert server._thread.is_alive()


def test_descriptors_above_those_that_select_knows(server: AdminServer) -> None:
    """INV-ADMIN-3. A store with a thousand clients has them."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4096), limits[1]))
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        highest = 0
        while highest < SELECT_DESCRIPTORS:
            highest = os.open(os.devnull, os.O_RDONLY)
            opened.callback(os.close, highest)
        assert healthy(server)
    assert healthy(server)


def test_urgent_data_ends_the_connection(
    server: AdminServer, caplog: pytest.LogCaptureFixture
) -> None:
    """INV-ADMIN-3. It woke the thread for as long as the connection was there, which wrote a line
    of the log each time.
    """
    with caplog.at_level(logging.INFO), connected(server) as one:
        one.send(b"x", socket.MSG_OOB)
        with contextlib.suppress(ConnectionError):
            assert one.recv(1) == b""
        assert healthy(server)
    assert caplog.records == []
