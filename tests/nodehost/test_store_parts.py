"""Opening a store with several data directories: which are refused, left out, or begun anew."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from logservice_wire.errors import InvalidArgument, WrongCluster

from logservice.clock import SystemClock
from logservice.ids import ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.kv import KvError
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from tests.logdb.helpers import entries, update

CLUSTER, STORE = ClusterId("c"), StoreId("s1")
A, B = "/a", "/b"


class Disk(MemoryVfs):
    """A disk that raises `error` for every look into a file whose path ends with `where`."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = MemoryKvEngine()
        self.error = 0
        self.where = ""

    def open_read(self, path: str) -> int:
        if self.error and path.endswith(self.where):
            raise OSError(self.error, "no answer")
        return super().open_read(path)

    def listdir(self, path: str) -> list[str]:
        if self.error and path.endswith(self.where):
            raise OSError(self.error, "no answer")
        return super().listdir(path)


class Machine:
    """Two disks, and the store that is configured to use them."""

    def __init__(self) -> None:
        self.disks = {A: Disk(), B: Disk()}
        self.random = random.Random(5)
        self.paths = [A, B]

    def open(self, use: Callable[[StoreParts], None] = lambda parts: None) -> None:
        """Open, use, close."""
        settings = StoreSettings(
            CLUSTER,
            STORE,
            self.paths,
            (),
            FirstConfiguration(CLUSTER, 1, 1, 10.0),
            logdb=LogDbOptions(segment_bytes=1 << 20, ballast_bytes=0),
            scrub_bytes_per_s=1 << 19,
        )

        def disk(path: str) -> DiskSeams:
            vfs = self.disks[path]
            return DiskSeams(vfs, vfs.kv, *(InlineExecutor() for _ in range(4)))

        seams = StoreSeams(
            disk=disk,
            clock=SystemClock(),
            make_transport=lambda identity: MemoryTransport(identity, MemoryNetwork()),
            draw_id=lambda: self.random.getrandbits(63),
            rng=self.random,
            on_fatal=pytest.fail,
        )
        parts = StoreParts(settings, seams)
        try:
            use(parts)
        finally:
            parts.close()

    def incarnations(self) -> list[int]:
        found: list[int] = []
        self.open(lambda parts: found.extend(map(int, parts.host.identity.incarnations)))
        return found


def test_each_directory_has_an_incarnation_that_stays() -> None:
    machine = Machine()
    first = machine.incarnations()
    assert len(set(first)) == 2
    assert machine.incarnations() == first
    machine.paths.reverse()
    assert machine.incarnations() == first[::-1], "the order of the configuration does not matter"


def test_an_emptied_directory_comes_back_as_another_one() -> None:
    machine = Machine()
    first = machine.incarnations()
    machine.disks[B] = Disk()
    second = machine.incarnations()
    assert second[0] == first[0]
    assert second[1] not in first


def test_a_directory_added_later_is_fine() -> None:
    machine = Machine()
    machine.paths = [A]
    [first] = machine.incarnations()
    machine.paths = [B, A]
    assert machine.incarnations()[1] == first


@pytest.mark.parametrize(("cluster", "store"), [("c", "s2"), ("other", "s1")])
def test_a_directory_of_another_store_or_cluster_is_refused(cluster: str, store: str) -> None:
    machine = Machine()
    DataDirectory.open(
        B, vfs=machine.disks[B], cluster_id=ClusterId(cluster), store_id=StoreId(store)
    ).close()
    with pytest.raises(WrongCluster):
        machine.open()
    machine.paths = [A]
    machine.open()


def test_a_directory_that_is_configured_twice_is_refused() -> None:
    machine = Machine()
    machine.paths = [A, B, "/b/../a"]
    with pytest.raises(InvalidArgument) as refused:
        machine.open()
    assert refused.value.metadata["field"] == "data_directories"
    machine.disks[B] = machine.disks["/other"] = machine.disks[A]
    machine.paths = [A, B]
    machine.open()


