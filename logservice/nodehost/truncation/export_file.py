"""ExportFile: a snapshot of a log in a file that somebody asked for, outside the store's own files.

Byte form: ``magic u32, version u16, cluster id length u16, shard u64, lineage number u64, lineage
id 16 bytes, snapshot length u64, blake2b-256 of everything else``, cluster id in UTF-8, snapshot
(`Snapshot.encode`). A store's own exports lie in a directory that says whose they are (`exports`);
such a file says it itself. It is written from cluster version 2 on.

- INV-EXPORT-FILE-1: a file at the path is a whole export of the log that was named, or there is
  none. It is written under another name, fdatasynced and renamed, and the directory is fsynced. An
  error leaves nothing under the other name. What a crash leaves there is no export, and the next
  export there replaces it.
- INV-EXPORT-FILE-2: only an export of the same log is replaced. Any other file stays as it is. The
  other name (``.NAME.logservice-export``) is one that nobody else chooses.
"""

from __future__ import annotations

import errno
import hashlib
import posixpath
import struct
from typing import Final

from logservice_wire.errors import DiskFull, InvalidArgument, NotReady, TooLarge, WrongCluster
from logservice_wire.value import value

from logservice.bounds import EXPORT_FILE_BYTES_MAX
from logservice.ids import ClusterId, ShardId
from logservice.logdb.io.vfs import Vfs, write_file
from logservice.snapshot import Snapshot, SnapshotCorrupt

_HEAD: Final = struct.Struct("<IHHQQ16sQ")
_MAGIC: Final = 0x4658534C
_VERSION: Final = 1
_DIGEST_BYTES: Final = 32
_WITHOUT_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FILE: Final = frozenset(
    {
        errno.ENOENT,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.EINVAL,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.ENXIO,
    }
)
"""Errors that say that no file can be there, today or later: a directory, a pipe, no path."""


class ExportCorrupt(ValueError):
    """The bytes are not a whole, undamaged export."""


@value
class ExportFile:
    """lineage_number and lineage: of the log, where the snapshot was made."""

    cluster_id: ClusterId
    shard: ShardId
    lineage_number: int
    lineage: bytes
    snapshot: Snapshot

    def encode(self) -> bytes:
        """The byte form above."""
        cluster, snapshot = self.cluster_id.encode(), self.snapshot.encode()
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            len(cluster),
            self.shard,
            self.lineage_number,
            self.lineage,
            len(snapshot),
        )
        return b"".join((head, _digest(head, cluster, snapshot), cluster, snapshot))

    @classmethod
    def decode(cls, data: bytes) -> ExportFile:
        """Inverse of `encode`; raises ExportCorrupt for anything else."""
        start = _HEAD.size + _DIGEST_BYTES
        if len(data) < start:
            raise ExportCorrupt(f"an export has {start} bytes at least, this has {len(data)}")
        head = data[: _HEAD.size]
        magic, version, cluster_bytes, shard, number, lineage, size = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise ExportCorrupt(f"export magic {magic:#x} version {version}")
        cluster = data[start : start + cluster_bytes]
        snapshot = data[start + cluster_bytes :]
        if len(cluster) != cluster_bytes or len(snapshot) != size:
            raise ExportCorrupt("the export's length differs from its header")
        if _digest(head, cluster, snapshot) != data[_HEAD.size : start]:
            raise ExportCorrupt("the export's digest")
        try:
            name = ClusterId(cluster.decode())
            return cls(name, ShardId(shard), number, lineage, Snapshot.decode(snapshot))
        except (UnicodeDecodeError, SnapshotCorrupt) as error:
            raise ExportCorrupt(str(error)) from error

    def check_is_of(self, cluster_id: ClusterId, shard: ShardId) -> None:
        """Raises WrongCluster, InvalidArgument: it is an export of something else."""
        if self.cluster_id != cluster_id:
            raise WrongCluster(
                "the export is of another cluster",
                field="cluster_id",
                found=self.cluster_id,
                expected=cluster_id,
            )
        if self.shard != shard:
            raise InvalidArgument(f"the export is of shard {self.shard}", field="path")


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()


def read_export(vfs: Vfs, path: str) -> ExportFile:
    """The export at `path`. Raises InvalidArgument (there is none, or it is damaged), NotReady (it
    cannot be read now).
    """
    try:
        return ExportFile.decode(_read(vfs, path))
    except ExportCorrupt as error:
        raise InvalidArgument(f"no whole export: {path!r}", field="path", why=error) from error
    except (OSError, ValueError) as error:
        _refuse_what_is_no_file(path, error)
        raise NotReady(f"the export cannot be read: {error}") from error


def _refuse_what_is_no_file(path: str, error: OSError | ValueError) -> None:
    """ValueError: Python's, for a path that no system call takes."""
    if not isinstance(error, OSError) or error.errno in _NO_FILE:
        raise InvalidArgument(f"no file: {path!r}", field="path") from error


def _read(vfs: Vfs, path: str) -> bytes:
    handle = vfs.open_read(path)
    try:
        size = vfs.size(handle)
        if size > EXPORT_FILE_BYTES_MAX:
            raise ExportCorrupt(f"an export has {EXPORT_FILE_BYTES_MAX} bytes at most")
        return vfs.pread(handle, size, 0)
    finally:
        vfs.close(handle)


def check_may_be_written(vfs: Vfs, path: str, cluster_id: ClusterId, shard: ShardId) -> None:
    """INV-EXPORT-FILE-2. Raises InvalidArgument, WrongCluster, NotReady."""
    try:
        if not path or not vfs.exists(posixpath.dirname(path) or "."):
            raise InvalidArgument(f"no directory for {path!r}", field="path")
        if not vfs.exists(path):
            return
    except (OSError, ValueError) as error:
        _refuse_what_is_no_file(path, error)
        raise NotReady(f"the path cannot be looked at: {error}") from error
    read_export(vfs, path).check_is_of(cluster_id, shard)


def under_way(path: str) -> str:
    """Where an export to `path` is while it is written."""
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f".{name}.logservice-export")


def write_export(vfs: Vfs, path: str, export: ExportFile) -> None:
    """INV-EXPORT-FILE-1, -2. Raises what `check_may_be_written` does, TooLarge, DiskFull, OSError:
    then the file that was there is still there, or the new one is.
    """
    check_may_be_written(vfs, path, export.cluster_id, export.shard)
    data = export.encode()
    if len(data) > EXPORT_FILE_BYTES_MAX:
        raise TooLarge(
            "the export is too large to be read again",
            limit=EXPORT_FILE_BYTES_MAX,
            value=len(data),
            name="EXPORT_FILE_BYTES_MAX",
        )
    try:
        write_file(vfs, path, data, under_way(path))
    except OSError as error:
        _refuse_what_is_no_file(path, error)
        if error.errno in _WITHOUT_ROOM:
            raise DiskFull(f"no room for {path}") from error
        raise
