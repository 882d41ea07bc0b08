"""A real store process whose disk hangs (strace holds every sync): its ticks and heartbeats go on,
its leadership goes to others, and when the disk answers again it catches up.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from logservice_client import LogClient
from logservice_client.sync import SyncLogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.papers import uri
from tests.slow_disk import slow_syncs

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
    ),
]

STORE_TIMEOUT_S = 3
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": STORE_TIMEOUT_S},
}


@contextlib.contextmanager
def hanging_disk(pid: int) -> Iterator[None]:
    """Every fdatasync of a process, and every write that syncs its own bytes, takes a minute, until
    the end of the context.
    """
    with slow_syncs(pid, "delay_enter=60000000") as tracer:
        eventually(lambda: tracer.ended() or traced(pid))
        tracer.skip_if_ended()
        yield


def traced(pid: int) -> bool:
    for task in list(Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            if "TracerPid:\t0" in (task / "status").read_text():
                return False
    return True


def eventually(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait until `condition()` holds; while a leader is missing it is asked again."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except LogServiceError as error:
            if not error.retryable:
                raise
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def shard_of(client: SyncLogClient) -> hakeeper_pb2.ShardInfo:
    (found,) = [one for one in client.hakeeper.cluster_state().shards if one.shard_id == 1]
    return found


def expired_stores(client: SyncLogClient) -> set[str]:
    return {one.store_id for one in client.hakeeper.cluster_state().stores if one.expired}


async def change_access(endpoints: Sequence[str]) -> int:
    async with LogClient(endpoints) as client:
        return await client.hakeeper.change_access(uri("client", "me"), "shard/1", grant=["read"])


def test_a_leader_on_a_disk_that_hangs(tmp_path: Path) -> None:
    cluster = LocalCluster.create(tmp_path / "c", settings=SETTINGS)
    try:
        cluster.up(60)
        with SyncLogClient(cluster.endpoints()) as client:
            shard, acked = client.shard(1), {}
            numbers = itertools.count()

            def append() -> bool:
                record = b"%d" % next(numbers)
                acked[shard.append(record)] = record
                return True

            for _ in range(20):
                eventually(append)
            eventually(lambda: bool(shard_of(client).leader_store))
            stuck = shard_of(client).leader_store
            pid = cluster.pids()[stuck]
            assert pid is not None
            with hanging_disk(pid):
                for _ in range(20):
                    eventually(append)
                eventually(lambda: shard_of(client).leader_store not in ("", stuck))
                # The stuck store hears of the change with a heartbeat, and writes it down later.
                eventually(lambda: asyncio.run(change_access(cluster.endpoints())) > 0)
                time.sleep(2 * STORE_TIMEOUT_S)  # as long as HAKeeper would take to miss it, twice
                for _ in range(20):
                    eventually(append)
                # This is well within the minute that its disk takes: its heartbeats go on.
                eventually(lambda: stuck not in expired_stores(client), 30)
                assert cluster.pids()[stuck] == pid

            def caught_up() -> bool:
                applied = {one.applied_lsn for one in shard_of(client).replicas}
                return len(applied) == 1 and min(applied) >= max(acked)

            eventually(caught_up)
            assert cluster.pids()[stuck] == pid
            found = {lsn: shard.read(lsn, max_bytes=1).records()[0] for lsn in acked}
            assert found == acked
    finally:
        kill_stores(cluster)
