"""One suite for every Vfs: PosixVfs and MemoryVfs keep the same contract."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from logservice.logdb.memory_vfs import MemoryVfs
from logservice.logdb.posix_vfs import PosixVfs
from logservice.logdb.vfs import Vfs, read_file, write_file


@pytest.fixture(params=["memory", "posix"])
def vfs(request: pytest.FixtureRequest) -> Vfs:
    return MemoryVfs() if request.param == "memory" else PosixVfs()


@pytest.fixture
def root(vfs: Vfs, tmp_path: Path) -> str:
    path = str(tmp_path / "deep" / "er")
    vfs.make_directory(path)
    return path


def test_bytes_are_read_back_where_they_were_written(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.pwritev(handle, [b"abc", memoryview(b"defg"), b""], 5)
    assert vfs.size(handle) == 12
    assert vfs.pread(handle, 100, 0) == b"\0" * 5 + b"abcdefg"
    assert vfs.pread(handle, 3, 6) == b"bcd"
    assert vfs.pread(handle, 3, 12) == b""
    vfs.pwritev(handle, [b"XY"], 6)
    assert vfs.pread(handle, 4, 5) == b"aXYd"
    vfs.fdatasync(handle)
    vfs.close(handle)
    assert read_file(vfs, root + "/f") == b"\0" * 5 + b"aXYdefg"


def test_more_buffers_than_one_call_takes(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    buffers = [b"%05d" % number for number in range(3000)]
    vfs.pwritev(handle, buffers, 0)
    assert vfs.pread(handle, 15_000, 0) == b"".join(buffers)


def test_preallocated_space_reads_as_zeros_and_keeps_content(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.pwritev(handle, [b"abc"], 0)
    vfs.preallocate(handle, 4096)
    assert vfs.size(handle) == 4096
    assert vfs.pread(handle, 5, 0) == b"abc\0\0"
    vfs.preallocate(handle, 100)
    assert vfs.size(handle) == 4096
    vfs.truncate(handle, 2)
    assert vfs.size(handle) == 2


def test_create_needs_a_free_name_and_open_an_existing_file(vfs: Vfs, root: str) -> None:
    vfs.close(vfs.create(root + "/f"))
    with pytest.raises(FileExistsError):
        vfs.create(root + "/f")
    with pytest.raises(FileNotFoundError):
        vfs.open_read(root + "/g")
    with pytest.raises(FileNotFoundError):
        vfs.open_write(root + "/g")
    with pytest.raises(FileNotFoundError):
        vfs.create(root + "/no/g")


def test_a_closed_handle_is_refused(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.close(handle)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        vfs.pread(handle, 1, 0)


def test_rename_replaces_and_keeps_the_inode(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    inode = vfs.inode(handle)
    other = vfs.create(root + "/g")
    assert vfs.inode(other) != inode
    vfs.rename(root + "/f", root + "/g")
    assert not vfs.exists(root + "/f")
    moved = vfs.open_read(root + "/g")
    assert vfs.inode(moved) == inode
    with pytest.raises(FileNotFoundError):
        vfs.rename(root + "/f", root + "/h")


def test_directories_are_listed_renamed_and_removed(vfs: Vfs, root: str) -> None:
    vfs.make_directory(root + "/d")
    vfs.make_directory(root + "/d")
    vfs.close(vfs.create(root + "/d/b"))
    vfs.close(vfs.create(root + "/d/a"))
    assert vfs.listdir(root) == ["d"]
    assert vfs.listdir(root + "/d") == ["a", "b"]
    vfs.fsync_directory(root)
    vfs.rename(root + "/d", root + "/e")
    assert vfs.listdir(root + "/e") == ["a", "b"]
    assert not vfs.exists(root + "/d")
    vfs.remove_tree(root + "/e")
    vfs.remove_tree(root + "/e")
    assert vfs.listdir(root) == []
    with pytest.raises(FileNotFoundError):
        vfs.listdir(root + "/e")


def test_unlink_leaves_open_handles_usable(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.pwritev(handle, [b"abc"], 0)
    vfs.unlink(root + "/f")
    assert not vfs.exists(root + "/f")
    assert vfs.pread(handle, 3, 0) == b"abc"
    with pytest.raises(FileNotFoundError):
        vfs.unlink(root + "/f")


def test_a_lock_has_one_holder(vfs: Vfs, root: str) -> None:
    held = vfs.lock(root + "/L")
    with pytest.raises(BlockingIOError):
        vfs.lock(root + "/L")
    vfs.close(held)
    vfs.close(vfs.lock(root + "/L"))


def test_write_file_replaces_whole_files(vfs: Vfs, root: str) -> None:
    write_file(vfs, root + "/f", b"one")
    write_file(vfs, root + "/f", b"two")
    assert read_file(vfs, root + "/f") == b"two"
    assert vfs.listdir(root) == ["f"]


def test_free_space_is_told(vfs: Vfs, root: str) -> None:
    assert vfs.free_bytes(root) > 0


def test_a_full_memory_disk_is_enospc() -> None:
    vfs = MemoryVfs(capacity_bytes=1000)
    handle = vfs.create("/f")
    vfs.preallocate(handle, 800)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        vfs.pwritev(handle, [b"x" * 350], 700)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        vfs.preallocate(handle, 2000)
    vfs.pwritev(handle, [b"x" * 100], 700)
    assert vfs.free_bytes("/") == 200


def test_short_writes_are_continued(root: str, vfs: Vfs, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(vfs, MemoryVfs):
        return  # has no short writes
    real, real_one = os.pwritev, os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(buffers)[:7]], at)
    )
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_one(fd, data[:3], at))
    handle = vfs.create(root + "/f")
    vfs.pwritev(handle, [b"hello ", b"short ", b"world"], 2)
    assert vfs.pread(handle, 100, 2) == b"hello short world"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: 0)
    with pytest.raises(OSError, match="no more bytes"):
        vfs.pwritev(handle, [b"hello ", b"short ", b"world"], 2)


def test_power_loss_drops_what_was_not_synced() -> None:
    vfs = MemoryVfs()
    vfs.make_directory("/d")
    vfs.fsync_directory("/")
    synced = vfs.create("/d/synced")
    vfs.pwritev(synced, [b"kept"], 0)
    vfs.fdatasync(synced)
    vfs.fsync_directory("/d")
    vfs.pwritev(synced, [b"lost"], 4)
    nameless = vfs.create("/d/nameless")
    vfs.pwritev(nameless, [b"data"], 0)
    vfs.fdatasync(nameless)
    vfs.crash()
    assert vfs.listdir("/d") == ["synced"]
    assert read_file(vfs, "/d/synced") == b"kept"
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        vfs.size(synced)


def test_power_loss_may_tear_writes_and_keep_names() -> None:
    vfs = MemoryVfs()
    handle = vfs.create("/f")
    vfs.pwritev(handle, [b"first"], 0)
    vfs.pwritev(handle, [b"second"], 5)
    vfs.crash(lambda path, number, size: 3 if number else 0, keep_names=True)
    assert read_file(vfs, "/f") == b"\0\0\0\0\0sec"


def test_an_unsynced_unlink_or_rename_is_undone_by_power_loss() -> None:
    vfs = MemoryVfs()
    write_file(vfs, "/f", b"old")
    vfs.unlink("/f")
    vfs.crash()
    assert read_file(vfs, "/f") == b"old"
    write_file(vfs, "/g", b"new")
    vfs.rename("/g", "/f")
    vfs.crash()
    assert read_file(vfs, "/f") == b"old"
    vfs.rename("/g", "/f")
    vfs.fsync_directory("/")
    vfs.crash()
    assert read_file(vfs, "/f") == b"new"


def test_a_killed_process_loses_handles_and_locks_only() -> None:
    vfs = MemoryVfs()
    handle = vfs.lock("/L")
    vfs.pwritev(handle, [b"pid"], 0)
    vfs.kill()
    assert read_file(vfs, "/L") == b"pid"
    vfs.lock("/L")
