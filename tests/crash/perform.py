"""The process that is recorded: it performs the steps of a scenario on a real store.

``python -m tests.crash.perform SCENARIO ROOT``: before each step it writes ``@@begin N`` to
/dev/null, and ``@@end N`` after it, so that the recording shows which calls belong to the step. A
third argument names a call of the Vfs that is left out (of `write_durably` only its sync): that is
a store with a bug, and it tests the tester.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from itertools import pairwise

from logservice_wire.errors import LogServiceError

from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.checkpoint.checkpoint import CHECKPOINT_VERSION
from logservice.logdb.format.update import Update
from logservice.logdb.io.kv import KvError
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.truncation.exports import ExportedSnapshots
from logservice.snapshot import Snapshot
from tests.crash.plain import look
from tests.crash.scenarios import script_of
from tests.crash.script import Do, Script, Step
from tests.logdb.helpers import World, members, update

EXPORTS = "exports"
_INDEX_META, _INDEX_VERSION_BYTES = b"m", 4
"""The row of the derived index that begins with its version; see `logdb.checkpoint.checkpoint`."""
EXPORTS_MAX = 4
STOPPED = 7
"""Exit code of a process that met a failing call and stopped, as it must."""


class Files(PosixVfs):
    """The real file system, with two changes.

    `inode` is the same for all files, because a tree that is put together again has new inodes, and
    INV-DIR-3 would call it a copy. A durable write can be made to fail with a part of it written,
    or with all of it written and the sync missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written_share: float | None = None
        self.sync_fails = False

    def inode(self, handle: int) -> int:
        return 4242

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        if self.sync_fails:
            self.sync_fails = False
            self.pwritev(handle, buffers, offset)
            raise OSError(errno.EIO, "sync fails on purpose")
        share, self.written_share = self.written_share, None
        if share is None:
            super().write_durably(handle, buffers, offset)
            return
        data = b"".join(buffers)
        # A torn write never has all bytes that count: the padding at its end is zeros, and so is
        # what it overwrites.
        data = data[: min(int(len(data) * share), len(data.rstrip(b"\0")) - 1)]
        if data:
            self.pwritev(handle, [data], offset)
        raise OSError(errno.EIO, "torn on purpose")


class NoMeter:
    """A meter that says that every stretch of a log has as many bytes as entries."""

    def bytes_between(self, shard: ShardId, replica: ReplicaId, after: Index, to: Index) -> int:
        return to - after


def exports_in(root: str) -> ExportedSnapshots:
    """The exports of the store in `root`."""
    return ExportedSnapshots(Files(), f"{root}/{EXPORTS}", NoMeter(), count_max=EXPORTS_MAX)


def world_in(root: str, script: Script) -> World:
    """The store in `root`."""
    files = Files()
    return World(
        files,
        LevelDbEngine(files),
        root,
        script.options,
        cluster_version=script.cluster_version,
    )


