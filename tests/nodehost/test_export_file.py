"""Exports to a path: a file is a whole export of the log that was named, or there is none."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
from logservice_wire.errors import DiskFull, InvalidArgument, NotReady, TooLarge, WrongCluster

from logservice.ids import ClusterId, Index, Lsn, ShardId, Term
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.vfs import write_file
from logservice.membership import Membership
from logservice.nodehost.truncation import export_file
from logservice.nodehost.truncation.export_file import (
    ExportCorrupt,
    ExportFile,
    read_export,
    under_way,
    write_export,
)
from logservice.snapshot import Snapshot

CLUSTER, SHARD = ClusterId("c1"), ShardId(7)
PATH = "/aside/log.export"
OPERATIONS = ("create", "pwritev", "fdatasync", "rename", "unlink", "fsync_directory")


def export(index: int, shard: int = SHARD, cluster: str = CLUSTER) -> ExportFile:
    state = b"state" * index
    snapshot = Snapshot(Index(index), Term(2), Lsn(index + 1), Membership(), state)
    return ExportFile(ClusterId(cluster), ShardId(shard), 3, b"l" * 16, snapshot)


@pytest.fixture
def vfs() -> MemoryVfs:
    vfs = MemoryVfs()
    vfs.make_directory("/aside")
    vfs.fsync_directory("/")
    return vfs


def test_what_was_written_is_read(vfs: MemoryVfs) -> None:
    write_export(vfs, PATH, export(5))
    vfs.crash()
    assert read_export(vfs, PATH) == export(5)
    write_export(vfs, PATH, export(9))
    vfs.crash()
    assert read_export(vfs, PATH) == export(9), "a newer one replaces it"
    assert vfs.listdir("/aside") == ["log.export"]


def test_every_changed_bit_and_every_cut_is_noticed() -> None:
    data = export(3).encode()
    assert ExportFile.decode(data) == export(3)
    for at in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[at // 8] ^= 1 << at % 8
        with pytest.raises(ExportCorrupt):
            ExportFile.decode(bytes(wrong))
    for size in range(len(data)):
        with pytest.raises(ExportCorrupt):
            ExportFile.decode(data[:size])
    with pytest.raises(ExportCorrupt):
        ExportFile.decode(data + b"\0")


def test_bytes_with_a_good_digest_that_mean_nothing_are_refused() -> None:
    rng = random.Random(11)
    good, head = export(3).encode(), export_file._HEAD.size
    refused = 0
    for _ in range(5000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.choice([len(data), rng.randrange(len(data))])]
        body = bytes(data[head + 32 :])
        digest = export_file._digest(bytes(data[:head]), b"", body)
        try:
            ExportFile.decode(bytes(data[:head]) + digest + body)
        except ExportCorrupt:
            refused += 1
    assert 3000 < refused < 5000


@pytest.mark.parametrize("older", [None, 4], ids=["nothing", "an older export"])
@pytest.mark.parametrize("leftover", [False, True])
def test_inv_export_file_1_a_crash_leaves_a_whole_export_or_what_was_there(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch, older: int | None, leftover: bool
) -> None:
    """Before each file operation the disk is copied; each copy is looked at after a kill and after
    power cuts, and the export is made there again.
    """
    if older is not None:
        write_export(vfs, PATH, export(older))
    if leftover:
        vfs.close(vfs.create(under_way(PATH)))
        vfs.fsync_directory("/aside")
    moments = []
    for name in OPERATIONS:
        call = getattr(vfs, name)

        def watched(*given: Any, _call: Any = call, _name: str = name) -> Any:
            moments.append((_name, vfs.copy()))
            return _call(*given)

        monkeypatch.setattr(vfs, name, watched)
    write_export(vfs, PATH, export(8))
    monkeypatch.undo()
    assert len(moments) >= 5
    share = random.Random(5).random()
    cuts: list[tuple[Callable[[str, int, int], int] | None, bool] | None] = [
        None,  # the process is killed, and the disk goes on
        (None, False),
        (None, True),
        (lambda path, number, size: size, True),
        (lambda path, number, size: int(size * share), True),
    ]
    for operation, copy in moments:
        for cut in cuts:
            crashed = copy.copy()
            crashed.kill() if cut is None else crashed.crash(cut[0], keep_names=cut[1])
            if crashed.exists(PATH):
                assert read_export(crashed, PATH) in (export(8), export(older or 8)), operation
            else:
                assert older is None, operation
            write_export(crashed, PATH, export(8))
            crashed.crash()
            assert read_export(crashed, PATH) == export(8)
    vfs.crash()
    assert read_export(vfs, PATH) == export(8), "it is durable when the call returns"


@pytest.mark.parametrize("name", OPERATIONS)
def test_inv_export_file_1_a_file_operation_that_fails_leaves_what_was_there_or_the_new_one(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_export(vfs, PATH, export(4))
    vfs.close(vfs.create(under_way(PATH)))

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, name)

    with monkeypatch.context() as patched:
        patched.setattr(vfs, name, broken)
        with pytest.raises(OSError, match=name):
            write_export(vfs, PATH, export(8))
    if name not in ("unlink", "fsync_directory"):
        assert vfs.listdir("/aside") == ["log.export"], "nothing half-written is left"
    vfs.crash()
    assert read_export(vfs, PATH) in (export(4), export(8))


def test_inv_export_file_2_no_other_file_is_replaced(vfs: MemoryVfs) -> None:
    for there, refusal in [
        (b"somebody's file", InvalidArgument),
        (export(3, shard=8).encode(), InvalidArgument),
        (export(3, cluster="c2").encode(), WrongCluster),
        (export(3).encode()[:-1], InvalidArgument),
    ]:
        write_file(vfs, PATH, there)
        with pytest.raises(refusal):
            write_export(vfs, PATH, export(9))
        assert vfs.listdir("/aside") == ["log.export"]
        handle = vfs.open_read(PATH)
        assert vfs.pread(handle, 1 << 20, 0) == there
        vfs.close(handle)


def test_there_is_no_directory_or_no_room(vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("/elsewhere/log.export", ""):
        with pytest.raises(InvalidArgument):
            write_export(vfs, path, export(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(vfs, "pwritev", full)
    with pytest.raises(DiskFull):
        write_export(vfs, PATH, export(1))
    assert vfs.listdir("/aside") == []


def test_what_cannot_be_read_now_is_not_called_damaged(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_export(vfs, PATH, export(1))

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(vfs, "pread", broken)
    with pytest.raises(NotReady):
        read_export(vfs, PATH)


def test_nothing_larger_than_the_bound_is_written_or_read(
    vfs: MemoryVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_export(vfs, PATH, export(9))
    monkeypatch.setattr(export_file, "EXPORT_FILE_BYTES_MAX", len(export(9).encode()) - 1)
    with pytest.raises(InvalidArgument):
        read_export(vfs, PATH)
    with pytest.raises(TooLarge):
        write_export(vfs, "/aside/other", export(9))
    assert not vfs.exists("/aside/other")
