"""One suite for every Vfs: PosixVfs, with and without a file system that honours RWF_DSYNC,
MemoryVfs and the simulated disk keep the same contract.
"""

from __future__ import annotations

import builtins
import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from logservice.logdb.io import posix_vfs
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.sim.disk import SimDisk
from tests.tmpfs import mounted

Buffers = Sequence[bytes | memoryview]


@pytest.fixture(params=["memory", "simulated", "posix", "posix, distrusted"])
def vfs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Vfs:
    match request.param:
        case "memory":
            return MemoryVfs()
        case "simulated":
            return SimDisk(random.Random(1), lambda: None)
        case "posix, distrusted":
            monkeypatch.setattr(posix_vfs, "_file_system", lambda handle: b"overlay")
    return PosixVfs()


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


def test_a_durable_write_is_a_write(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.preallocate(handle, 64)
    vfs.write_durably(handle, [b"abc", memoryview(b"defg"), b""], 5)
    assert vfs.pread(handle, 100, 0) == b"\0" * 5 + b"abcdefg" + bytes(52)
    vfs.write_durably(handle, [b"XY"], 63)
    vfs.write_durably(handle, [], 90)
    vfs.write_durably(handle, [b""], 90)
    assert vfs.size(handle) == 65
    buffers = [b"%05d" % number for number in range(3000)]
    vfs.write_durably(handle, buffers, 2)
    assert vfs.pread(handle, 15_002, 0) == b"\0\0" + b"".join(buffers)
    vfs.close(handle)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        vfs.write_durably(handle, [b"x"], 0)


def test_what_is_not_needed_is_read_back_all_the_same(vfs: Vfs, root: str) -> None:
    handle = vfs.create(root + "/f")
    vfs.write_durably(handle, [b"a" * 10_000], 0)
    vfs.pwritev(handle, [b"b" * 10_000], 10_000)
    vfs.not_needed(handle, 30_000, 0)
    assert vfs.pread(handle, 30_000, 0) == b"a" * 10_000 + b"b" * 10_000
    vfs.close(handle)


def test_memory_forgets_whole_clean_pages_and_shows_what_the_disk_has() -> None:
    """As the kernel does: a page of which only a part is named stays, and so does a dirty one. The
    last page of a file is whole where the file ends.
    """
    vfs = MemoryVfs()
    handle = vfs.create("/f")
    vfs.write_durably(handle, [b"a" * 18_000], 0)
    pages = range(0, 18_000, 4096)

    def seen(offset: int, size: int) -> list[int]:
        """The pages that show the rot after the advice."""
        for page in pages:
            vfs.flip("/f", page, 3, in_cache=False)
        assert set(vfs.pread(handle, 18_000, 0)) == set(b"a")
        vfs.not_needed(handle, size, offset)
        found = [page // 4096 for page in pages if vfs.pread(handle, 1, page) == b"b"]
        for page in pages:
            vfs.flip("/f", page, 3, in_cache=page // 4096 in found)
        return found

    assert seen(0, 18_000) == [0, 1, 2, 3, 4]
    assert seen(1, 18_000) == [1, 2, 3, 4]
    assert seen(4096, 8191) == [1]
    assert seen(16_384, 1615) == []
    assert seen(16_384, 1616) == [4]
    assert seen(20_480, 4096) == []
    vfs.pwritev(handle, [b"a" * 2], 8191)
    assert seen(0, 20_480) == [0, 3, 4]
    vfs.fdatasync(handle)
    assert seen(0, 20_480) == [0, 1, 2, 3, 4]
    vfs.truncate(handle, 17_999)
    assert seen(0, 20_480) == []


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
        return  # this file system has no short writes
    real, real_one = os.pwritev, os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda fd, buffers, at, *flag: real(fd, [b"".join(buffers)[:7]], at, *flag)
    )
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_one(fd, data[:3], at))
    handle = vfs.create(root + "/f")
    vfs.pwritev(handle, [b"hello ", b"short ", b"world"], 2)
    assert vfs.pread(handle, 100, 2) == b"hello short world"
    vfs.write_durably(handle, [b"Hello ", b"Short ", b"World"], 2)
    assert vfs.pread(handle, 100, 2) == b"Hello Short World"
    for write in (vfs.pwritev, vfs.write_durably):
        for name in ("pwrite", "pwritev"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, lambda fd, data, at, *flag: 0)
                with pytest.raises(OSError, match="no more bytes"):
                    write(handle, [b"hello ", b"short ", b"world"], 2)


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
    """INV-VFS-2."""
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


def test_a_durable_write_survives_power_loss_and_nothing_beside_it_must() -> None:
    """INV-VFS-1."""
    vfs = MemoryVfs()
    handle = vfs.create("/f")
    vfs.fsync_directory("/")
    vfs.pwritev(handle, [b"early"], 0)
    vfs.preallocate(handle, 100)
    vfs.write_durably(handle, [b"kept"], 50)
    vfs.pwritev(handle, [b"late"], 52)
    vfs.crash()
    assert read_file(vfs, "/f") == bytes(50) + b"kept" + bytes(46)


def test_what_waits_beside_a_durable_write_is_what_the_cache_has() -> None:
    """Overwritten or cut-off bytes do not come back when their page is written."""
    vfs = MemoryVfs()
    handle = vfs.create("/f")
    vfs.fsync_directory("/")
    vfs.pwritev(handle, [b"0123456789"], 0)
    vfs.write_durably(handle, [b"AB"], 4)
    vfs.pwritev(handle, [b"cut off"], 20)
    vfs.truncate(handle, 22)
    vfs.write_durably(handle, [b"Z"], 9)
    vfs.crash(lambda path, number, size: size)
    assert read_file(vfs, "/f") == b"0123AB678Z" + bytes(10) + b"cu"


# --- how a real durable write is made -------------------------------------------------------------


class Calls:
    """The calls of PosixVfs that write and sync; `answers` take the place of writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.answers: list[Callable[[int, Buffers, int], int]] = []
        self._pwritev, fdatasync, pwrite = os.pwritev, os.fdatasync, os.pwrite

        def synced(handle: int) -> None:
            self.made.append("fdatasync")
            fdatasync(handle)

        def one(handle: int, data: bytes, offset: int) -> int:
            self.made.append("pwrite")
            return pwrite(handle, data, offset)

        monkeypatch.setattr(os, "pwritev", self._written)
        monkeypatch.setattr(os, "pwrite", one)
        monkeypatch.setattr(os, "fdatasync", synced)

    def _written(self, handle: int, buffers: Buffers, offset: int, flags: int = 0) -> int:
        self.made.append(f"pwritev {flags and flags == os.RWF_DSYNC and 'dsync'}")
        if self.answers:
            return self.answers.pop(0)(handle, buffers, offset)
        return self._pwritev(handle, buffers, offset, flags)

    def first(self, size: int) -> Callable[[int, Buffers, int], int]:
        """An answer that says that only so many bytes were written."""
        return lambda handle, buffers, offset: self._pwritev(
            handle, [b"".join(buffers)[:size]], offset
        )

    def take(self) -> list[str]:
        made, self.made = self.made, []
        return made


def failing(number: int) -> Callable[[int, Buffers, int], int]:
    def answer(handle: int, buffers: Buffers, offset: int) -> int:
        raise OSError(number, os.strerror(number))

    return answer


ONE_CALL, PLAIN = ["pwritev dsync"], ["pwritev 0", "fdatasync"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setattr(posix_vfs, "_file_system", lambda handle: b"ext4")
    return Calls(monkeypatch)


@pytest.fixture
def real(tmp_path: Path) -> tuple[PosixVfs, int]:
    vfs = PosixVfs()
    return vfs, vfs.create(str(tmp_path / "f"))


def test_one_call_writes_and_syncs(calls: Calls, real: tuple[PosixVfs, int]) -> None:
    vfs, handle = real
    vfs.write_durably(handle, [b"a", b"b"], 0)
    vfs.write_durably(handle, [b"c"] * 1024, 0)
    assert calls.take() == ONE_CALL * 2
    vfs.write_durably(handle, [b"d"] * 1025, 0)
    assert calls.take() == ONE_CALL
    assert vfs.pread(handle, 2000, 0) == b"d" * 1025
    vfs.write_durably(handle, [b""], 0)
    assert calls.take() == ["fdatasync"], "the size may have to be made durable"


def test_behind_a_short_write_one_sync_covers_all(calls: Calls, real: tuple[PosixVfs, int]) -> None:
    """INV-VFS-1."""
    vfs, handle = real
    calls.answers = [calls.first(4)]
    vfs.write_durably(handle, [b"hello ", b"world"], 3)
    assert calls.take() == ["pwritev dsync", "pwrite", "fdatasync"]
    assert vfs.pread(handle, 20, 3) == b"hello world"
    vfs.write_durably(handle, [b"again"], 3)
    assert calls.take() == ONE_CALL


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT])
@pytest.mark.parametrize("written", [0, 4])
def test_a_durable_write_that_fails_is_not_tried_again(
    calls: Calls, real: tuple[PosixVfs, int], number: int, written: int
) -> None:
    """INV-VFS-3."""
    vfs, handle = real

    def answer(handle: int, buffers: Buffers, offset: int) -> int:
        if written:
            calls.first(written)(handle, buffers, offset)
        raise OSError(number, os.strerror(number))

    calls.answers = [answer]
    with pytest.raises(OSError, match=os.strerror(number)):
        vfs.write_durably(handle, [b"hello"], 0)
    assert calls.take() == ONE_CALL
    assert vfs.size(handle) == written


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_a_kernel_that_refuses_the_flag_is_not_asked_again(
    calls: Calls, real: tuple[PosixVfs, int], tmp_path: Path, number: int
) -> None:
    vfs, handle = real
    calls.answers = [failing(number)]
    vfs.write_durably(handle, [b"hello"], 0)
    assert calls.take() == [*ONE_CALL, *PLAIN]
    other = vfs.create(str(tmp_path / "other"))
    for each in (handle, other):
        vfs.write_durably(each, [b"hello"], 0)
        assert calls.take() == PLAIN


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.EPERM])
def test_what_was_taken_once_is_not_refused_later(
    calls: Calls, real: tuple[PosixVfs, int], number: int
) -> None:
    """In that case the disk reports the error, and it is unknown what it had to sync."""
    vfs, handle = real
    vfs.write_durably(handle, [b"a"], 0)
    calls.answers = [failing(number)]
    with pytest.raises(OSError, match=os.strerror(number)):
        vfs.write_durably(handle, [b"b"], 0)
    assert calls.take() == ONE_CALL * 2


@pytest.mark.parametrize(
    "name", [b"overlay", b"fuse", b"fuse.sshfs", b"9p", b"nfs4", b"cifs", b"virtiofs", b"zfs", b""]
)
def test_other_file_systems_are_synced_plainly(
    calls: Calls, real: tuple[PosixVfs, int], monkeypatch: pytest.MonkeyPatch, name: bytes
) -> None:
    vfs, handle = real
    monkeypatch.setattr(posix_vfs, "_file_system", lambda handle: name)
    vfs.write_durably(handle, [b"a"] * 1025, 0)
    assert calls.take() == PLAIN
    calls.answers = [calls.first(10)]
    vfs.write_durably(handle, [b"b"] * 20, 0)
    assert calls.take() == ["pwritev 0", "pwrite", "fdatasync"]


def test_a_platform_without_the_flag(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix_vfs, "_DSYNC", 0)
    vfs = PosixVfs()
    vfs.write_durably(vfs.create(str(tmp_path / "f")), [b"a"], 0)
    assert calls.take() == PLAIN


def test_each_file_is_asked_for_once_and_its_number_again_after_it(
    calls: Calls, real: tuple[PosixVfs, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vfs, handle = real
    asked: list[int] = []

    def file_system(handle: int) -> bytes:
        asked.append(handle)
        return b"ext4" if len(asked) == 1 else b"overlay"

    monkeypatch.setattr(posix_vfs, "_file_system", file_system)
    for _ in range(3):
        vfs.write_durably(handle, [b"a"], 0)
    assert (asked, calls.take()) == ([handle], ONE_CALL * 3)
    vfs.close(handle)
    assert vfs.create(str(tmp_path / "other")) == handle
    vfs.write_durably(handle, [b"a"], 0)
    assert (asked, calls.take()) == ([handle, handle], PLAIN)


def test_the_kernel_says_which_file_system_a_file_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a mount may look like another file system in the kernel's table."""
    small = tmp_path / "a - ext4 b"
    vfs = PosixVfs()
    with mounted([small], 1 << 20):
        inside, outside = vfs.create(str(small / "f")), vfs.create(str(tmp_path / "f"))
        assert posix_vfs._file_system(inside) == b"tmpfs"
        assert posix_vfs._file_system(outside) == type_of(tmp_path)
        vfs.close(inside)
    assert posix_vfs._file_system(inside) == b"", "it is not open"
    real = builtins.open

    def no_proc(path: str, *arguments: object) -> object:
        if path.startswith("/proc"):
            raise FileNotFoundError(path)
        return real(path, *arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(builtins, "open", no_proc)
    assert posix_vfs._file_system(outside) == b""


def type_of(path: Path) -> bytes:
    """The type of the longest mount point, which is right for an ordinary directory. In a chroot
    whose root is no mount point the kernel shows none; the product sees none there, either.
    """
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if path.is_relative_to(where):
            found.append((len(where), kind))
    return max(found, default=(0, ""))[1].encode()
