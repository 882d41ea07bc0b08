"""A ring of io_uring on real files. A pipe that is full stands for a disk that hangs."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice import bounds
from logservice.invariants import InvariantViolation
from logservice.logdb.io import posix_vfs, write_ring
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.write_ring import WriteRing
from tests.rings import needs_io_uring

PAGE = 4096

pytestmark = needs_io_uring


@pytest.fixture
def ring() -> Iterator[WriteRing]:
    ring = WriteRing()
    yield ring
    ring.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    handle = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    yield handle
    os.close(handle)


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    """Its two ends; the next write into it hangs until somebody reads."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, PAGE)
    os.write(writes, bytes(PAGE))
    yield reads, writes
    os.close(reads)
    os.close(writes)


def test_many_writes_one_after_the_other(ring: WriteRing, file: int) -> None:
    for number in range(300):
        parts = [b"%06d" % number, memoryview(b"abc"), b""]
        assert ring.write(file, parts, number * 9, 60.0)
        assert ring.result()
    assert os.pread(file, 5000, 0) == b"".join(b"%06dabc" % number for number in range(300))


def test_the_largest_write(ring: WriteRing, file: int) -> None:
    data = os.urandom(bounds.WRITE_RING_BYTES)
    assert ring.write(file, [data], 1, 60.0)
    assert ring.result()
    assert os.pread(file, len(data) + 2, 0) == b"\0" + data


def test_an_offset_behind_4_gib(ring: WriteRing, file: int) -> None:
    assert ring.write(file, [b"far"], 5 << 30, 60.0)
    assert ring.result()
    assert os.pread(file, 10, 5 << 30) == b"far"


def test_what_the_write_says_is_raised(ring: WriteRing, file: int) -> None:
    """And the ring is as good as before."""
    gone = os.dup(file)
    os.close(gone)
    assert ring.write(gone, [b"x"], 0, 60.0)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        ring.result()
    assert ring.write(file, [b"x"], 0, 60.0)
    assert ring.result()


def test_a_write_that_hangs_is_finished_by_another_thread(
    ring: WriteRing, full_pipe: tuple[int, int]
) -> None:
    """INV-RING-1."""
    reads, writes = full_pipe
    assert not ring.write(writes, [b"y" * PAGE], 0, 0.001)
    with pytest.raises(InvariantViolation, match="INV-RING-1"):
        ring.write(writes, [b"z"], 0, 0.001)
    with pytest.raises(InvariantViolation, match="INV-RING-3"):
        ring.result()
    with pytest.raises(InvariantViolation, match="INV-RING-2"):
        ring.close()
    waiting = threading.Thread(target=ring.finish)
    waiting.start()
    assert os.read(reads, PAGE) == bytes(PAGE)
    waiting.join(60)
    assert ring.result()
    assert os.read(reads, PAGE) == b"y" * PAGE
    with pytest.raises(InvariantViolation, match="INV-RING-3"):
        ring.result()


def test_who_waits_looks_again_and_again(
    ring: WriteRing, full_pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "WRITE_RING_LOOK_S", 0.001)
    reads, writes = full_pipe
    looks = []
    enter = WriteRing._enter

    def counted(self: WriteRing, submissions: int, patience_s: float) -> None:
        looks.append(patience_s)
        if len(looks) == 5:
            os.read(reads, PAGE)
        enter(self, submissions, patience_s)

    monkeypatch.setattr(WriteRing, "_enter", counted)
    assert not ring.write(writes, [b"y"], 0, 0.0)
    ring.finish()
    assert ring.result()
    assert len(looks) >= 5


def test_a_ring_with_a_write_is_kept_when_everybody_forgets_it(
    full_pipe: tuple[int, int],
) -> None:
    """INV-RING-2."""
    reads, writes = full_pipe
    ring = WriteRing()
    assert not ring.write(writes, [b"y" * PAGE], 0, 0.001)
    kept = weakref.ref(ring)
    del ring
    gc.collect()
    ring_again = kept()
    assert ring_again is not None
    os.read(reads, PAGE)
    ring_again.finish()
    assert ring_again.result()
    assert os.read(reads, PAGE) == b"y" * PAGE
    ring_again.close()


def test_a_write_in_part_says_so(ring: WriteRing, file: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE, before[1]))
    try:
        assert ring.write(file, [bytes(100)], PAGE - 10, 60.0)
        assert not ring.result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_kernel_that_is_too_old_has_no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(write_ring, "_FEATURES", 1 << 30)
    with pytest.raises(OSError, match="too old"):
        WriteRing()
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.setattr(write_ring, "_DSYNC", 0)
    with pytest.raises(OSError, match="no io_uring"):
        WriteRing()


