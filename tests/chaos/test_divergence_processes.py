"""A record that differs on one disk of a running cluster of processes, with valid checksums."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from logservice_client.sync import SyncLogClient
from logservice_wire.errors import LogServiceError, Reason

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.logdb.io.data_directory import read_identity
from logservice.logdb.io.posix_vfs import PosixVfs
from tests.chaos.known_records import append_blocks, everywhere, read_all, record
from tests.local_stores import kill_stores
from tests.nodehost.forgery import forge_where
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "compare_interval_s": 1},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}
BLOCKS = 60
RECORDS = 100
"""Records in each block."""
STORES = ("store-1", "store-2", "store-3")


def test_g6_a_record_that_differs_with_valid_checksums_is_found_and_restored(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster.create(tmp_path / "c", settings=SETTINGS)
    try:
        cluster.up(60)
        with SyncLogClient(cluster.endpoints()) as client:
            shard = client.shard(1)
            last_lsn = append_blocks(shard, 0, BLOCKS, RECORDS)
            wait_until(everywhere(client, 1, last_lsn))
            victim = cluster.process("store-2")
            data = victim.directory / "data"
            incarnation = read_identity(PosixVfs(), str(data)).incarnation
            wanted = record(40, 7)
            forged = forge_where(data, incarnation, lambda key, text: wanted in bytes(text))
            assert [key[0] for key in forged] == [1]
            append_blocks(shard, BLOCKS, BLOCKS + 5, RECORDS)

            def logged(what: str) -> list[str]:
                logs = {name: cluster.process(name).log_path for name in STORES}
                return [n for n, log in logs.items() if what in log.read_text(errors="replace")]

            wait_until(lambda: logged("is repaired in place") == ["store-2"])
            assert logged("not what a majority has") == ["store-2"]
            # A leader finds it; two leaders do, if leadership moved meanwhile.
            assert logged("differ from the majority: entries")
            # One of the others stops, so this store's records are needed, and read from its disk.
            cluster.stop("store-2")
            cluster.start("store-2")
            cluster.wait_ready()
            cluster.kill("store-1")
            append_blocks(shard, BLOCKS + 5, BLOCKS + 10, RECORDS)
            found = read_all(shard)
        expected = [record(block, n) for block in range(BLOCKS + 10) for n in range(RECORDS)]
        assert found == expected
    finally:
        kill_stores(cluster)


def shown(cluster: LocalCluster, store: str) -> subprocess.CompletedProcess[bytes]:
    """What `logservice logdb records` shows of the shard on the disk of a running store."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "logservice",
            "logdb",
            "records",
            "--live",
            "--raw",
            str(cluster.process(store).directory / "data"),
            "1",
        ],
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_g7_three_different_replicas_halt_and_a_person_sees_what_each_has(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", settings=SETTINGS)
    try:
        cluster.up(60)
        with SyncLogClient(cluster.endpoints()) as client:
            shard = client.shard(1)
            last_lsn = append_blocks(shard, 0, 20, RECORDS)
            wait_until(everywhere(client, 1, last_lsn))
            # All stop before any changes: one that differed alone would be outvoted by the other
            # two.
            for name in STORES:
                cluster.stop(name)
            for name, block in (("store-2", 5), ("store-3", 6)):
                data = cluster.process(name).directory / "data"
                incarnation = read_identity(PosixVfs(), str(data)).incarnation
                wanted = record(block, 7)
                forged = forge_where(
                    data, incarnation, lambda _, text, wanted=wanted: wanted in bytes(text)
                )
                assert len(forged) == 1
            for name in STORES:
                cluster.start(name)

            def refused() -> bool:
                try:
                    shard.append([b"more"], timeout=5.0)
                except LogServiceError as error:
                    # Before the stores are up, reads fail with other errors, which say so.
                    return error.reason in (Reason.HALTED, Reason.DEADLINE)
                return False

            wait_until(refused)
        for name in STORES:
            log = cluster.process(name).log_path
            wait_until(lambda log=log: "until a person decides" in log.read_text(errors="replace"))
        # A line that was logged reaches the disk a moment later.
        no_majority = b"no majority of replicas agrees"
        wait_until(lambda: all(no_majority in shown(cluster, name).stderr for name in STORES))
        printed = [shown(cluster, name) for name in STORES]
        # The forger left the clients' own checksum as it was: it tells a person which replica is
        # wrong.
        assert [b"checksum" in one.stderr for one in printed] == [False, True, True]
        found = [set(one.stdout.splitlines()) for one in printed]
        for block in range(20):
            has = [record(block, 99) in one for one in found]
            assert has == [True, block != 5, block != 6]
        # A restart changes nothing: it must not decide which replica is right.
        cluster.stop("store-1")
        cluster.start("store-1")
        log = cluster.process("store-1").log_path
        wait_until(lambda: log.read_text(errors="replace").count("halted: no majority") >= 2)
    finally:
        kill_stores(cluster)
