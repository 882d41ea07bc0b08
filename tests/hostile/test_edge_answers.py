"""Readers that never take their answers: unread answers of Read and Follow, on real stores.

Before answers were bounded, 80 unread answers of 16 MiB took 3.5 GiB of a store, and 2 400 of them
ended it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_wire.v1 import log_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.hostile import http2
from tests.hostile.victim import LegalClient, Peak, attacked, resident_mib

pytestmark = pytest.mark.processes

STRANGER = "127.0.0.9"
LIMITS: dict[str, dict[str, object]] = {
    "limits": {"answer_bytes_max": 64 << 20, "identity_answer_bytes_max": 32 << 20}
}
ANSWERS_MIB_MAX = 32 * 4 + 64
"""What the attack may cost: four times the share of one identity, because an answer is held as it
was read, encoded, and twice in gRPC; and what a store's memory does not give back afterwards."""

READ, FOLLOW = "/logservice.v1.Log/Read", "/logservice.v1.Log/Follow"


def fill(cluster: LocalCluster, mebibytes: int) -> None:
    """Append `mebibytes` records of a MiB, to be read."""
    with SyncLogClient(cluster.endpoints(), tls=cluster.client_tls()) as client:
        shard = client.shard(1)
        for _ in range(mebibytes):
            shard.append(bytes(1 << 20))


def greedy(address: str, shown: tuple[Path, Path, Path], path: str, calls: int) -> socket.socket:
    """A connection with `calls` calls whose answers nobody takes, because its window stays shut."""
    made = http2.connect(address, shown, STRANGER)
    made.settimeout(10)
    made.sendall(http2.PREFACE + http2.settings(0) + http2.frame(http2.SETTINGS, http2.ACK, 0))
    kind = log_pb2.ReadRequest if path == READ else log_pb2.FollowRequest
    request = kind(shard_id=1, lsn=1, max_bytes=16 << 20).SerializeToString()
    for number in range(calls):
        stream = 2 * number + 1
        made.sendall(
            http2.headers(stream, http2.request_fields(path)) + http2.message(stream, request)
        )
    return made


async def attack(address: str, shown: tuple[Path, Path, Path], path: str) -> None:
    """Ask for 80 answers of 16 MiB, or for 80 streams, on four connections."""
    held = [greedy(address, shown, path, 20) for _ in range(4)]
    # This is long enough for the store to read everything that it is going to read.
    await asyncio.sleep(1.5)
    for one in held:
        with contextlib.suppress(OSError, ssl.SSLError):
            one.close()


@pytest.mark.parametrize("path", [READ, FOLLOW])
def test_answers_that_nobody_takes(tmp_path: Path, path: str) -> None:
    with attacked(tmp_path / "cluster", settings=LIMITS) as cluster:
        fill(cluster, 20)
        address = cluster.endpoints()[0]
        pid = next(iter(cluster.pids().values()))
        assert pid is not None
        shown = cluster.client_files()
        before = resident_mib(pid)
        peaks = []
        with LegalClient(cluster) as client:
            for _ in range(3):
                with Peak(pid) as peak:
                    asyncio.run(attack(address, shown, path))
                peaks.append(peak.mib)
        print(f"{path}: {before:.0f} MiB before, peaks {peaks}")
        client.seen.check(least=10)
        assert max(peaks) - before < ANSWERS_MIB_MAX
        # The share of the identity has been given back: the same identity can read again.
        with SyncLogClient(cluster.endpoints(), tls=cluster.client_tls()) as reader:
            assert reader.shard(1).read(1).items
