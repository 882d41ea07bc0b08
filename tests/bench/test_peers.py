"""Every peer of the bench, for real: started, loaded for a moment, asked for what it acked, ended.

Having them takes minutes the first time: `make test-peers`. A peer that cannot be had here is
skipped, with what it says.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc.aio
import pytest

from bench.peers.catalogue import PEERS
from bench.peers.dragonboat import dragonboat
from bench.peers.etcd import etcd, wire
from bench.peers.nats import servers as nats
from bench.peers.peer import Lost, Peer, Running, Unavailable, Workload
from bench.peers.pysyncobj import nodes as pysyncobj

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]

SHAPES = (
    Workload(callers=1, size=256),
    Workload(callers=8, size=16),
    Workload(callers=8, size=16, connections=8),
    Workload(callers=8, size=16, shards=3),
)
FEW = Workload(callers=2, size=16)


@pytest.fixture(autouse=True)
def _wanted() -> None:
    if not os.environ.get("LOGSERVICE_REQUIRE_PEERS"):
        pytest.skip("having the peers takes minutes: `make test-peers`")


@contextmanager
def running(start: Running, folder: Path) -> Iterator[Peer]:
    with ExitStack() as stack:
        try:
            peer = stack.enter_context(start(folder))
        except Unavailable as why:
            pytest.skip(str(why))
        yield peer


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


@pytest.mark.parametrize(("key", "start"), PEERS, ids=[key for key, _ in PEERS])
def test_a_peer_takes_loads_and_leaves_nothing(key: str, start: Running, tmp_path: Path) -> None:
    with running(start, tmp_path) as peer:
        assert processes_of(tmp_path)
        assert peer.name
        assert peer.acks
        taken = [workload for workload in SHAPES if peer.takes(workload)]
        assert SHAPES[0] in taken
        for workload in taken:
            sample = asyncio.run(peer.sample(workload, warmup_s=0.3, seconds=0.7))
            assert sample.records > 0, workload
            assert len(sample.latencies_ms) == sample.records
            assert sample.latencies_ms == tuple(sorted(sample.latencies_ms))
            assert sample.latencies_ms[0] > 0
    assert processes_of(tmp_path) == []


def test_etcd_that_has_not_what_it_acked_is_found(tmp_path: Path) -> None:
    """Another client's put makes the count wrong, as a lost one would."""

    async def beside(cluster: str) -> None:
        await asyncio.sleep(0.3)
        async with grpc.aio.insecure_channel(cluster) as channel:
            await wire.call(channel, wire.PUT)(wire.put_request(b"other", b"x"))

    async def both(peer: etcd.EtcdPeer) -> None:
        other = asyncio.create_task(beside(peer.cluster.endpoints[0]))
        try:
            await peer.sample(FEW, warmup_s=0, seconds=1)
        finally:
            await other

    with running(etcd.debian, tmp_path) as peer:
        assert isinstance(peer, etcd.EtcdPeer)
        with pytest.raises(Lost, match="puts were acked, the revision went on by"):
            asyncio.run(both(peer))


def test_nats_that_has_not_what_it_acked_is_found(tmp_path: Path) -> None:
    """The same, by messages of another client to the stream of the window, once it is there."""

    async def beside() -> None:
        port = re.search(r'listen: "127.0.0.1:(\d+)"', (tmp_path / "n0.conf").read_text())
        assert port is not None
        with socket.create_connection(("127.0.0.1", int(port[1]))) as other:
            other.sendall(b'CONNECT {"verbose":false}\r\n')
            while True:
                other.sendall(b"PUB bench0 1\r\nx\r\n")
                await asyncio.sleep(0.1)

    async def both(peer: Peer) -> None:
        other = asyncio.create_task(beside())
        try:
            await peer.sample(FEW, warmup_s=0, seconds=2)
        finally:
            other.cancel()
            await asyncio.wait([other])

    with running(nats.as_it_comes, tmp_path) as peer, pytest.raises(Lost, match="bench0 has"):
        asyncio.run(both(peer))


def test_pysyncobj_that_has_not_what_it_acked_is_found(tmp_path: Path) -> None:
    """The same, by callers at a follower."""

    async def both(peer: pysyncobj.PySyncObjPeer) -> None:
        follower = next(node for node in peer.nodes if not node.ask({})["leads"])
        other = asyncio.create_task(follower.sample(FEW, warmup_s=0, seconds=1))
        try:
            await peer.sample(FEW, warmup_s=0, seconds=1)
        finally:
            await asyncio.gather(other, return_exceptions=True)

    with running(pysyncobj.running, tmp_path) as peer:
        assert isinstance(peer, pysyncobj.PySyncObjPeer)
        with pytest.raises(Lost, match="records were acked"):
            asyncio.run(both(peer))


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go here")
@pytest.mark.parametrize("words", [("vet", "."), ("test", ".")], ids=lambda words: words[0])
def test_the_program_of_dragonboat_is_in_order(words: tuple[str, ...]) -> None:
    """Its own test has a host that has not what was acked."""
    done = subprocess.run(
        ["go", *words], cwd=dragonboat.MODULE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("gofmt") is None, reason="no Go here")
def test_go_is_formatted() -> None:
    done = subprocess.run(
        ["gofmt", "-l", dragonboat.MODULE], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
