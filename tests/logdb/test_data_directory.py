"""Data directories: to whom they belong, and every way of starting on the wrong one."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from logservice_wire.errors import InvalidArgument, WrongCluster

from logservice.ids import ClusterId, StoreId
from logservice.invariants import InvariantViolation
from logservice.logdb.io import data_directory
from logservice.logdb.io.data_directory import DataDirectory, Identity, read_identity
from logservice.logdb.io.memory_vfs import MemoryVfs, SurvivingBytes
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.versions import KNOWN, ONLY_FIRST, VersionRange


def open_directory(
    path: str,
    vfs: Vfs | None = None,
    cluster: str = "prod",
    store: str = "s1",
    known: VersionRange = KNOWN,
) -> DataDirectory:
    return DataDirectory.open(
        path,
        vfs=vfs or PosixVfs(),
        cluster_id=ClusterId(cluster),
        store_id=StoreId(store),
        known=known,
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    open_directory(path).close()
    return path


def test_a_new_directory_gets_an_incarnation_that_stays(tmp_path: Path) -> None:
    first = open_directory(str(tmp_path / "a"))
    other = open_directory(str(tmp_path / "b"))
    assert 0 < first.incarnation < 1 << 63
    assert first.incarnation != other.incarnation
    assert (first.cluster_id, first.store_id) == ("prod", "s1")
    first.close()
    first.close()
    again = open_directory(str(tmp_path / "a"))
    assert again.incarnation == first.incarnation
    assert read_identity(PosixVfs(), str(tmp_path / "a")) == again.identity
    assert Identity.decode(again.identity.encode()) == again.identity


def test_two_stores_never_share_a_directory(path: str) -> None:
    """INV-DIR-1."""
    held = open_directory(path)
    with pytest.raises(InvalidArgument, match="another process uses"):
        open_directory(path)
    held.close()
    open_directory(path).close()


def test_the_lock_holds_between_processes_and_ends_with_one(path: str) -> None:
    program = (
        "import sys; from tests.logdb.test_data_directory import open_directory;"
        "open_directory(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InvalidArgument, match="another process uses"):
            open_directory(path)
    finally:
        process.kill()
        process.communicate()
    open_directory(path).close()


def test_another_clusters_or_stores_directory_is_refused(path: str) -> None:
    """INV-DIR-2."""
    with pytest.raises(WrongCluster, match="belongs to cluster 'prod'") as caught:
        open_directory(path, cluster="staging")
    assert caught.value.metadata["found"] == "prod"
    with pytest.raises(WrongCluster, match="belongs to store 's1'"):
        open_directory(path, store="s2")
    open_directory(path).close()


def test_a_copy_is_refused_and_the_original_is_not(path: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    shutil.copytree(path, copy)
    with pytest.raises(WrongCluster, match="is a copy") as caught:
        open_directory(copy)
    assert caught.value.metadata["field"] == "inode"
    open_directory(path).close()


def test_a_moved_directory_is_accepted(path: str, tmp_path: Path) -> None:
    os.rename(path, tmp_path / "moved")
    open_directory(str(tmp_path / "moved")).close()


def test_other_hard_bounds_or_another_format_are_refused(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-DIR-2."""
    mine = read_identity(PosixVfs(), path)
    (Path(path) / "IDENTITY").write_bytes(replace(mine, format_version=99).encode())
    with pytest.raises(WrongCluster, match=r"format version 99; this program reads version 2, 3"):
        open_directory(path)
    (Path(path) / "IDENTITY").write_bytes(mine.encode())
    monkeypatch.setattr(data_directory, "hard_bounds_hash", lambda _: 7)
    with pytest.raises(WrongCluster, match="hard bounds"):
        open_directory(path)


def test_a_new_directory_can_be_opened_by_every_program_of_the_first_version(path: str) -> None:
    open_directory(path, known=ONLY_FIRST).close()
    assert read_identity(PosixVfs(), path).cluster_version == 1


def test_no_older_program_starts_on_a_directory_of_a_raised_cluster(path: str) -> None:
    """INV-DIR-5."""
    directory = open_directory(path)
    directory.raise_version(2)
    assert directory.identity.cluster_version == 2
    raised = read_file(PosixVfs(), f"{path}/IDENTITY")
    directory.raise_version(2)
    assert read_file(PosixVfs(), f"{path}/IDENTITY") == raised, "it says so already"
    directory.close()
    with pytest.raises(
        WrongCluster, match="format version 3, that of cluster version 2; this program reads"
    ) as refused:
        open_directory(path, known=ONLY_FIRST)
    assert refused.value.metadata["found"] == "3"
    assert refused.value.metadata["expected"] == "2"
    assert read_file(PosixVfs(), f"{path}/IDENTITY") == raised
    again = open_directory(path)
    assert again.identity == directory.identity
    with pytest.raises(InvariantViolation, match="INV-DIR-2"):
        again.raise_version(1)
    again.close()


def test_a_copy_of_a_raised_directory_is_refused(path: str, tmp_path: Path) -> None:
    """INV-DIR-3 holds for the file that replaced the first one, too."""
    directory = open_directory(path)
    directory.raise_version(2)
    directory.close()
    shutil.copytree(path, tmp_path / "copy")
    with pytest.raises(WrongCluster, match="is a copy"):
        open_directory(str(tmp_path / "copy"))


