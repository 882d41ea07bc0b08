"""INV-ROOM-3 on real disks: a leader goes when only its own disk has no room for a block.

The disks are small file systems. Somebody else's file leaves the leader's a room that is smaller
than the block and larger than nothing: so the disk is not full, and nobody else would ask it to go.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from logservice_wire.errors import Busy, LogServiceError

from logservice.logdb.options import LogDbOptions
from tests.nodehost.cluster import SHARD, Cluster, request
from tests.tmpfs import fill, mounted
from tests.waiting import eventually

KIB = 1024
DISK_BYTES = 16 * 1024 * KIB
BLOCK = bytes(200 * KIB)
ATTEMPTS = 200


async def test_a_block_that_only_the_leaders_disk_refuses_is_taken_by_another(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path)
    for store in cluster.stores.values():
        store.options = LogDbOptions(
            segment_bytes=256 * KIB, ballast_bytes=0, reserve_bytes=512 * KIB, spare_segments_max=0
        )
    with mounted([store.directory for store in cluster.stores.values()], DISK_BYTES):
        await cluster.up()
        try:
            first = await cluster.leader()
            raft = cluster.replica(first).raft
            foreign = fill(cluster.stores[first].directory, 1024 * KIB)
            await eventually(lambda: 0 < raft.block_room < len(BLOCK) <= raft.quorum_room)
            refused = await _append(cluster)
            assert refused, "the leader's own disk had room"
            assert await cluster.leader() != first
            foreign.unlink()
        finally:
            await cluster.down()


async def _append(cluster: Cluster) -> int:
    """Append the block; returns how often it was refused before."""
    for refused in range(ATTEMPTS):
        host = cluster.host(await cluster.leader())
        try:
            await host.append(SHARD, request(1, BLOCK), 30.0)
        except Busy:
            await asyncio.sleep(0.02)  # as a client waits
        except LogServiceError as error:
            if not error.retryable:
                raise
        else:
            return refused
    raise AssertionError("nobody took the block")
