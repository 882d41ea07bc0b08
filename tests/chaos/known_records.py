"""Records of a known text in shard 1 of a real cluster: what tests of damage write and look for."""

from __future__ import annotations

import time
from collections.abc import Callable

from logservice_client.read_result import Records
from logservice_client.sync import SyncShard


def record(block: int, number: int) -> bytes:
    return b"block %4d record %3d " % (block, number) * 8


def append_blocks(shard: SyncShard, first: int, last: int, records: int) -> None:
    """Blocks first .. last - 1, of so many records each."""
    for block in range(first, last):
        shard.append([record(block, number) for number in range(records)], timeout=30.0)


def read_all(shard: SyncShard) -> list[bytes]:
    """Every record, up to the tail."""
    return [
        bytes(one)
        for item in shard.follow(1, until_tail=True)
        if isinstance(item, Records)
        for one in item.records()
    ]


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
