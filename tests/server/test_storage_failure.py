"""A disk that fails ends the store at once, loudly; nothing acked is lost, and it starts again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.server.crash import CRASH_EXIT_CODE
from tests.local_stores import kill_stores
from tests.server.served import block

pytestmark = pytest.mark.processes

LIMITED = """
import resource, sys
from pathlib import Path
from logservice import config
from logservice.server.process import run_store

resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
run_store(config.load(Path(sys.argv[1])))
"""
"""A store whose files cannot grow beyond 1.5 MB: a block larger than that makes the disk fail."""


async def acked_then_failed(address: str) -> None:
    """Append small blocks, then one that the disk does not take."""
    async with grpc.aio.insecure_channel(address, [("grpc.enable_http_proxy", 0)]) as channel:
        log = log_pb2_grpc.LogStub(channel)
        for number in range(1, 11):
            request = log_pb2.AppendRequest(shard_id=1, block=block(b"record %d" % number))
            assert (await log.Append(request)).lsn == number
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log.Append(log_pb2.AppendRequest(shard_id=1, block=block(b"x" * 2_000_000)))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_failing_disk(tmp_path: Path) -> None:
    settings: dict[str, dict[str, object]] = {
        "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0},
        "raft": {"tick_ms": 20},
        "hakeeper": {"heartbeat_interval_s": 0.2},
    }
    cluster = LocalCluster.create(tmp_path / "c", stores=1, settings=settings)
    process = cluster.process("store-1")
    with process.log_path.open("wb") as log:
        limited = subprocess.Popen(
            [sys.executable, "-c", LIMITED, str(process.config_path)], stdout=log, stderr=log
        )
    try:
        with pytest.MonkeyPatch.context() as patch:
            # It runs without a pid file of its own.
            patch.setattr(LocalCluster, "pids", lambda self: dict.fromkeys(self.stores, 1))
            cluster.wait_ready(60)
        asyncio.run(acked_then_failed(cluster.endpoints()[0]))
        assert limited.wait(60) == CRASH_EXIT_CODE
    finally:
        limited.kill()
        limited.wait()
    report = process.last_lines(200)
    assert "FATAL: the store stops at once" in report
    assert "File too large" in report
    try:
        cluster.up(60)
        with grpc.insecure_channel(cluster.endpoints()[0]) as channel:
            request = log_pb2.ReadRequest(shard_id=1, lsn=1)
            found = log_pb2_grpc.LogStub(channel).Read(request)
        assert [run.first_lsn for run in found.blocks][:10] == list(range(1, 11))
    finally:
        kill_stores(cluster)
