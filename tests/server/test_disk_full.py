"""Three real stores, each on a small disk of its own that fills up: what is refused, what goes on,
and that freed space is enough for appends to work again. Nothing acked is lost by any of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logservice_client.read_result import Records
from logservice_client.sync import SyncLogClient, SyncShard
from logservice_wire.errors import DiskFull, LogServiceError, Outcome
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores
from tests.tmpfs import fill, free_bytes, mounted
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes]

MIB = 1 << 20
DISK_BYTES = 24 * MIB
RESERVE_BYTES = 6 * MIB
SETTINGS: dict[str, dict[str, object]] = {
    "storage": {
        "segment_bytes": MIB,
        "ballast_bytes": 4 * MIB,
        "reserve_bytes": RESERVE_BYTES,
    },
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
    "truncation": {"interval_s": 0.3},
}


class Disks:
    """A cluster, its disks, and what was acked."""

    def __init__(self, cluster: LocalCluster, client: SyncLogClient) -> None:
        self.cluster = cluster
        self.client = client
        self.shard: SyncShard = client.shard(1)
        self.acked: dict[int, bytes] = {}
        self.first = 1
        self.numbers = itertools.count()

    @property
    def last(self) -> int:
        """The newest acked LSN."""
        return max(self.acked)

    def disk(self, store: str) -> Path:
        return self.cluster.directory / store / "data"

    def append(self, size: int = 64 * 1024) -> None:
        record = b"%d " % next(self.numbers) * (size // 8)
        self.acked[self.shard.append(record)] = record

    def append_until_full(self) -> DiskFull:
        while True:
            try:
                self.append()
            except DiskFull as full:
                return full
            except LogServiceError as error:
                if not error.retryable:
                    raise

    def known_to_be_full(self) -> bool:
        """Append until the disks refuse; return whether HAKeeper knows that most are full."""
        self.append_until_full()
        return len(full_disks(self)) >= 2

    def append_again(self, timeout_s: float = 60) -> None:
        """Wait until appends work again."""

        def works() -> bool:
            try:
                self.append()
            except LogServiceError as error:
                if not error.retryable:
                    raise
                return False
            return True

        wait_until(works, timeout_s)

    def truncate(self, lsn: int) -> None:
        self.shard.truncate(lsn)
        self.first = lsn + 1

    def check(self) -> None:
        """Every acked record above the truncation LSN is read back as it was."""
        found: dict[int, bytes] = {}
        for item in self.shard.follow(self.first, until_lsn=max(self.acked)):
            if isinstance(item, Records):
                found.update(enumerate(item.records(), item.first_lsn))
        wanted = {lsn: value for lsn, value in self.acked.items() if lsn >= self.first}
        assert {lsn: found.get(lsn) for lsn in wanted} == wanted

    def all_run(self) -> bool:
        return None not in self.cluster.pids().values()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    cluster = LocalCluster.create(tmp_path / "c", settings=SETTINGS)
    paths = [cluster.directory / store / "data" for store in cluster.stores]
    with mounted(paths, DISK_BYTES):
        try:
            cluster.up(60)
            with SyncLogClient(cluster.endpoints()) as client:
                yield Disks(cluster, client)
        finally:
            kill_stores(cluster)


def test_fill_truncate_and_go_on(disks: Disks) -> None:
    for _ in range(2):
        full = disks.append_until_full()
        assert full.outcome is Outcome.NOT_APPLIED
        assert "truncate" in full.message
        for store in disks.cluster.stores:
            # Blocks end at a quarter of the reserve; what garbage collection copies, at an eighth.
            assert free_bytes(disks.disk(store)) >= RESERVE_BYTES // 8
        for _ in range(20):
            # Collected garbage may be enough for a few more, at any moment.
            disks.append_until_full()
        wait_until(disks.known_to_be_full, 60.0)
        disks.check()
        disks.client.shard(1).set_hold("checkpoint", disks.last)
        disks.client.shard(1).release_hold("checkpoint")
        disks.truncate(disks.last - 3)
        disks.append_again()
        disks.check()
        # What frees space is an export at or below the truncation LSN; a worker that stood still
        # while the disk filled up has none between. One at the end there is in any case.
        disks.truncate(disks.last)
        wait_until(lambda: not full_disks(disks), 60.0)
    assert disks.all_run()


def test_stores_killed_on_full_disks_start_and_take_a_truncation(disks: Disks) -> None:
    disks.append_until_full()
    foreign = [fill(disks.disk(store), 0) for store in disks.cluster.stores]
    for store in disks.cluster.stores:
        disks.cluster.kill(store)
    disks.cluster.up(60)
    disks.check()
    with pytest.raises(DiskFull):
        disks.append(16)
    disks.truncate(disks.last - 3)
    for file in foreign:
        file.unlink()
    disks.append_again()
    disks.check()


def test_a_full_minority_stops_nothing_and_catches_up(disks: Disks) -> None:
    for store in disks.cluster.stores:
        foreign = fill(disks.disk(store), 0)
        wait_until(lambda store=store: full_disks(disks) == {store}, 60.0)  # type: ignore[misc]
        wait_until(lambda store=store: shard_of(disks).leader_store != store, 60.0)  # type: ignore[misc]
        for _ in range(30):
            disks.append_again()
        foreign.unlink()
        disks.check()
        wait_until(lambda: caught_up(disks), 60.0)
        disks.truncate(disks.last - 3)
        wait_until(lambda: not full_disks(disks), 60.0)
    assert disks.all_run()


def test_somebody_else_takes_every_byte_and_gives_them_back(disks: Disks) -> None:
    """That includes a block that is on its way: it stays in the log, and whoever appends then is
    told why it is refused.
    """
    for _ in range(50):
        disks.append()
    with ThreadPoolExecutor(1) as thread:
        full = thread.submit(disks.append_until_full)
        foreign = [fill(disks.disk(store), 0) for store in disks.cluster.stores]
        full.result()
    for _ in range(3):
        with pytest.raises(DiskFull):
            disks.append(16)
    disks.check()
    assert disks.all_run()
    for file in foreign:
        file.unlink()
    disks.append_again()
    disks.check()
    assert disks.all_run()


def shard_of(disks: Disks) -> hakeeper_pb2.ShardInfo:
    """The log shard as HAKeeper knows it."""
    (found,) = [one for one in disks.client.hakeeper.cluster_state().shards if one.shard_id == 1]
    return found


def caught_up(disks: Disks) -> bool:
    """Every replica has applied everything."""
    return all(one.applied_lsn >= disks.last for one in shard_of(disks).replicas)


def full_disks(disks: Disks) -> set[str]:
    """Stores whose disk HAKeeper knows to be full."""
    stores = disks.client.hakeeper.cluster_state().stores
    return {store.store_id for store in stores if any(one.full for one in store.directories)}
