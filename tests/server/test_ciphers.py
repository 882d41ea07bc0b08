"""A store process takes the suites of TLS 1.2 that its configuration names, and no others."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.config import Address, StoreConfig
from tests.papers import BOTH, Papers, uri
from tests.server.secured import CLIENTS, OWNER, STORES, configured, lay_out, secured

TAKEN, OTHER = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreConfig, Path]]:
    """A process, because gRPC reads its suites once in the life of one."""
    directory = tmp_path_factory.mktemp("ciphers")
    lay_out(directory)
    more = f'ciphers = ["{TAKEN}"]\n[admin]\ntls = true\nlisten = "127.0.0.1:{free_port()}"'
    config = configured(directory, more)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "logservice", "store", "run", "-c", str(directory / "store.toml")],
        env=environment,
    )
    try:
        for listen in (config.listen.client, config.listen.peer, config.admin.listen):
            until_open(Address.parse(listen, ""), process)
        yield config, directory
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def until_open(address: Address, process: subprocess.Popen[bytes]) -> None:
    give_up_s = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the store has ended"
        try:
            socket.create_connection(address, 5).close()
        except OSError:
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        else:
            return


def shake(address: str, ca: bytes, papers: Papers, directory: Path, suite: str) -> str:
    """The suite of a handshake that offers `suite` alone (TLS 1.2), or anything (TLS 1.3)."""
    context = ssl.create_default_context(cadata=ca.decode())
    papers.write(directory / "shown")
    context.load_cert_chain(directory / "shown.pem", directory / "shown.key")
    if suite:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(suite)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(Address.parse(address, ""), 60) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as made,
    ):
        found = made.cipher()
        assert found is not None
        return found[0]


@pytest.mark.parametrize("port", ["client", "peer", "admin"])
def test_a_suite_that_is_not_listed_is_refused(store: tuple[StoreConfig, Path], port: str) -> None:
    config, directory = store
    address = config.admin.listen if port == "admin" else getattr(config.listen, port)
    ca, papers = CLIENTS.pem, OWNER
    if port == "peer":
        ca, papers = STORES.pem, STORES.issue(uri("store", "s2"), purposes=BOTH)
    assert shake(address, ca, papers, directory, TAKEN) == TAKEN
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake(address, ca, papers, directory, OTHER)
    # Those of TLS 1.3 are not chosen.
    assert shake(address, ca, papers, directory, "").startswith("TLS_")


async def test_without_a_list_the_libraries_choose(tmp_path: Path) -> None:
    """Which shows that it is the list that refuses above."""
    lay_out(tmp_path)
    async with secured(tmp_path) as made:
        address = made.client_address
        for suite in (TAKEN, OTHER):
            found = await asyncio.to_thread(shake, address, CLIENTS.pem, OWNER, tmp_path, suite)
            assert found == suite
