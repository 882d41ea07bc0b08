"""A store that must not start says why in one typed error, and changes nothing on the disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, LogServiceError, WrongCluster

from logservice import config
from logservice.cli.processes.local_cluster import free_ports
from logservice.config import StoreConfig
from logservice.server.store import Store


def configured(
    directory: Path, *, store: str = "s1", cluster: str = "c", client: int = 0, peer: int = 0
) -> StoreConfig:
    own, other = free_ports(2)
    return config.parse(
        f"""
        [store]
        store_id = "{store}"
        cluster_id = "{cluster}"
        data_directories = ["{directory}"]
        [listen]
        insecure_plaintext = true
        client = "127.0.0.1:{client}"
        peer = "127.0.0.1:{peer or own}"
        [bootstrap]
        hakeeper_members = [{{ store_id = "elsewhere", peer_address = "127.0.0.1:{other}" }}]
        [storage]
        segment_bytes = 1048576
        ballast_bytes = 0
        """
    )


async def run_once(settings: StoreConfig) -> None:
    """Start and stop; raises what `start` raises."""
    store = Store(settings)
    try:
        await store.start()
    finally:
        await store.stop()


def content(directory: Path) -> dict[str, bytes]:
    """The content of every file but LevelDB's own, which change whenever it is opened."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "index" not in path.relative_to(directory).parts
    }


async def refused(settings: StoreConfig) -> LogServiceError | OSError:
    with pytest.raises((LogServiceError, OSError)) as caught:
        await run_once(settings)
    return caught.value


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


async def test_it_starts_again_on_its_own_directory(tmp_path: Path) -> None:
    await run_once(configured(tmp_path / "data"))
    await run_once(configured(tmp_path / "data"))


async def test_another_stores_directory(tmp_path: Path) -> None:
    await run_once(configured(tmp_path / "data"))
    before = content(tmp_path / "data")
    error = await refused(configured(tmp_path / "data", store="s2"))
    assert isinstance(error, WrongCluster)
    assert "belongs to store 's1'" in error.message
    assert content(tmp_path / "data") == before


async def test_another_clusters_directory(tmp_path: Path) -> None:
    await run_once(configured(tmp_path / "data"))
    before = content(tmp_path / "data")
    error = await refused(configured(tmp_path / "data", cluster="other"))
    assert isinstance(error, WrongCluster)
    assert "belongs to cluster 'c'" in error.message
    assert content(tmp_path / "data") == before


async def test_a_copy_of_its_directory(tmp_path: Path) -> None:
    await run_once(configured(tmp_path / "data"))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    before = content(tmp_path / "copy")
    error = await refused(configured(tmp_path / "copy"))
    assert isinstance(error, WrongCluster)
    assert "is a copy" in error.message
    assert content(tmp_path / "copy") == before


async def test_a_directory_in_use(tmp_path: Path) -> None:
    first = Store(configured(tmp_path / "data"))
    await first.start()
    try:
        error = await refused(configured(tmp_path / "data"))
    finally:
        await first.stop()
    assert isinstance(error, InvalidArgument)
    assert "another process" in error.message


async def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.txt").write_text("dear")
    error = await refused(configured(tmp_path / "data"))
    assert isinstance(error, InvalidArgument)
    assert "letter.txt" in error.message
    assert (tmp_path / "data" / "letter.txt").read_text() == "dear"


async def test_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    # Below a file, and in a file system without new files, even root may create nothing.
    for place in (tmp_path / "file" / "data", Path("/proc/logservice-data")):
        error = await refused(configured(place))
        assert isinstance(error, InvalidArgument)
        assert error.metadata["field"] == "data_directory"


@pytest.mark.parametrize("which", ["client", "peer"])
async def test_a_port_in_use(tmp_path: Path, taken_port: int, which: str) -> None:
    error = await refused(configured(tmp_path / "data", **{which: taken_port}))  # type: ignore[arg-type]
    assert str(taken_port) in str(error)
    await run_once(configured(tmp_path / "data"))


@pytest.mark.parametrize("which", ["client", "peer"])
async def test_a_start_that_failed_leaves_nothing_running_and_nothing_open(
    tmp_path: Path, taken_port: int, which: str
) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    for _ in range(2):
        await refused(configured(tmp_path / "data", **{which: taken_port}))  # type: ignore[arg-type]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not open_below(tmp_path)
    left = {thread.name for thread in threading.enumerate()} - threads
    assert not [name for name in left if "grpc" not in name.lower()]


def open_below(directory: Path) -> list[str]:
    """The files of this process in that directory."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(descriptor))
    return [name for name in found if name.startswith(str(directory))]


async def test_every_address_needs_one_to_advertise(tmp_path: Path) -> None:
    text = configured(tmp_path)
    listen = config.ListenSection(peer="0.0.0.0:1")
    assert listen.advertise_peer is None
    names = ("client_ca", "certificate", "key", "peer_ca", "peer_certificate", "peer_key")
    tls = config.TlsSection(**dict.fromkeys(names, "x.pem"))
    with pytest.raises(config.ConfigError, match=r"listen\.advertise_peer"):
        config.check(
            config.StoreConfig(store=text.store, bootstrap=text.bootstrap, listen=listen, tls=tls)
        )