@pytest.mark.parametrize("where", ["IDENTITY", "segments"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV, errno.EROFS])
def test_a_disk_that_does_not_answer_is_left_out_and_shown(where: str, number: int) -> None:
    machine = Machine()
    first = machine.incarnations()
    machine.disks[B].error, machine.disks[B].where = number, where

    def look(parts: StoreParts) -> None:
        assert list(map(int, parts.host.identity.incarnations)) == first[:1]
        good, bad = parts.host.directories.infos()
        assert (good.path, good.failed) == (A, "")
        assert bad.path == B
        assert "no answer" in bad.failed
        # The incarnation is known where the identity can be read. Then HAKeeper need not wait for
        # the store timeout.
        assert bad.incarnation == (0 if where == "IDENTITY" else first[1])

    machine.open(look)
    machine.disks[B].error = 0
    assert machine.incarnations() == first
    for disk in machine.disks.values():
        disk.error, disk.where = number, where
    with pytest.raises((OSError, InvalidArgument)):
        machine.open()


def test_the_index_engine_of_one_disk_that_fails_costs_that_disk() -> None:
    machine = Machine()
    machine.open()

    def broken(path: str) -> None:
        raise KvError("broken")

    machine.disks[A].kv.open = broken  # type: ignore[method-assign,assignment]

    def look(parts: StoreParts) -> None:
        assert [one.data.path for one in parts.directories] == [B]

    machine.open(look)


def test_missing_rights_are_a_mistake_to_be_told_not_a_lost_disk() -> None:
    machine = Machine()
    machine.open()
    machine.disks[B].error, machine.disks[B].where = errno.EACCES, "IDENTITY"
    with pytest.raises(InvalidArgument):
        machine.open()


def test_each_directory_is_read_at_the_rate_of_the_configuration() -> None:
    """The scrub and the comparison share that rate."""
    machine = Machine()
    first = machine.incarnations()

    def look(parts: StoreParts) -> None:
        passes = parts.scrub_passes()
        assert list(map(int, passes)) == first
        assert {one.rate for one in passes.values()} == {1 << 19}
        assert {one.budget.bytes_per_s for one in parts.host.directories} == {1 << 19}

    machine.open(look)


def test_what_was_all_of_a_replica_is_told_when_it_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Header and directory of its only group are damaged, and the index is lost."""
    machine = Machine()
    machine.paths = [A]

    def fill(parts: StoreParts) -> None:
        logdb = parts.directories[0].logdb
        logdb.commit([update(1, 1, entries(1, 3), hard=(1, 1, 0), bootstrap=True)])
        logdb.commit([update(2, 2, entries(1, 3), hard=(1, 2, 0), bootstrap=True)])
        assert set(parts.integrity_counts().values()) == {0}
        assert parts.unattributed_loss == []

    machine.open(fill)
    assert "damaged" not in caplog.text
    disk = machine.disks[A]
    disk.kv = MemoryKvEngine()
    path = f"{A}/segments/{disk.listdir(f'{A}/segments')[0]}"
    for offset in (20, 100):
        disk.flip(path, SEGMENT_HEADER_BYTES + offset, 1)

    def look(parts: StoreParts) -> None:
        assert parts.integrity_counts()["recovery_damages"] == 1
        assert parts.integrity_counts()["recovery_unattributed"] == 1
        assert parts.unattributed_loss == list(parts.host.identity.incarnations)
        logdb = parts.directories[0].logdb
        assert logdb.replicas() == [(ShardId(2), ReplicaId(2))]
        assert "unreadable" in logdb.log(ShardId(2), ReplicaId(2)).faulty

    machine.open(look)
    assert "data directory /a has 1 damaged places, 1 of an unknown replica" in caplog.text
    assert "the derived index of data directory /a is made anew" in caplog.text

    def look_again(parts: StoreParts) -> None:
        """The index covers the damage now, so this start does not meet it."""
        assert parts.integrity_counts()["recovery_damages"] == 0
        assert parts.unattributed_loss == list(parts.host.identity.incarnations)

    machine.open(look_again)
