"""DataDirectory: whose directory this is, and that nobody else is in it.

A replica that votes from the wrong directory (an older copy, another store's, another cluster's)
can elect two leaders, so the identity is checked before anything else is read:

- INV-DIR-1: one process at a time (``LOCK``, flock).
- INV-DIR-2: ``IDENTITY`` names cluster, store, incarnation, format version and the hash of the hard
  bounds; a mismatch refuses to start. It is created once, in an empty directory. After that only
  its format version changes, and never falls.
- INV-DIR-3: it also holds its own inode number. A copied directory has another one, and is
  refused: a copy is a replica that forgot the votes and acks given since it was made. Moving a
  directory within a file system keeps the number.

- INV-DIR-5: the format version says which cluster version the directory is written for
  (`versions.WRITTEN`). A store goes over to a higher cluster version only when all its working
  directories say so, and a program that does not know that version refuses to start on them,
  before it reads anything else. A new identity replaces the old one by a rename, with its own inode
  number inside, so a crash leaves one of the two.

- INV-DIR-4: a directory that had an *unattributed loss* (it lost something, and nobody can say
  whose it was) says so for ever, in the file ``LOST_TRACK``. No later start meets the damage itself
  once the derived index covers it, and the loss may have been all of a replica, its vote included.

The incarnation is drawn when the directory is created, so a store with an emptied disk speaks with
another one and nobody takes it for the replica it was.
"""

from __future__ import annotations

import errno
import json
import posixpath
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from logservice_wire.errors import InvalidArgument, WrongCluster

from logservice import versions
from logservice.bounds import hard_bounds_hash
from logservice.checksum import crc32
from logservice.ids import ClusterId, Incarnation, StoreId
from logservice.invariants import invariant
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.versions import KNOWN, VersionRange

FORMAT: Final = "identity"
"""The name of this format in `versions.WRITTEN`."""

