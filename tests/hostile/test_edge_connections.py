"""Floods of the client port: half-open connections, and headers without end.

Before connections were bounded, 1 100 connections without a byte ended a store under the usual soft
limit of 1 024 descriptors, and one client that never acknowledged SETTINGS took 1.2 GiB for its
headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from logservice.cli.processes import store_process
from logservice.cli.processes.local_cluster import LocalCluster
from tests.hostile import http2
from tests.hostile.victim import (
    LegalClient,
    Peak,
    attacked,
    connections_from,
    resident_mib,
    three_times,
)
from tests.waiting import eventually

pytestmark = pytest.mark.processes

STRANGER = "127.0.0.9"
"""The attacker's address: another one than the legal client's, and also local."""

HALF_OPEN_MIB_MAX = 64.0
"""How much a store may grow while 1 100 connections at a time are half open, flood after flood."""

HEADERS_MIB_MAX = 128.0
"""How much a store may grow while one connection sends 400 MiB of headers."""


@pytest.fixture
def descriptor_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that sets the limits of the stores that are started from now on."""

    def limit(soft: int, hard: int) -> None:
        def set_limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        limited = functools.partial(subprocess.Popen, preexec_fn=set_limit)
        monkeypatch.setattr(store_process.subprocess, "Popen", limited)

    return limit


def victim(cluster: LocalCluster) -> tuple[str, int]:
    """Address and process of the first store."""
    pid = next(iter(cluster.pids().values()))
    assert pid is not None
    return cluster.endpoints()[0], pid


def repeated(pid: int, attack: Callable[[], Awaitable[None]], warm: int = 5) -> list[float]:
    """The peaks of memory of `warm` attacks and of three more, which must not grow.

    The first ones fill the allocator's arenas: what they leave behind differs.
    """
    peaks: list[float] = []

    def settled() -> bool:
        return connections_from(pid, STRANGER) == 0

    async def all_of_them() -> None:
        for _ in range(warm):
            with Peak(pid) as peak:
                await attack()
            peaks.append(peak.mib)
            await eventually(settled, 30.0)
        peaks.extend(await three_times(pid, attack, settled))

    asyncio.run(all_of_them())
    return peaks


def half_open(address: str, kind: str) -> socket.socket:
    """A connection that stops somewhere on its way to a call."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), 10, (STRANGER, 0))
    if kind == "hello":
        made.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    return made


async def flood(address: str, kind: str, count: int) -> None:
    """Open `count` connections and hold them until the store has had its say."""
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            with contextlib.suppress(OSError):
                held.append(half_open(address, kind))
        await eventually(lambda: sum(http2.gone(one) for one in held) > count // 2, 30.0)
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize("kind", ["nothing", "hello"])
def test_more_half_open_connections_than_descriptors(
    tmp_path: Path, kind: str, descriptor_limit: Callable[[int, int], None]
) -> None:
    """1 100 connections under a limit of 1 024: the store lives on and serves callers elsewhere."""
    descriptor_limit(1024, 1024)
    with attacked(tmp_path / "cluster") as cluster:
        address, pid = victim(cluster)
        with LegalClient(cluster) as client:
            before = resident_mib(pid)
            peaks = repeated(pid, lambda: flood(address, kind, 1100))
        print(f"half open ({kind}): {before:.0f} MiB before, peaks {peaks}")
        assert max(peaks) - before < HALF_OPEN_MIB_MAX
        client.seen.check(least=5)


def test_the_soft_limit_is_raised(
    tmp_path: Path, descriptor_limit: Callable[[int, int], None]
) -> None:
    descriptor_limit(256, 4096)
    with attacked(tmp_path / "cluster", stores=1) as cluster:
        _, pid = victim(cluster)
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4096, 4096)


async def headers_flood(address: str, shown: tuple[Path, Path, Path]) -> None:
    """Send 400 MiB of headers on one connection, which never acknowledges SETTINGS."""
    made = http2.connect(address, shown, STRANGER)
    made.settimeout(10)
    big = [(b"x%d" % number, b"y" * 4096) for number in range(1024)]
    block = http2.request_fields("/logservice.v1.Log/GetShardStatus", big)
    with contextlib.suppress(OSError, ssl.SSLError):
        made.sendall(http2.PREFACE + http2.settings())
        for number in range(100):
            made.sendall(http2.headers(2 * number + 1, block))
    await eventually(lambda: http2.gone(made), 30.0)
    made.close()


def test_headers_of_a_client_that_never_acknowledges_settings(tmp_path: Path) -> None:
    with attacked(tmp_path / "cluster") as cluster:
        address, pid = victim(cluster)
        shown = cluster.client_files()
        with LegalClient(cluster) as client:
            before = resident_mib(pid)
            peaks = repeated(pid, lambda: headers_flood(address, shown), warm=10)
        print(f"headers: {before:.0f} MiB before, peaks {peaks}")
        assert max(peaks) - before < HEADERS_MIB_MAX
        client.seen.check(least=5)
