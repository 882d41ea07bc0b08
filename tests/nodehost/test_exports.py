"""Exported snapshots: the store knows which are on disk, and each is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable
from typing import cast

import pytest

from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.invariants import InvariantViolation
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import Vfs, write_file
from logservice.membership import Membership
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.snapshot import Snapshot
from tests.nodehost.fake_meter import FakeMeter

SHARD, REPLICA = ShardId(1), ReplicaId(11)
KEY = (SHARD, REPLICA)
FOLDER = "/exports/shard-1/replica-11"


def snapshot(index: int, lsn: int = 0) -> Snapshot:
    """A snapshot at `index` after record `lsn` (by default as many records as entries)."""
    return Snapshot(Index(index), Term(1), Lsn((lsn or index) + 1), Membership(), b"state" * index)


def opened(vfs: MemoryVfs, meter: FakeMeter | None = None, count_max: int = 4) -> ExportedSnapshots:
    return ExportedSnapshots(vfs, "/exports", meter or FakeMeter(), count_max=count_max)


@pytest.fixture
def vfs() -> MemoryVfs:
    return MemoryVfs()


def files(vfs: MemoryVfs) -> list[int]:
    return [int(name[9:25], 16) for name in vfs.listdir(FOLDER)]


def test_what_was_added_is_found_again_after_a_power_cut(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (5, 9, 200):
        exports.add(*KEY, snapshot(index))
    exports.add(ShardId(2), ReplicaId(7), snapshot(3))
    vfs.crash()
    again = opened(vfs)
    assert again.replicas() == [KEY, (ShardId(2), ReplicaId(7))]
    assert (again.count(*KEY), again.is_read(*KEY)) == (3, False)
    assert again.newest(*KEY) == snapshot(200)
    assert (again.oldest_index(*KEY), again.newest_index(*KEY)) == (5, 200)
    assert again.is_read(*KEY)
    assert vfs.listdir(FOLDER)[0] == "snapshot-0000000000000005.snap"


def test_the_nearest_exports_on_either_side_of_an_index(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (10, 20, 30):
        exports.add(*KEY, snapshot(index, index * 10))
    asked = [Index(index) for index in (9, 10, 11, 30, 31)]
    assert [exports.largest_at_or_below(*KEY, index) for index in asked] == [None, 10, 10, 30, 30]
    assert [exports.next_above(*KEY, index) for index in asked] == [10, 20, 20, None, None]


def test_nothing_is_known_of_a_replica_that_never_exported(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    assert exports.newest(*KEY) is None
    assert exports.largest_at_or_below(*KEY, Lsn(9)) is None
    assert (exports.count(*KEY), exports.newest_index(*KEY)) == (0, 0)
    assert exports.oldest_index(*KEY) > 2**63
    exports.drop_through(*KEY, Index(9))
    exports.remove_replica(*KEY)
    assert exports.replicas() == []


def test_an_older_or_equal_snapshot_is_not_added(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    exports.add(*KEY, snapshot(9))
    exports.add(*KEY, snapshot(9, 4))
    exports.add(*KEY, snapshot(8))
    assert files(vfs) == [9]
    assert exports.newest(*KEY) == snapshot(9)


def test_drop_through_removes_what_the_log_is_compacted_behind(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (5, 9, 12):
        exports.add(*KEY, snapshot(index))
    exports.drop_through(*KEY, Index(9))
    assert files(vfs) == [12]
    vfs.crash()
    assert opened(vfs).count(*KEY) == 1


def test_drop_from_removes_what_was_made_of_wrong_entries(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (5, 9, 12):
        exports.add(*KEY, snapshot(index))
    # A file that cannot be read now may be readable after a restart.
    unreadable = f"{FOLDER}/snapshot-{11:016x}.snap"
    write_file(vfs, unreadable, b"no snapshot")
    exports = opened(vfs)
    exports.drop_from(*KEY, Index(9))
    exports.drop_from(ShardId(2), ReplicaId(7), Index(1))
    assert files(vfs) == [5]
    assert exports.newest(*KEY) == snapshot(5)
    vfs.crash()
    assert opened(vfs).newest(*KEY) == snapshot(5)


def test_drop_from_that_failed_is_tried_again(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (5, 9, 12):
        exports.add(*KEY, snapshot(index))
    unlink = vfs.unlink

    def fails(path: str) -> None:
        if path.endswith("c.snap"):
            raise OSError(errno.EIO, "no answer")
        unlink(path)

    vfs.unlink = fails  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no answer"):
        exports.drop_from(*KEY, Index(6))
    vfs.unlink = unlink  # type: ignore[method-assign]
    exports.drop_from(*KEY, Index(6))
    assert files(vfs) == [5]
    assert exports.count(*KEY) == 1


def test_inv_export_2_over_the_quota_the_smallest_gap_in_bytes_goes(vfs: MemoryVfs) -> None:
    """Reaches EXPORTED_SNAPSHOTS_MAX, which is made small."""
    meter = FakeMeter(dict.fromkeys(range(1, 12), 1000))
    exports = opened(vfs, meter)
    for index in (1, 4, 10, 20):
        exports.add(*KEY, snapshot(index))
    exports.add(*KEY, snapshot(90))
    # Without 4 there are 9000 bytes between 1 and 10, without 10 the gap is 7009, without 20 it is
    # 1079, although in entries that is the widest gap.
    assert files(vfs) == [1, 4, 10, 90]
    exports.add(*KEY, snapshot(91))
    assert files(vfs) == [1, 4, 10, 91]


def test_inv_export_2_never_the_oldest_nor_the_newest(vfs: MemoryVfs) -> None:
    exports = opened(vfs, count_max=2)
    for index in range(1, 50):
        exports.add(*KEY, snapshot(index))
        assert files(vfs)[0] == 1
        assert exports.newest_index(*KEY) == index
    assert files(vfs) == [1, 49]
    with pytest.raises(InvariantViolation, match="INV-EXPORT-2"):
        opened(vfs, count_max=1)


def test_thinning_keeps_exports_spread_over_the_log(vfs: MemoryVfs) -> None:
    exports = opened(vfs, count_max=6)
    for index in range(1, 200):
        exports.add(*KEY, snapshot(index))
    kept = files(vfs)
    assert len(kept) == 6
    assert max(b - a for a, b in itertools.pairwise(kept)) < 130


def test_inv_export_1_damage_is_counted_and_removed_only_after_the_next_export(
    vfs: MemoryVfs,
) -> None:
    """INV-EXPORT-1."""
    exports = opened(vfs)
    for index in (5, 9, 12):
        exports.add(*KEY, snapshot(index))
    vfs.flip(f"{FOLDER}/snapshot-{12:016x}.snap", 60, 1)
    again = opened(vfs)
    assert again.newest(*KEY) == snapshot(9)
    assert again.largest_at_or_below(*KEY, Lsn(100)) == 9
    assert again.damaged_count == 2  # it was read twice: at the start, and when all were read
    assert files(vfs) == [5, 9, 12]
    again.add(*KEY, snapshot(12))
    assert (files(vfs), again.newest(*KEY)) == ([5, 9, 12], snapshot(12))


def test_inv_export_1_an_export_that_rots_later_is_forgotten(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in (5, 9):
        exports.add(*KEY, snapshot(index))
    vfs.flip(f"{FOLDER}/snapshot-{9:016x}.snap", 70, 4)
    assert exports.load(*KEY, Index(9)) is None
    assert (exports.damaged_count, exports.count(*KEY)) == (1, 1)
    assert exports.newest(*KEY) == snapshot(5)
    vfs.flip(f"{FOLDER}/snapshot-{5:016x}.snap", 70, 4)
    assert exports.newest(*KEY) is None


def test_inv_export_1_strange_names_and_left_over_files_are_ignored_then_swept(
    vfs: MemoryVfs,
) -> None:
    """INV-EXPORT-1."""
    opened(vfs).add(*KEY, snapshot(5))
    good = snapshot(6).encode()
    for name in ("snapshot-0000000000000007.snap", "snapshot-6.snap", "x.tmp", "snapshot-zz.snap"):
        write_file(vfs, f"{FOLDER}/{name}", good)
    for folder in ("/exports/shard-x/replica-1", "/exports/shard-1/other", "/exports/shard-01"):
        vfs.make_directory(folder)
    exports = opened(vfs)
    assert exports.replicas() == [KEY]
    assert exports.newest(*KEY) == snapshot(5)
    exports.add(*KEY, snapshot(8))
    assert files(vfs) == [5, 8]


def test_a_full_disk_leaves_what_was_there(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    exports.add(*KEY, snapshot(5))
    vfs.capacity_bytes = 200
    with pytest.raises(OSError, match="No space"):
        exports.add(*KEY, snapshot(90))
    assert (exports.newest_index(*KEY), exports.newest(*KEY)) == (5, snapshot(5))
    vfs.capacity_bytes = 1 << 30
    exports.add(*KEY, snapshot(90))
    assert files(vfs) == [5, 90]


def test_a_removed_replica_leaves_nothing(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    exports.add(*KEY, snapshot(5))
    exports.add(SHARD, ReplicaId(12), snapshot(6))
    exports.remove_replica(*KEY)
    vfs.crash()
    assert opened(vfs).replicas() == [(SHARD, ReplicaId(12))]


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_power_cut_in_the_middle_of_an_export_leaves_only_whole_files(
    vfs: MemoryVfs, cut: int
) -> None:
    exports = opened(vfs)
    exports.add(*KEY, snapshot(5))
    handle = vfs.create(f"{FOLDER}/snapshot-0000000000000006.snap.tmp")
    vfs.pwritev(handle, [snapshot(6).encode()], 0)
    vfs.rename(
        f"{FOLDER}/snapshot-0000000000000006.snap.tmp", f"{FOLDER}/snapshot-0000000000000006.snap"
    )
    # The rename reached the disk, and only a part of the bytes did. This is what an export without
    # fdatasync risks.
    vfs.crash(lambda *_: cut, keep_names=True)
    assert opened(vfs).newest(*KEY) == snapshot(5)


class FailingVfs:
    """Passes calls on. The call numbered `fail_at` raises, and so do all later ones if
    `stays_broken`.
    """

    def __init__(self, vfs: MemoryVfs, fail_at: int, *, stays_broken: bool) -> None:
        self._vfs = vfs
        self._fail_at = fail_at
        self._stays_broken = stays_broken
        self.calls = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        method: Callable[..., object] = getattr(self._vfs, name)

        def call(*arguments: object) -> object:
            self.calls += 1
            if self.calls == self._fail_at or (self._stays_broken and self.calls > self._fail_at):
                raise OSError(errno.EIO, name)
            return method(*arguments)

        return call


@pytest.mark.parametrize("stays_broken", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_inv_export_1_whichever_file_call_fails_only_whole_exports_remain(
    stays_broken: bool, power_cut: bool
) -> None:
    """Every call of a series of exports, drops and a removal fails once; then the store
    restarts.
    """
    finished = False
    for fail_at in range(1, 200):
        vfs = MemoryVfs()
        failing = FailingVfs(vfs, fail_at, stays_broken=stays_broken)
        done = 0
        with contextlib.suppress(OSError):
            exports = ExportedSnapshots(cast(Vfs, failing), "/exports", FakeMeter(), count_max=3)
            for index in (2, 5, 7, 9, 14):
                exports.add(*KEY, snapshot(index))
                done = index
            exports.drop_through(*KEY, Index(5))
            finished = failing.calls < fail_at
        vfs.crash() if power_cut else vfs.kill()
        exports = opened(vfs, count_max=3)
        newest = exports.newest(*KEY)
        assert done == 0 or (newest is not None and newest.index >= done)
        assert newest is None or newest == snapshot(newest.index)
        exports.add(*KEY, snapshot(20))
        assert exports.newest(*KEY) == snapshot(20)
        assert len(vfs.listdir(FOLDER)) == exports.count(*KEY) <= 4
        assert exports.damaged_count == 0
        if finished:
            break
    assert finished
    assert fail_at > 40


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTEMPTY])
def test_a_removal_beside_a_visit_of_the_worker_leaves_the_rest_to_its_next_visit(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """`make life` showed it: the worker removed an export while a deleted log's directory was being
    removed in another thread, and the store stopped at once.
    """
    exports = opened(vfs)
    exports.add(*KEY, snapshot(5))

    def changed_meanwhile(path: str) -> None:
        raise OSError(code, "changed meanwhile", path)

    with monkeypatch.context() as patched:
        patched.setattr(vfs, "remove_tree", changed_meanwhile)
        exports.remove_replica(*KEY)
    assert exports.replicas() == [KEY], "the worker finds it among the leftovers"
    assert exports.newest(*KEY) is None, "and nothing starts from it"
    exports.remove_replica(*KEY)
    assert exports.replicas() == []
    assert not vfs.exists(FOLDER)


def test_a_disk_that_fails_while_exports_are_removed_is_no_such_thing(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    exports = opened(vfs)
    exports.add(*KEY, snapshot(5))

    def broken(path: str) -> None:
        raise OSError(errno.EIO, "broken", path)

    monkeypatch.setattr(vfs, "remove_tree", broken)
    with pytest.raises(OSError, match="broken"):
        exports.remove_replica(*KEY)


def test_the_bytes_of_the_exports_are_those_of_their_files(vfs: MemoryVfs) -> None:
    exports = opened(vfs)
    for index in range(10, 90, 10):
        exports.add(*KEY, snapshot(index))
    sizes = {index: len(snapshot(index).encode()) for index in files(vfs)}
    assert len(sizes) == 4
    assert exports.known_bytes(*KEY) == sum(sizes.values())
    exports.load(*KEY, Index(min(sizes)))
    exports.drop_through(*KEY, Index(sorted(sizes)[1]))
    assert exports.known_bytes(*KEY) == sum(sizes[index] for index in files(vfs))
    again = opened(vfs)
    assert (again.known_bytes(*KEY), again.newest_known_index(*KEY)) == (0, 80)
    again.read(*KEY)
    assert again.known_bytes(*KEY) == exports.known_bytes(*KEY)
    again.remove_replica(*KEY)
    assert (again.known_bytes(*KEY), again.newest_known_index(*KEY)) == (0, 0)
