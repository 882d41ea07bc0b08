"""Exported snapshots: files beside the log, which is not compacted behind them.

``<directory>/shard-<id>/replica-<id>/snapshot-<index, 16 hex digits>.snap`` holds one
`Snapshot.encode()`. Exports have two purposes: when the truncation LSN has passed one of them, the
log can be compacted behind exactly that point (`nodehost.truncation.worker`), and a restart begins
close to the applied index. Losing one costs space and time, never a record. This file alone decides
which exports there are:

- INV-EXPORT-1: a file counts only when its bytes verify and its index is the one in its name. Other
  files are ignored and counted, and removed after the next successful export of the replica: until
  then they are evidence, and nothing is removed before there is something newer.
- INV-EXPORT-2: over the quota, the export goes whose removal leaves the smallest gap in log bytes,
  never the oldest (the first that a truncation will reach) and never the newest (where a restart
  begins).

A file appears whole or not at all: it is written under another name, fdatasynced and renamed, and
the directory is fsynced. If that fails the half-written file is never looked at again, so going on
is safe.

Threads: the methods that read or write files may run on one worker thread while the loop thread
asks for counts. They share only tuples, which are replaced and never changed. `remove_replica` may
race with a late `add` of the same replica; the truncation worker's next visit removes what the race
leaves.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import re
from collections.abc import Sequence
from typing import Final

from logservice.bounds import EXPORTED_SNAPSHOTS_MAX
from logservice.ids import Index, ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.logdb.io.vfs import Vfs, read_file, write_file
from logservice.nodehost.truncation.log_meter import LogMeter
from logservice.snapshot import Snapshot, SnapshotCorrupt

_SHARD_NAME: Final = re.compile(r"shard-(0|[1-9][0-9]{0,19})")
_REPLICA_NAME: Final = re.compile(r"replica-(0|[1-9][0-9]{0,19})")
_FILE_NAME: Final = re.compile(r"snapshot-([0-9a-f]{16})\.snap")

_BEYOND_EVERY_INDEX: Final = Index(2**64)

ReplicaKey = tuple[ShardId, ReplicaId]


class ExportedSnapshots:
    """All exported snapshots of one data directory."""

    def __init__(
        self,
        vfs: Vfs,
        directory: str,
        meter: LogMeter,
        *,
        count_max: int = EXPORTED_SNAPSHOTS_MAX,
    ) -> None:
        """Find what is in `directory`, which is created if missing. Each replica may have
        `count_max` exports, at least 2.

        Raises OSError.
        """
        invariant(count_max >= 2, "INV-EXPORT-2", count_max=count_max)
        self._vfs = vfs
        self._directory = directory
        self._meter = meter
        self._count_max = count_max
        # Both ascend by index. They are rebuilt from names; files are read and verified when first
        # needed.
        self._exports: dict[ReplicaKey, tuple[Index, ...]] = {}
        self._unread: dict[ReplicaKey, tuple[Index, ...]] = {}
        self._sizes: dict[ReplicaKey, tuple[tuple[Index, int], ...]] = {}
        """Bytes of the files that were read or written, the newest last; for people."""
        self.damaged_count = 0
        """Files that were found damaged since the store started."""
        self.rebuild()

    def rebuild(self) -> None:
        """Replace what is known by what is on disk."""
        self._exports.clear()
        self._unread.clear()
        self._sizes.clear()
        if not self._vfs.exists(self._directory):
            self._vfs.make_directory(self._directory)
            self._vfs.fsync_directory(posixpath.dirname(self._directory))
        for shard_name in self._vfs.listdir(self._directory):
            shard = _SHARD_NAME.fullmatch(shard_name)
            if shard is None:
                continue
            for replica_name in self._vfs.listdir(f"{self._directory}/{shard_name}"):
                replica = _REPLICA_NAME.fullmatch(replica_name)
                if replica is None:
                    continue
                key = (ShardId(int(shard[1])), ReplicaId(int(replica[1])))
                names = self._vfs.listdir(self._replica_directory(key))
                self._unread[key] = tuple(sorted(filter(None, map(_index_of, names))))

    def replicas(self) -> list[ReplicaKey]:
        """Every (shard, replica) that has a directory here, sorted."""
        return sorted({*self._exports, *self._unread})

    def count(self, shard: ShardId, replica: ReplicaId) -> int:
        """The number of exported snapshots of a replica."""
        key = (shard, replica)
        unread = self._unread.get(key)
        return len(self._exports.get(key, ())) if unread is None else len(unread)

    def known_bytes(self, shard: ShardId, replica: ReplicaId) -> int:
        """Bytes of the replica's exports, but for those that were not read yet."""
        known = self._exports.get((shard, replica), ())
        return sum(size for index, size in self._sizes.get((shard, replica), ()) if index in known)

    def newest_known_index(self, shard: ShardId, replica: ReplicaId) -> Index:
        """As `newest_index`, by the names of the files where they were not read yet."""
        key = (shard, replica)
        found = self._unread.get(key) or self._exports.get(key)
        return found[-1] if found else Index(0)

    def newest_index(self, shard: ShardId, replica: ReplicaId) -> Index:
        """Index of the newest export, 0 when there is none."""
        exports = self._read(shard, replica)
        return exports[-1] if exports else Index(0)

    def oldest_index(self, shard: ShardId, replica: ReplicaId) -> Index:
        """Index of the oldest export; beyond every index when there is none."""
        exports = self._read(shard, replica)
        return exports[0] if exports else _BEYOND_EVERY_INDEX

    def newest(self, shard: ShardId, replica: ReplicaId) -> Snapshot | None:
        """The newest undamaged export: the replica may start from it."""
        unread = self._unread.get((shard, replica))
        if unread is not None:
            # A store that starts makes this call for every replica: it reads one file of each, not
            # all.
            found = (self._verified((shard, replica), index) for index in reversed(unread))
            return next((snapshot for snapshot in found if snapshot is not None), None)
        for export in reversed(self._read(shard, replica)):
            snapshot = self.load(shard, replica, export)
            if snapshot is not None:
                return snapshot
        return None

    def is_read(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether the replica's files were read; if not, the next question about it reads them."""
        return (shard, replica) not in self._unread

    def read(self, shard: ShardId, replica: ReplicaId) -> None:
        """Read and verify the files of a replica; from then on only `load` reads."""
        self._read(shard, replica)

    def largest_at_or_below(self, shard: ShardId, replica: ReplicaId, index: Index) -> Index | None:
        """Index of the newest export at or below `index`."""
        for export in reversed(self._read(shard, replica)):
            if export <= index:
                return export
        return None

    def next_above(self, shard: ShardId, replica: ReplicaId, index: Index) -> Index | None:
        """Index of the oldest export above `index`."""
        for export in self._read(shard, replica):
            if export > index:
                return export
        return None

    def load(self, shard: ShardId, replica: ReplicaId, index: Index) -> Snapshot | None:
        """Read one export. One that became damaged is forgotten, and the answer is None."""
        key = (shard, replica)
        snapshot = self._verified(key, index)
        if snapshot is None:
            exports = self._exports.get(key, ())
            self._exports[key] = tuple(export for export in exports if export != index)
        return snapshot

    def add(self, shard: ShardId, replica: ReplicaId, snapshot: Snapshot) -> None:
        """Export `snapshot`; nothing happens unless it is newer than all others of the replica.

        Then remove what is over the quota, damaged or left over. Raises OSError; `newest_index`
        then says whether the snapshot was added.
        """
        key = (shard, replica)
        exports = self._read(shard, replica)
        if exports and snapshot.index <= exports[-1]:
            return
        directory = self._replica_directory(key)
        if not self._vfs.exists(directory):
            self._vfs.make_directory(directory)
            self._vfs.fsync_directory(posixpath.dirname(directory))
            self._vfs.fsync_directory(self._directory)
        encoded = snapshot.encode()
        write_file(self._vfs, f"{directory}/{_name_of(snapshot.index)}", encoded)
        self._sized(key, snapshot.index, len(encoded))
        exports = (*exports, snapshot.index)
        if len(exports) > self._count_max:
            exports = self._without_smallest_gap(key, exports)
        self._exports[key] = exports
        self._sweep(key)

    def drop_through(self, shard: ShardId, replica: ReplicaId, index: Index) -> None:
        """Remove every export at or below `index`: the log is compacted behind it. Raises
        OSError.
        """
        key = (shard, replica)
        known = self._read(shard, replica)
        kept = tuple(export for export in known if export > index)
        if len(kept) < len(known):
            self._unlink(key, [export for export in known if export <= index])
            self._exports[key] = kept

    def drop_from(self, shard: ShardId, replica: ReplicaId, index: Index) -> None:
        """Remove every export at or above `index`, also files that do not verify now: the entries
        from there on were wrong, so a state made from them may be wrong. Raises OSError.
        """
        key = (shard, replica)
        directory = self._replica_directory(key)
        names = self._vfs.listdir(directory) if self._vfs.exists(directory) else []
        gone = [found for found in map(_index_of, names) if found is not None and found >= index]
        if gone:
            self._unlink(key, gone)
        if known := self._read(shard, replica):
            self._exports[key] = tuple(export for export in known if export < index)

    def remove_replica(self, shard: ShardId, replica: ReplicaId) -> None:
        """Remove all of a replica's exports; nothing happens if there are none. Raises OSError.

        A visit of the worker may be at the same directory at this moment, in another thread, and
        remove or write an export there. What is left then goes at the worker's next visit.
        """
        key = (shard, replica)
        if key in self._exports or key in self._unread:
            # From now on nothing may start from these exports; but until the directory is gone the
            # replica stays known, so that a removal that failed is tried again.
            self._exports[key] = ()
            self._unread.pop(key, None)
        directory = self._replica_directory(key)
        try:
            if self._vfs.exists(directory):
                self._vfs.remove_tree(directory)
                self._vfs.fsync_directory(posixpath.dirname(directory))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
            self._exports.setdefault(key, ())
        else:
            self._exports.pop(key, None)
            self._sizes.pop(key, None)

    def _unlink(self, key: ReplicaKey, indexes: Sequence[Index]) -> None:
        """Remove the files of `indexes`. The caller forgets these exports afterwards, so that a
        removal that failed is tried again when somebody asks again.
        """
        directory = self._replica_directory(key)
        for index in indexes:
            with contextlib.suppress(FileNotFoundError):
                self._vfs.unlink(f"{directory}/{_name_of(index)}")
        self._vfs.fsync_directory(directory)

    def _read(self, shard: ShardId, replica: ReplicaId) -> tuple[Index, ...]:
        """The exports of a replica; reads and verifies its files the first time."""
        key = (shard, replica)
        unread = self._unread.get(key)
        if unread is not None:
            found = (self._verified(key, index) for index in unread)
            self._exports[key] = tuple(snapshot.index for snapshot in found if snapshot is not None)
            self._unread.pop(key, None)
        return self._exports.get(key, ())

    def _verified(self, key: ReplicaKey, index: Index) -> Snapshot | None:
        path = f"{self._replica_directory(key)}/{_name_of(index)}"
        try:
            encoded = read_file(self._vfs, path)
            snapshot = Snapshot.decode(encoded)
        except (OSError, SnapshotCorrupt):
            self.damaged_count += 1
            return None
        if snapshot.index != index:
            self.damaged_count += 1
            return None
        self._sized(key, index, len(encoded))
        return snapshot

    def _sized(self, key: ReplicaKey, index: Index, size: int) -> None:
        known = self._exports.get(key, ()) if key not in self._unread else None
        self._sizes[key] = (
            *(
                one
                for one in self._sizes.get(key, ())
                if one[0] != index and (known is None or one[0] in known)
            ),
            (index, size),
        )

    def _without_smallest_gap(
        self, key: ReplicaKey, exports: tuple[Index, ...]
    ) -> tuple[Index, ...]:
        """`exports` without the one that INV-EXPORT-2 names. At least three are given, so there is
        one between the ends.
        """

        def gap(position: int) -> int:
            before, after = exports[position - 1], exports[position + 1]
            return self._meter.bytes_between(*key, before, after)

        victim = min(range(1, len(exports) - 1), key=gap)
        return exports[:victim] + exports[victim + 1 :]

    def _sweep(self, key: ReplicaKey) -> None:
        """Remove every file of the replica that is no export: over quota, damaged, left over."""
        directory = self._replica_directory(key)
        known = {_name_of(export) for export in self._exports.get(key, ())}
        unknown = [name for name in self._vfs.listdir(directory) if name not in known]
        for name in unknown:
            self._vfs.unlink(f"{directory}/{name}")
        if unknown:
            self._vfs.fsync_directory(directory)

    def _replica_directory(self, key: ReplicaKey) -> str:
        return f"{self._directory}/shard-{key[0]}/replica-{key[1]}"


def _name_of(index: Index) -> str:
    return f"snapshot-{index:016x}.snap"


def _index_of(name: str) -> Index | None:
    match = _FILE_NAME.fullmatch(name)
    return Index(int(match[1], 16)) if match is not None else None
