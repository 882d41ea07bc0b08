"""Damage on the disk of a real store process: bits are flipped while it is stopped, in a segment
that nobody reads. The scrub finds the damage, the peers have the records, and none is lost (G6).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from logservice_client.sync import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.chaos.known_records import append_blocks, everywhere, read_all, record
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
}
BLOCKS = 160
RECORDS = 200
"""Records in each block."""


def flip(directory: Path, what: bytes) -> None:
    """Flip a bit of the record that begins with `what`, in the files of a stopped store."""
    for path in sorted((directory / "data" / "segments").glob("*.segment"))[:-1]:
        data = bytearray(path.read_bytes())
        place = data.find(what)
        if place >= 0:
            data[place + 3] ^= 0x20
            path.write_bytes(data)
            return
    raise AssertionError("no sealed segment has it")


def test_g6_bits_flipped_in_a_stopped_store_are_repaired_when_it_runs_again(
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
            cluster.stop("store-2")
            flip(victim.directory, record(40, 7))
            cluster.start("store-2")
            cluster.wait_ready()
            append_blocks(shard, BLOCKS, BLOCKS + 5, RECORDS)
            wait_until(
                lambda: "is repaired in place" in victim.log_path.read_text(errors="replace")
            )
            # One of the others stops, so the repaired replica's records are needed: no acked one is
            # missing.
            cluster.kill("store-1")
            append_blocks(shard, BLOCKS + 5, BLOCKS + 10, RECORDS)
            found = read_all(shard)
        expected = [record(block, n) for block in range(BLOCKS + 10) for n in range(RECORDS)]
        assert found == expected
    finally:
        kill_stores(cluster)
