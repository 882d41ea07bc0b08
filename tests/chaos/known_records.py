"""Records of a known text in shard 1 of a real cluster: tests of damage write and look for them."""

from __future__ import annotations

from collections.abc import Callable

from logservice_client.read_result import Records
from logservice_client.sync import SyncLogClient, SyncShard
from logservice_wire.errors import LogServiceError


def record(block: int, number: int) -> bytes:
    return b"block %4d record %3d " % (block, number) * 8


def append_blocks(shard: SyncShard, first: int, last: int, records: int) -> int:
    """Append blocks first .. last - 1 of `records` records each; return the last record's LSN."""
    lsn = 0
    for block in range(first, last):
        lsn = shard.append([record(block, number) for number in range(records)], timeout=60.0)
    return lsn + records - 1


def everywhere(client: SyncLogClient, shard: int, lsn: int) -> Callable[[], bool]:
    """Whether all three replicas of the shard have applied `lsn`: an ack says so of two only."""

    def applied() -> bool:
        try:
            shards = client.hakeeper.cluster_state().shards
        except LogServiceError as error:
            if not error.retryable:
                raise
            return False
        replicas = [replica for one in shards if one.shard_id == shard for replica in one.replicas]
        return sum(replica.applied_lsn >= lsn for replica in replicas) == 3

    return applied


def read_all(shard: SyncShard) -> list[bytes]:
    """Every record, up to the tail."""
    return [
        bytes(one)
        for item in shard.follow(1, until_tail=True)
        if isinstance(item, Records)
        for one in item.records()
    ]