IDENTITY_NAME = "IDENTITY"
LOCK_NAME = "LOCK"
LOST_TRACK_NAME = "LOST_TRACK"
_MAGIC = "logservice data directory"
_IGNORED = frozenset({LOCK_NAME, IDENTITY_NAME + ".tmp", "lost+found"})
"""What an empty directory may hold: our lock, a creation cut short, what mkfs leaves."""
_LOST_TRACK = b"""This data directory once lost something of which nobody knows whose it was, it may
be all of a replica. Replicas that are not here any more are not begun again under their ids.
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of the identity file."""

    cluster_id: ClusterId
    store_id: StoreId
    incarnation: Incarnation
    format_version: int
    hard_bounds: int
    inode: int

    @property
    def cluster_version(self) -> int:
        """The cluster version that the directory is written for; 0 for a format nobody knows."""
        return versions.cluster_version_of(FORMAT, self.format_version)

    def of(self, cluster_version: int) -> Identity:
        """The identity of the same directory at another cluster version."""
        return replace(
            self,
            format_version=versions.WRITTEN[FORMAT][cluster_version],
            hard_bounds=hard_bounds_hash(cluster_version),
        )

    def encode(self) -> bytes:
        """One line of JSON for people, one line with its CRC-32 in hexadecimal."""
        body = json.dumps(
            {
                "magic": _MAGIC,
                "cluster_id": self.cluster_id,
                "store_id": self.store_id,
                "incarnation": self.incarnation,
                "format_version": self.format_version,
                "hard_bounds": self.hard_bounds,
                "inode": self.inode,
            },
            sort_keys=True,
        ).encode()
        return body + b"\n%08x\n" % crc32(body)

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Inverse of `encode`; raises ValueError for anything else."""
        body, separator, rest = data.partition(b"\n")
        if not separator or rest != b"%08x\n" % crc32(body):
            raise ValueError("checksum of the identity file")
        fields = json.loads(body)
        if not isinstance(fields, dict) or fields.pop("magic", None) != _MAGIC:
            raise ValueError("not an identity file")
        try:
            identity = cls(**fields)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return identity


def read_identity(vfs: Vfs, path: str) -> Identity:
    """The identity of a directory, without locking or judging it.

    Raises WrongCluster when it has none or a damaged one.
    """
    name = posixpath.join(path, IDENTITY_NAME)
    if not vfs.exists(name):
        raise WrongCluster(f"{path} is not a data directory: it has no {IDENTITY_NAME} file")
    try:
        return Identity.decode(read_file(vfs, name))
    except ValueError as error:
        raise WrongCluster(f"the identity file {name} is damaged: {error}") from error


class DataDirectory:
    """An open, locked data directory that belongs to this store."""

    def __init__(self, path: str, vfs: Vfs, identity: Identity, lock: int) -> None:
        """Use `DataDirectory.open`."""
        self.path = path
        self.vfs = vfs
        self.identity = identity
        self._lock: int | None = lock
        self._unattributed_loss = vfs.exists(posixpath.join(path, LOST_TRACK_NAME))

    @property
    def unattributed_loss(self) -> bool:
        """Whether it ever lost something whose owner nobody knows (INV-DIR-4)."""
        return self._unattributed_loss

    def note_unattributed_loss(self) -> None:
        """Remember the loss durably, for ever. On a full disk only this process knows of it. Raises
        OSError.
        """
        if self._unattributed_loss:
            return
        self._unattributed_loss = True
        try:
            write_file(self.vfs, posixpath.join(self.path, LOST_TRACK_NAME), _LOST_TRACK)
        except OSError as error:
            # A store must start on a full disk. It tells HAKeeper of the loss all the same.
            if error.errno != errno.ENOSPC:
                raise

    def raise_version(self, cluster_version: int) -> None:
        """Say durably that the directory is written for that cluster version (INV-DIR-5). Nothing
        happens when it says so already. Raises OSError; then it says the one or the other.
        """
        present = self.identity.cluster_version
        invariant(cluster_version >= present, "INV-DIR-2", path=self.path, present=present)
        if cluster_version > present:
            self.identity = _write(self.path, self.vfs, self.identity.of(cluster_version))

    @property
    def cluster_version(self) -> int:
        """The cluster version that the directory is written for, as it says durably."""
        return self.identity.cluster_version

    @property
    def cluster_id(self) -> ClusterId:
        """The cluster that the directory belongs to."""
        return self.identity.cluster_id

    @property
    def store_id(self) -> StoreId:
        """The store that the directory belongs to."""
        return self.identity.store_id

    @property
    def incarnation(self) -> Incarnation:
        """Which directory this is, among all that the store ever had."""
        return self.identity.incarnation

    @classmethod
    def open(
        cls,
        path: str,
        *,
        vfs: Vfs,
        cluster_id: ClusterId,
        store_id: StoreId,
        draw_incarnation: Callable[[], int] = lambda: secrets.randbits(63) | 1,
        known: VersionRange = KNOWN,
    ) -> DataDirectory:
        """Lock the directory and check that it is ours; an empty one is made ours first. `known`:
        the cluster versions that the program knows.

        Raises InvalidArgument{field: data_directory} when it cannot be used (not writable, in use
        by another process, not empty but without identity) and WrongCluster when it belongs to
        another cluster or store, is a copy, or was written with other hard bounds or in a format
        that is not of these versions.
        """
        try:
            vfs.make_directory(path)
            lock = vfs.lock(posixpath.join(path, LOCK_NAME))
        except BlockingIOError as error:
            raise InvalidArgument(
                f"another process uses the data directory {path}", field="data_directory"
            ) from error
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            if not vfs.exists(posixpath.join(path, IDENTITY_NAME)):
                _create(path, vfs, cluster_id, store_id, draw_incarnation())
            identity = read_identity(vfs, path)
            _check_owner(path, identity, cluster_id, store_id)
            _check_version(path, identity, known)
            _check_inode(path, vfs, identity)
        except OSError as error:
            vfs.close(lock)
            raise _unusable(path, error) from error
        except BaseException:
            vfs.close(lock)
            raise
        return cls(path, vfs, identity, lock)

    def close(self) -> None:
        """Let another process have the directory."""
        if self._lock is not None:
            self.vfs.close(self._lock)
            self._lock = None


def _unusable(path: str, error: OSError) -> InvalidArgument:
    return InvalidArgument(
        f"cannot use the data directory {path}: {error.strerror or error}", field="data_directory"
    )


def _create(
    path: str, vfs: Vfs, cluster_id: ClusterId, store_id: StoreId, incarnation: int
) -> None:
    strangers = [name for name in vfs.listdir(path) if name not in _IGNORED]
    if strangers:
        raise InvalidArgument(
            f"the directory {path} is not empty and has no {IDENTITY_NAME} file "
            f"(it holds {', '.join(strangers[:5])}); choose an empty one",
            field="data_directory",
        )
    identity = Identity(cluster_id, store_id, Incarnation(incarnation), 0, 0, 0)
    _write(path, vfs, identity.of(versions.FIRST))
    vfs.fsync_directory(posixpath.dirname(posixpath.normpath(path)) or ".")


def _write(path: str, vfs: Vfs, identity: Identity) -> Identity:
    """Give the directory that identity durably, with the inode number of its new file."""
    temporary = posixpath.join(path, IDENTITY_NAME + ".tmp")
    if vfs.exists(temporary):
        vfs.unlink(temporary)
    handle = vfs.create(temporary)
    try:
        identity = replace(identity, inode=vfs.inode(handle))
        vfs.pwritev(handle, [identity.encode()], 0)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)
    vfs.rename(temporary, posixpath.join(path, IDENTITY_NAME))
    vfs.fsync_directory(path)
    return identity


def _compare(path: str, field: str, found: object, expected: object, problem: str) -> None:
    if found != expected:
        message = f"the data directory {path} {problem}"
        raise WrongCluster(message, field=field, found=found, expected=expected)


def _check_owner(path: str, identity: Identity, cluster_id: ClusterId, store_id: StoreId) -> None:
    _compare(
        path,
        "cluster_id",
        identity.cluster_id,
        cluster_id,
        f"belongs to cluster {identity.cluster_id!r}, this store is of cluster {cluster_id!r}",
    )
    _compare(
        path,
        "store_id",
        identity.store_id,
        store_id,
        f"belongs to store {identity.store_id!r}, this is store {store_id!r}",
    )


def _check_version(path: str, identity: Identity, known: VersionRange) -> None:
    readable = known.written(FORMAT)
    if identity.format_version not in readable:
        numbers = ", ".join(map(str, sorted(readable)))
        at = identity.cluster_version
        raise WrongCluster(
            f"the data directory {path} has format version {identity.format_version}"
            + (f", that of cluster version {at}" if at else "")
            + f"; this program reads version {numbers}, for cluster versions {known}",
            field="format_version",
            found=identity.format_version,
            expected=numbers,
        )
    _compare(
        path,
        "hard_bounds",
        identity.hard_bounds,
        hard_bounds_hash(identity.cluster_version),
        "was written with other hard bounds than this program has; "
        "replicas with different bounds would decide differently",
    )


def _check_inode(path: str, vfs: Vfs, identity: Identity) -> None:
    handle = vfs.open_read(posixpath.join(path, IDENTITY_NAME))
    try:
        inode = vfs.inode(handle)
    finally:
        vfs.close(handle)
    _compare(
        path,
        "inode",
        inode,
        identity.inode,
        f"is a copy (its identity file was made as inode {identity.inode}, this one is {inode}); "
        "a copy has forgotten votes and acknowledgements given since. Start the store with an "
        "empty directory and let the cluster replace its replicas",
    )