class Performer:
    """A store, and what the steps do to it."""

    def __init__(self, root: str, script: Script) -> None:
        self._root = root
        self._world = world_in(root, script)
        self._script = script
        self._db: LogDb = self._world.open()
        self._exports: ExportedSnapshots | None = None
        self._ahead: CommitGroup | None = None
        self.begun_ahead = 0

    @property
    def files(self) -> Files:
        assert isinstance(self._world.vfs, Files)
        return self._world.vfs

    def perform(self, step: Step, following: Step | None = None) -> None:
        """Perform one step. `following`: the next step, which may begin within this one."""
        match step.do:
            case Do.COMMIT if self._script.pipelined:
                self._commit_and_begin(step, following)
            case Do.COMMIT:
                self._db.commit(step.updates)
            case Do.COMMIT_UNSYNCED:
                self._db.commit(step.updates, sync=False)
            case Do.MARK:
                self._db.mark_durable()
            case Do.CHECKPOINT:
                self._db.checkpoint()
            case Do.COLLECT:
                self._db.collect_garbage()
            case Do.RESTART:
                self._restart()
            case Do.LOSE_INDEX:
                self._world.close(self._db)
                self._world.kv.destroy(f"{self._root}/index")
                self._db = self._world.open()
            case Do.UPGRADE:
                self._upgrade()
            case Do.RAISE:
                assert self._world.directory is not None
                self._world.directory.raise_version(2)
            case Do.EXPORT | Do.DROP_EXPORTS:
                self._export(step)
            case Do.KILL | Do.TEAR:
                self.files.written_share = step.share
                self._dies_in(step.updates or (update(99, 1, hard=(1, 1, 0)),))
            case Do.SYNC_FAILS:
                self.files.sync_fails = True
                self._dies_in(step.updates)

    @property
    def store(self) -> LogDb:
        """The store as it is open now."""
        return self._db

    def close(self) -> None:
        """End the process cleanly."""
        self._world.close(self._db)

    def commit(self, *updates: Update) -> None:
        """Commit without a step of the scenario."""
        self._db.commit(updates)

    def _commit_and_begin(self, step: Step, following: Step | None) -> None:
        group, self._ahead = self._ahead or self._db.begin(step.updates), None
        if following is not None and following.do is Do.COMMIT:
            self._ahead = self._db.begin_ahead(following.updates)
            self.begun_ahead += self._ahead is not None
        self._db.write(group)
        self._db.finish(group)

    def _restart(self) -> None:
        """Close the store and open it. After a failure `close` writes nothing: it is a kill
        then.
        """
        self._world.close(self._db)
        self._db = self._world.open()
        self._exports = None

    def _upgrade(self) -> None:
        """Make the files those of a store of the version before that ended cleanly, and open
        them.
        """
        self._world.close(self._db)
        kv = self._world.kv.open(f"{self._root}/index")
        row = kv.get(_INDEX_META)
        assert row is not None
        before = (CHECKPOINT_VERSION - 1).to_bytes(_INDEX_VERSION_BYTES, "little")
        kv.write([(_INDEX_META, before + row[_INDEX_VERSION_BYTES:])])
        kv.close()
        self._db = self._world.open()
        assert "format" in self._db.recovery_report.rebuilt
        self._exports = None

    def _dies_in(self, updates: Sequence[Update]) -> None:
        try:
            self._db.commit(updates)
        except OSError:
            self._restart()
            return
        raise AssertionError("the write was to fail")

    def _export(self, step: Step) -> None:
        if self._exports is None:
            self._exports = exports_in(self._root)
        shard, replica = ShardId(step.key[0]), ReplicaId(step.key[1])
        index = Index(step.index)
        if step.do is Do.DROP_EXPORTS:
            self._exports.drop_through(shard, replica, index)
            return
        snapshot = Snapshot(index, Term(1), Lsn(index + 1), members(), b"state %d" % index * 30)
        self._exports.add(shard, replica, snapshot)

    def judge(self, number: int) -> None:
        """Assert that the store shows what is expected now, so that the scenario itself is
        right.
        """
        seen, wanted = look(self._db), self._script.expected[number].picture
        assert seen == wanted, f"after step {number}"


def main(name: str, root: str, without: str = "") -> None:
    """Perform a scenario in `root`, which does not exist yet or is empty."""
    script = script_of(name)
    if without == "write_durably":
        setattr(PosixVfs, without, PosixVfs.pwritev)
    elif without:
        setattr(Files, without, lambda *_: None)
    mark = os.open("/dev/null", os.O_WRONLY)
    performer = Performer(root, script)
    for number, (step, following) in enumerate(pairwise([*script.steps, None])):
        assert step is not None
        os.write(mark, b"@@begin %d" % number)
        performer.perform(step, following)
        os.write(mark, b"@@end %d" % number)
        performer.judge(number + 1)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, KvError, LogServiceError):
        sys.exit(STOPPED)