class TestInVfs:
    """What PosixVfs does with rings."""

    def test_a_small_write_is_durable_at_once(self, file: int) -> None:
        vfs = PosixVfs(rings=True)
        write = vfs.begin_durable_write(file, [b"ab", b"c"], 3, 60.0)
        assert write is not None
        assert write.done
        assert os.pread(file, 9, 0) == b"\0\0\0abc"

    def test_what_is_left_to_write_durably(
        self, file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vfs = PosixVfs(rings=True)
        assert vfs.begin_durable_write(file, [], 0, 60.0) is None
        data = bytes(bounds.WRITE_RING_BYTES)
        assert vfs.begin_durable_write(file, [data, b"x"], 0, 60.0) is None
        assert PosixVfs().begin_durable_write(file, [b"x"], 0, 60.0) is None
        monkeypatch.setattr(posix_vfs, "_file_system", lambda handle: b"overlay")
        other = PosixVfs(rings=True)
        assert other.begin_durable_write(file, [b"x"], 0, 60.0) is None
        assert os.fstat(file).st_size == 0

    def test_a_ring_that_is_refused_is_the_last(
        self, file: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        tried = []

        def refused() -> WriteRing:
            tried.append(1)
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(posix_vfs, "WriteRing", refused)
        vfs = PosixVfs(rings=True)
        with caplog.at_level("INFO"):
            for _ in range(3):
                assert vfs.begin_durable_write(file, [b"x"], 0, 60.0) is None
        assert tried == [1]
        assert [one.getMessage() for one in caplog.records] == [
            "commit groups are written by threads: io_uring: Operation not permitted"
        ]

    def test_a_kernel_that_takes_no_write_takes_it_otherwise(
        self, file: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(ring: WriteRing, *_: object) -> bool:
            raise OSError(errno.EAGAIN, "no kernel thread")

        monkeypatch.setattr(WriteRing, "write", refused)
        vfs = PosixVfs(rings=True)
        assert vfs.begin_durable_write(file, [b"x"], 0, 60.0) is None
        monkeypatch.undo()
        assert vfs.begin_durable_write(file, [b"x"], 0, 60.0) is None, "no other ring is tried"

    def test_a_flag_that_is_refused_at_first_is_a_kernel_without_it(
        self, file: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(write_ring, "_DSYNC", 1 << 20)
        vfs = PosixVfs(rings=True)
        write = vfs.begin_durable_write(file, [b"abc"], 0, 60.0)
        assert write is not None
        assert not write.done
        write.finish()
        assert write.done
        assert os.pread(file, 9, 0) == b"abc"
        assert vfs.begin_durable_write(file, [b"abc"], 0, 60.0) is None

    def test_the_same_error_later_is_the_disks(
        self, file: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """INV-VFS-3: it is not tried again."""
        vfs = PosixVfs(rings=True)
        assert vfs.begin_durable_write(file, [b"abc"], 0, 60.0)
        monkeypatch.setattr(write_ring, "_DSYNC", 1 << 20)
        with pytest.raises(OSError, match=os.strerror(errno.EOPNOTSUPP)):
            vfs.begin_durable_write(file, [b"abc"], 0, 60.0)

    def test_what_was_written_in_part_is_written_anew(self, file: int) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        vfs = PosixVfs(rings=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE, before[1]))
        try:
            write = vfs.begin_durable_write(file, [b"abc" * 10], PAGE - 10, 60.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert write is not None
        assert not write.done
        assert os.fstat(file).st_size == PAGE
        write.finish()
        assert os.pread(file, 99, PAGE - 10) == b"abc" * 10

    def test_a_disk_that_hangs_keeps_its_ring_and_others_have_theirs(
        self, file: int, full_pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads, writes = full_pipe
        vfs = PosixVfs(rings=True)
        monkeypatch.setattr(vfs, "_honours_dsync", lambda handle: True)
        hangs = [vfs.begin_durable_write(writes, [b"y"], 0, 0.001)]
        assert (write := vfs.begin_durable_write(file, [b"x"], 0, 60.0))
        assert write.done
        while len(hangs) < bounds.WRITE_RINGS_MAX:
            hangs.append(vfs.begin_durable_write(writes, [b"y"], 0, 0.001))
        assert vfs.begin_durable_write(file, [b"x"], 0, 60.0) is None, "threads do it"
        os.read(reads, PAGE)
        for one in hangs:
            assert one is not None
            one.finish()
            assert one.done
        assert (write := vfs.begin_durable_write(file, [b"z"], 0, 60.0))
        assert write.done
        assert os.pread(file, 2, 0) == b"z"
