"""A record that differs on one disk of a running cluster of processes, with valid checksums."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from logservice_client.read_result import Records
from logservice_client.sync import SyncLogClient, SyncShard

from logservice.cli.local_cluster import LocalCluster
from logservice.logdb.data_directory import read_identity
from logservice.logdb.posix_vfs import PosixVfs
from tests.nodehost.forgery import forge_where

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "compare_interval_s": 1},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}
BLOCKS = 60


def record(block: int, number: int) -> bytes:
    return b"block %4d record %3d " % (block, number) * 8


def appended(shard: SyncShard, first: int, last: int) -> None:
    for block in range(first, last):
        shard.append([record(block, number) for number in range(100)], timeout=30.0)


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


def test_g6_a_record_that_differs_with_valid_checksums_is_found_and_restored(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster.create(tmp_path / "c", settings=SETTINGS)
    try:
        cluster.up(60)
        with SyncLogClient(cluster.endpoints()) as client:
            shard = client.shard(1)
            appended(shard, 0, BLOCKS)
            victim = cluster.process("store-2")
            data = victim.directory / "data"
            incarnation = read_identity(PosixVfs(), str(data)).incarnation
            wanted = record(40, 7)
            forged = forge_where(data, incarnation, lambda key, text: wanted in bytes(text))
            assert [key[0] for key in forged] == [1]
            appended(shard, BLOCKS, BLOCKS + 5)

            def logged(what: str) -> list[str]:
                stores = ("store-1", "store-2", "store-3")
                logs = {name: cluster.process(name).log_path for name in stores}
                return [n for n, log in logs.items() if what in log.read_text(errors="replace")]

            until(lambda: logged("is repaired in place") == ["store-2"])
            assert logged("not what a majority has") == ["store-2"]
            assert len(logged("differ from the majority: entries")) == 1
            # Without one of the others, what it has is needed, and read from its disk.
            cluster.stop("store-2")
            cluster.start("store-2")
            cluster.wait_ready()
            cluster.kill("store-1")
            appended(shard, BLOCKS + 5, BLOCKS + 10)
            found = [
                bytes(one)
                for item in shard.follow(1, until_tail=True)
                if isinstance(item, Records)
                for one in item.records()
            ]
        expected = [record(block, n) for block in range(BLOCKS + 10) for n in range(100)]
        assert found == expected
    finally:
        cluster.down()
