"""What else may go wrong with what a NodeHost is asked: paths that are no files, disks that are
full or answer no more, a host that stops meanwhile, numbers that are none. It names
INV-UNDER-WAY-1.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from logservice_wire.errors import (
    DeadlineExceeded,
    DiskFull,
    InvalidArgument,
    NotReady,
    ShardNotFound,
    UnknownOutcome,
)

from logservice.ids import Index
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.truncation.exports import ExportedSnapshots
from tests import tmpfs
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.nodehost.test_snapshot_requests import append, compact, export, install, save, truncate

WAIT_S = 30.0
RECORDS = 20

Request = Callable[..., Awaitable[object]]


async def query(host: NodeHost, path: str, timeout_s: float = WAIT_S) -> object:
    return await host.query_entries(SHARD, Index(2), Index(9), 1 << 20, timeout_s)


ALL = pytest.mark.parametrize("ask", [query, save, export, install, compact])
WITH_FILES = pytest.mark.parametrize("ask", [export, install])


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path, stores=1)
    await cluster.up(voters=(1,))
    await cluster.leader()
    cluster.host(1).cluster_version.learn(2)
    await append(cluster.host(1), RECORDS)
    yield cluster
    if cluster.stores[1].host is not None:
        await cluster.down()


@pytest.fixture
def host(cluster: Cluster) -> NodeHost:
    return cluster.host(1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "log.export")


@pytest_asyncio.fixture
async def exported(host: NodeHost, path: str) -> object:
    index = await export(host, path)
    await truncate(host, RECORDS)
    await append(host, 5)
    return index


@pytest_asyncio.fixture
async def stuck(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[threading.Event]:
    """The threads that read and write files wait until they are let go."""
    goes_on = threading.Event()
    parts = cluster.stores[1].parts
    assert parts is not None
    monkeypatch.setattr(
        "logservice.logdb.read.replica_log.ReplicaLog.cached_entries", lambda *_: None
    )
    for executor in (
        parts.directories[0].seams.export_executor,
        cluster.replica(1).directory.read_executor,
    ):
        executor.submit(lambda: goes_on.wait(60))
    yield goes_on
    goes_on.set()


# --- paths ----------------------------------------------------------------------------------------


@WITH_FILES
@pytest.mark.parametrize(
    "name", ["with\0zero", "x" * 300, "half \ud800", "log.export/below a file"]
)
async def test_what_is_no_path(
    host: NodeHost, exported: object, tmp_path: Path, ask: Request, name: str
) -> None:
    with pytest.raises(InvalidArgument):
        await ask(host, f"{tmp_path}/{name}")
    assert await save(host, "")


@WITH_FILES
async def test_a_pipe_or_a_device_is_no_file(host: NodeHost, tmp_path: Path, ask: Request) -> None:
    """To open a pipe waits for whoever writes to it, and the thread would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)):
        with pytest.raises(InvalidArgument):
            await ask(host, path, 10.0)
    assert await save(host, "")


async def test_an_export_leaves_the_files_beside_it_alone(
    host: NodeHost, path: str, tmp_path: Path
) -> None:
    """INV-EXPORT-FILE-2."""
    beside = tmp_path / "log.export.tmp"
    beside.write_text("somebody's")
    await export(host, path)
    assert beside.read_text() == "somebody's"


async def test_a_link_to_somebodys_file_is_not_followed(
    host: NodeHost, path: str, tmp_path: Path
) -> None:
    """INV-EXPORT-FILE-2."""
    other = tmp_path / "notes.txt"
    other.write_text("somebody's")
    os.symlink(other, path)
    with pytest.raises(InvalidArgument):
        await export(host, path)
    assert other.read_text() == "somebody's"


# --- disks ----------------------------------------------------------------------------------------


async def test_an_export_to_a_full_disk_leaves_nothing_there(
    host: NodeHost, tmp_path: Path
) -> None:
    """A real file system. Nobody would look for a half-written file on it."""
    disk = tmp_path / "small"
    with tmpfs.mounted([disk], 1 << 20):
        foreign = tmpfs.fill(disk, 0)
        with pytest.raises(DiskFull):
            await export(host, str(disk / "log.export"))
        assert os.listdir(disk) == [foreign.name]
        foreign.unlink()
        index = await export(host, str(disk / "log.export"))
        assert index == host.replicas.running[SHARD].applied
        assert os.listdir(disk) == ["log.export"]


async def test_exports_that_cannot_be_removed_after_an_install(
    cluster: Cluster,
    host: NodeHost,
    exported: object,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is compacted; what is not known is told as such, and the next request knows."""

    def broken(*_: object) -> None:
        raise OSError("broken")

    for ask in (compact, install):
        with monkeypatch.context() as patched:
            patched.setattr(ExportedSnapshots, "drop_through", broken)
            with pytest.raises((UnknownOutcome, NotReady)):
                await ask(host, path)
        await ask(host, path)
    assert not cluster.stores[1].fatal


# --- a host that stops ----------------------------------------------------------------------------


@ALL
async def test_inv_ask_1_a_host_that_stops_lets_nobody_wait(
    cluster: Cluster,
    host: NodeHost,
    exported: object,
    path: str,
    stuck: threading.Event,
    ask: Request,
) -> None:
    """Its disk does not answer, and the deadline is far away."""
    asking = asyncio.ensure_future(ask(host, path, 1000.0))
    await asyncio.sleep(0.02)
    assert not asking.done()
    await host.stop()
    with pytest.raises((NotReady, UnknownOutcome)):
        await asyncio.wait_for(asking, 10.0)
    with pytest.raises((NotReady, ShardNotFound)):
        await ask(host, path)
    stuck.set()


@ALL
async def test_inv_ask_1_a_store_that_closes_its_disks_meanwhile(
    cluster: Cluster, host: NodeHost, exported: object, path: str, ask: Request
) -> None:
    """However far it got, the outcome is a typed one."""
    for turns in (0, 1, 2, 4, 8):
        asking = asyncio.ensure_future(ask(host, path))
        for _ in range(turns):
            await asyncio.sleep(0)
        await cluster.down()
        with contextlib.suppress(NotReady, UnknownOutcome, ShardNotFound):
            await asyncio.wait_for(asking, 10.0)
        host = await cluster.stores[1].up()
        await cluster.leader()
        host.cluster_version.learn(2)


async def test_a_host_that_stopped_takes_no_listener(cluster: Cluster, host: NodeHost) -> None:
    await cluster.down()
    with pytest.raises(NotReady):
        host.listen(lambda event: None)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_bytes", [0, -1, -(1 << 70), 1 << 70])
async def test_any_number_of_bytes_is_one_entry_at_least(host: NodeHost, max_bytes: int) -> None:
    found = await host.query_entries(SHARD, Index(2), Index(1 << 80), max_bytes, WAIT_S)
    assert found.entries[0].index == 2


@pytest.mark.parametrize("ask", [save, export, install, compact])
@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
async def test_no_time_at_all(
    host: NodeHost, exported: object, path: str, ask: Request, timeout_s: float
) -> None:
    with pytest.raises(DeadlineExceeded):
        await ask(host, path, timeout_s)


async def test_what_was_asked_for_by_one_who_went_away(host: NodeHost, path: str) -> None:
    """A caller that is cancelled leaves nothing behind that the next one would wait for."""
    for ask in (save, export):
        asking = asyncio.ensure_future(ask(host, path))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await host.append(SHARD, request(), WAIT_S)
    assert await save(host, path) == await export(host, path)
