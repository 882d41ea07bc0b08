"""The simulated disk, and how log storage recovers on it."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable

import pytest
from logservice_wire.errors import Halted

from logservice.ids import ClusterId, Index, ReplicaId, ShardId, StoreId
from logservice.logdb.format.update import Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.sim.disk import PowerCut, SimDisk
from tests.logdb.helpers import entry

OPTIONS = LogDbOptions(segment_bytes=4096, ballast_bytes=0, entry_cache_bytes=0)
KEY = (ShardId(1), ReplicaId(1))


def disk() -> SimDisk:
    return SimDisk(random.Random(1), lambda: None)


def open_logdb(here: SimDisk) -> LogDb:
    here.up()
    identity = DataDirectory.open(
        "/data", vfs=here, cluster_id=ClusterId("c"), store_id=StoreId("s")
    )
    return LogDb.open("/data", identity=identity, vfs=here, kv=here.kv, options=OPTIONS)


def test_what_was_not_synced_goes_with_the_power() -> None:
    here = disk()
    handle = here.create("/a")
    here.fsync_directory("/")
    here.pwritev(handle, [b"one"], 0)
    here.fdatasync(handle)
    assert here.durable(handle)
    here.pwritev(handle, [b"two"], 3)
    assert not here.durable(handle)
    here.lose_power(keep_names=False, survive=0.0)
    assert here.pread(here.open_read("/a"), 10, 0) == b"one"


def test_a_cut_ends_the_process_inside_the_call() -> None:
    cuts: list[int] = []
    here = SimDisk(random.Random(1), lambda: cuts.append(1))
    handle = here.create("/a")
    here.cut_after(1)
    here.pwritev(handle, [b"one"], 0)
    with pytest.raises(PowerCut):
        here.fdatasync(handle)
    with pytest.raises(PowerCut):
        here.create("/b")
    assert cuts == [1]


def test_a_call_of_a_dead_process_changes_nothing() -> None:
    """INV-SIM-DISK: a call that could change something does not return."""
    here = disk()
    here.make_directory("/d")
    handle = here.create("/d/file")
    here.pwritev(handle, [b"before"], 0)
    here.fdatasync(handle)
    here.fsync_directory("/d")
    before = here.image("/d/file")
    here.stop()
    calls: list[Callable[[], object]] = [
        lambda: here.create("/d/other"),
        lambda: here.pwritev(handle, [b"after!"], 0),
        lambda: here.sync_written(handle, 0, 6),
        lambda: here.fdatasync(handle),
        lambda: here.preallocate(handle, 100),
        lambda: here.truncate(handle, 1),
        lambda: here.rename("/d/file", "/d/moved"),
        lambda: here.fsync_directory("/d"),
        lambda: here.remove_tree("/d"),
        lambda: here.unlink("/d/file"),
        here.before_kv_write,
    ]
    for call in calls:
        with pytest.raises(PowerCut):
            call()
    assert (here.image("/d/file"), here.listdir("/d")) == (before, ["file"])


def durable_write(faults: Callable[[SimDisk], None], seed: int) -> tuple[bytes, bytes, int]:
    """Write b"new!!" over b"old..": the bytes in the cache, the bytes on the disk after a power
    cut, and how many more calls the disk answered.
    """
    here = SimDisk(random.Random(seed), lambda: None)
    handle = here.create("/a")
    here.write_durably(handle, [b"old.."], 0)
    here.fsync_directory("/")
    before = here.calls
    faults(here)
    with contextlib.suppress(OSError, PowerCut):
        here.write_durably(handle, [b"new", b"!!"], 0)
    cached, made = bytes(here._files["/a"].cached), here.calls - before
    here.lose_power(keep_names=False, survive=0.5)
    return cached, here.image("/a"), made


PREFIXES = {b"new!!"[:kept] + b"old.."[kept:] for kept in range(6)}


def test_power_is_cut_before_or_within_a_durable_write() -> None:
    """When power is cut within the write, any part of it may reach the disk."""
    assert durable_write(lambda here: here.cut_after(2), 1) == (b"new!!", b"new!!", 2)
    for calls in (0, 1):
        found = {durable_write(lambda here: here.cut_after(calls), s)[1] for s in range(200)}  # noqa: B023
        assert found == PREFIXES


def test_a_durable_write_fails_at_any_byte_or_at_its_sync() -> None:
    written = [durable_write(lambda here: here.fail(errno.EIO, 0), seed) for seed in range(200)]
    assert {cached for cached, _, _ in written} == PREFIXES
    assert {disk for _, disk, _ in written} == PREFIXES
    synced = {durable_write(lambda here: here.fail(errno.EIO, 1), seed) for seed in range(20)}
    assert synced == {(b"new!!", b"old..", 2)}, "the pages count as clean"


def test_what_a_failed_sync_left_in_the_cache_is_written_again_by_recovery() -> None:
    """Seed 28 found it: a group that verified only from the page cache was acked and then lost."""
    here = disk()
    db = open_logdb(here)
    db.commit([Update(*KEY, entries=(entry(1),))])
    group = db.begin([Update(*KEY, entries=(entry(2, lsn=2),))])
    here.fail(errno.EIO, 1)
    with pytest.raises(OSError, match="Input/output"):
        db.write(group)
    here.kill()
    again = open_logdb(here)
    recovered = again.log(*KEY).last_index()
    here.lose_power(keep_names=False, survive=0.0)
    assert open_logdb(here).log(*KEY).last_index() == recovered == 2
    assert not open_logdb_faulty(here)


def open_logdb_faulty(here: SimDisk) -> str:
    here.kill()
    return open_logdb(here).log(*KEY).faulty


def test_a_lost_directory_answers_nothing_and_its_neighbour_everything() -> None:
    here = SimDisk(random.Random(1), lambda: None)
    for path in ("/data", "/data-2"):
        here.make_directory(path)
        handle = here.create(f"{path}/file")
        here.pwritev(handle, [b"kept"], 0)
        here.fdatasync(handle)
    here.lose("/data")
    for call in (
        lambda: here.create("/data/other"),
        lambda: here.unlink("/data/file"),
        lambda: here.fsync_directory("/data"),
        lambda: here.pread(here.open_read("/data/file"), 4, 0),
    ):
        with pytest.raises(OSError, match="gone"):
            call()
    assert here.pread(here.open_read("/data-2/file"), 4, 0) == b"kept"
    here.heal()
    assert here.lost, "for good"


def test_an_unreadable_sector_is_met_once_and_makes_one_replica_faulty() -> None:
    here = disk()
    db = open_logdb(here)
    other = (ShardId(2), ReplicaId(1))
    for key in (KEY, other):
        db.commit([Update(*key, entries=tuple(entry(index, lsn=index) for index in (1, 2, 3)))])
    here.fail_read(1)
    assert len(db.log(*other).entries(Index(1), Index(4), 1 << 20)) == 3
    with pytest.raises(Halted, match="entries from 2 on"):
        db.log(*KEY).entries(Index(2), Index(3), 1 << 20)
    assert here.counts["fault unreadable sector met"] == 1
    assert db.log(*KEY).faulty
    assert len(db.log(*other).entries(Index(1), Index(4), 1 << 20)) == 3
    here.fail_read(0)
    here.forget_faults()
    assert len(db.log(*other).entries(Index(1), Index(4), 1 << 20)) == 3