def test_a_crash_while_the_version_is_raised_leaves_the_old_or_the_new_identity() -> None:
    """INV-DIR-5: in every state of the disk in which a kill or a power cut may leave it."""
    survivals: list[SurvivingBytes | None] = [
        None,
        lambda path, number, size: size,
        lambda path, number, size: size // 2,
    ]
    seen: set[int] = set()
    for operation in range(_RAISE_OPERATIONS):
        for surviving in survivals:
            for names in (False, True):
                vfs = StoppingVfs()
                directory = open_directory("/d", vfs)
                incarnation = directory.incarnation
                vfs.left = operation
                with contextlib.suppress(Stopped):
                    directory.raise_version(2)
                    assert operation == _RAISE_OPERATIONS - 1
                vfs.left = None
                vfs.crash(surviving, keep_names=names)
                again = open_directory("/d", vfs)
                assert again.incarnation == incarnation
                seen.add(again.identity.cluster_version)
                if operation == _RAISE_OPERATIONS - 1:
                    assert again.identity.cluster_version == 2, "it was durable"
                again.raise_version(2)
                assert again.identity.cluster_version == 2
                again.close()
    assert seen == {1, 2}


class Stopped(Exception):
    """The power fails here."""


class StoppingVfs(MemoryVfs):
    """Stops before one of the operations that change the disk; `left` are those that still work."""

    left: int | None = None

    def _one(self) -> None:
        if self.left == 0:
            raise Stopped
        if self.left is not None:
            self.left -= 1

    def create(self, path: str) -> int:
        self._one()
        return super().create(path)

    def pwritev(self, handle: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self._one()
        super().pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        self._one()
        super().fdatasync(handle)

    def rename(self, source: str, target: str) -> None:
        self._one()
        super().rename(source, target)

    def fsync_directory(self, path: str) -> None:
        self._one()
        super().fsync_directory(path)


_RAISE_OPERATIONS = 6
"""Create, write, sync, rename, sync the directory; and none left out."""


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    with pytest.raises(InvalidArgument, match="not empty"):
        open_directory(str(tmp_path))
    with pytest.raises(WrongCluster, match="is not a data directory"):
        read_identity(PosixVfs(), str(tmp_path))


def test_a_path_that_cannot_be_used_is_an_invalid_argument(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidArgument, match="cannot use the data directory") as caught:
            open_directory(str(path))
        assert caught.value.metadata["field"] == "data_directory"


def test_an_unwritable_directory_is_an_invalid_argument(tmp_path: Path) -> None:
    class ReadOnly(PosixVfs):
        def lock(self, path: str) -> int:
            raise PermissionError(13, "Permission denied", path)

    with pytest.raises(InvalidArgument, match="Permission denied"):
        open_directory(str(tmp_path / "x"), ReadOnly())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidArgument, match="Permission denied"):
        open_directory(str(tmp_path / "x"))
    tmp_path.chmod(0o700)


def test_every_flipped_bit_of_the_identity_is_noticed() -> None:
    vfs = MemoryVfs()
    open_directory("/d", vfs).close()
    good = read_file(vfs, "/d/IDENTITY")
    for offset in range(len(good)):
        for bit in range(8):
            vfs.flip("/d/IDENTITY", offset, 1 << bit)
            with pytest.raises(WrongCluster):
                open_directory("/d", vfs)
            vfs.flip("/d/IDENTITY", offset, 1 << bit)
    open_directory("/d", vfs).close()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]\n", b"\n", b"{}\n00000000\n"])
def test_garbage_is_no_identity(data: bytes) -> None:
    with pytest.raises(ValueError):
        Identity.decode(data)


def test_a_creation_cut_short_is_begun_again() -> None:
    vfs = MemoryVfs()
    vfs.make_directory("/d")
    write_file(vfs, "/d/IDENTITY.tmp", b"half")
    open_directory("/d", vfs).close()
    assert vfs.listdir("/d") == ["IDENTITY", "LOCK"]


def test_what_was_lost_track_of_is_said_for_ever(path: str) -> None:
    """INV-DIR-4."""
    directory = open_directory(path)
    assert not directory.unattributed_loss
    directory.note_unattributed_loss()
    directory.note_unattributed_loss()
    assert directory.unattributed_loss
    directory.close()
    again = open_directory(path)
    assert again.unattributed_loss
    again.close()
    assert b"under their ids" in read_file(PosixVfs(), f"{path}/LOST_TRACK")


class FullVfs(PosixVfs):
    """No file can be made; `number` says why."""

    number = errno.ENOSPC

    def create(self, path: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


def test_on_a_full_disk_this_process_knows(path: str) -> None:
    """A store has to start in such a directory, and tells HAKeeper."""
    directory = open_directory(path, FullVfs())
    directory.note_unattributed_loss()
    assert directory.unattributed_loss
    directory.close()
    again = open_directory(path)
    assert not again.unattributed_loss
    again.close()


def test_a_disk_that_cannot_keep_it_is_lost(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FullVfs, "number", errno.EIO)
    directory = open_directory(path, FullVfs())
    with pytest.raises(OSError, match="Input/output"):
        directory.note_unattributed_loss()
    directory.close()
