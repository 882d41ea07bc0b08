"""Directories of a running store: what is taken, what is refused, what stays as it was.

It names INV-DIRS-1, INV-DIRS-2 and INV-HOST-5.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from logservice_wire.errors import (
    Busy,
    InvalidArgument,
    LogServiceError,
    NotReady,
    VerbRefused,
    WrongCluster,
)

from logservice import bounds
from logservice.bounds import DIRECTORY_CHANGE_RETRY_S
from logservice.hakeeper.answers.views import ClusterView
from logservice.ids import ClusterId, Incarnation, ReplicaId, ShardId, StoreId
from logservice.invariants import InvariantViolation
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.membership import Member, Membership
from logservice.nodehost.assembly import directory_changes
from logservice.nodehost.assembly.directory_changes import DirectoryChanges
from logservice.nodehost.assembly.store_directory import DiskSeams, StoreDirectory
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.integrity.scrub import Scrubber
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.sealing_keys import Keys
from tests.nodehost.assembled import CLUSTER, assemble
from tests.nodehost.cluster import log_machine, request
from tests.tmpfs import fill, mounted
from tests.waiting import eventually

ONE = ShardId(1)
S1 = StoreId("s1")


class Disk(PosixVfs):
    """A disk that refuses to make files, or takes its time, when told."""

    def __init__(self) -> None:
        super().__init__()
        self.read_only: set[str] = set()
        self.stuck: dict[str, threading.Event] = {}
        self.waiting: set[str] = set()
        """Of `stuck`, where somebody waits."""

    def make_directory(self, path: str) -> None:
        for name, event in self.stuck.items():
            if path.startswith(name):
                self.waiting.add(name)
                event.wait()
        if path in self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        super().make_directory(path)


@dataclass
class Company:
    """Says who came and who left."""

    here: list[TruncationWorker] = field(default_factory=list)
    scrubs: list[asyncio.Task[None]] = field(default_factory=list)

    def joined(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        self.here.append(worker)
        self.scrubs.append(asyncio.ensure_future(scrubber.run()))

    async def left(self, worker: TruncationWorker, scrubber: Scrubber) -> None:
        if worker in self.here:
            self.here.remove(worker)
        await scrubber.end()


class World:
    """One store with one directory, and a file that names some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Disk()
        self.company = Company()
        self.fatal: list[BaseException] = []
        self.named = [self.path("a"), self.path("b")]
        self.kept = ""
        self.drained: set[Incarnation] = set()
        self.parts = self._assemble(["a"])
        self.changes = self._changes()

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def file(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, text: str) -> None:
        self.file(name).parent.mkdir(exist_ok=True)
        self.file(name).write_text(text)

    def held(self, name: str) -> bool:
        """Whether somebody has the lock of the directory, or is still about to take it."""
        if not self.file(f"{name}/IDENTITY").exists():
            return True
        with self.file(f"{name}/LOCK").open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def names(self) -> list[str]:
        return sorted(one.name for one in self.folder.iterdir())

    def link(self, name: str, to: str) -> None:
        self.file(name).symlink_to(self.file(to))

    def copy(self, name: str, to: str) -> None:
        shutil.copytree(self.file(name), self.file(to))

    def holds(self, name: str) -> bytes | None:
        return self.file(name).read_bytes() if self.file(name).is_file() else None

    def _assemble(self, names: list[str]) -> StoreParts:
        network = MemoryNetwork()
        return assemble(
            S1,
            [self.path(name) for name in names],
            lambda identity: MemoryTransport(identity, network),
            options=NodeHostOptions(tick_ms=10, election_ticks=20),
            on_fatal=self.fatal.append,
            disk=lambda _: DiskSeams.on_files(self.disk),
            state_machines=log_machine,
        )

    def _changes(self) -> DirectoryChanges:
        return DirectoryChanges(
            self.parts, self.company, lambda: self.named, lambda path: self.kept and path
        )

    def hakeeper_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """HAKeeper's answers: every directory is known, those in `drained` are, and empty."""

        async def summary(timeout_s: float) -> ClusterView:
            from logservice.hakeeper.answers.views import DirectoryView, StoreView

            directories = tuple(
                DirectoryView(
                    one.data.path,
                    one.used.incarnation,
                    0,
                    0,
                    0,
                    "",
                    draining=one.used.incarnation in self.drained,
                    empty=one.used.incarnation in self.drained,
                )
                for one in self.parts.directories
            )
            store = StoreView(S1, "", "", "", False, 0, 0, directories)
            view = object.__new__(ClusterView)
            object.__setattr__(view, "stores", (store,))
            return view

        monkeypatch.setattr(self.parts.client, "summary", summary)

    async def start_replica(self, incarnation: Incarnation, replica: int = 7) -> None:
        member = Member(ReplicaId(replica), S1, incarnation)
        await self.parts.host.replicas.start(
            ONE,
            ReplicaId(replica),
            Membership((ReplicaId(replica),), members=(member,)),
            join=False,
            incarnation=incarnation,
        )

    async def restart(self, names: list[str]) -> None:
        await self.down()
        self.parts = self._assemble(names)
        self.changes = self._changes()
        await self.parts.start()

    async def down(self) -> None:
        await self.changes.stop()
        for task in self.company.scrubs:
            task.cancel()
        await asyncio.gather(*self.company.scrubs, return_exceptions=True)
        await self.parts.stop()
        self.parts.close()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    one = World(tmp_path)
    one.hakeeper_says(monkeypatch)
    await one.parts.start()
    yield one
    for event in one.disk.stuck.values():
        event.set()
    await one.down()
    assert one.fatal == []


def used(world: World) -> list[str]:
    assert [one.path for one in world.parts.host.directories] == [
        one.data.path for one in world.parts.directories
    ]
    assert len(world.parts.workers) == len(world.parts.scrubbers) == len(world.parts.directories)
    return [Path(one.data.path).name for one in world.parts.directories]


async def error_of(work: Callable[[], object]) -> LogServiceError:
    with pytest.raises(LogServiceError) as caught:
        await work()  # type: ignore[misc]
    return caught.value


async def test_a_new_directory_is_used_at_once_and_again_after_a_restart(world: World) -> None:
    incarnation = await world.changes.add(world.path("b"))
    assert used(world) == ["a", "b"]
    assert world.parts.host.identity.incarnations[1] == incarnation
    assert world.parts.host.transport.identity == world.parts.host.identity  # type: ignore[attr-defined]
    assert len(world.company.here) == 1
    await world.start_replica(incarnation)
    await eventually(lambda: world.parts.host.replicas.running[ONE].raft.leader)
    await world.parts.host.append(ONE, request(1, b"kept"), 30)
    assert await world.changes.add(world.path("b")) == incarnation, "once more changes nothing"
    await world.restart(["a", "b"])
    assert used(world) == ["a", "b"]
    assert world.parts.host.replicas.running[ONE].incarnation == incarnation


async def test_the_engines_wait_for_no_disk_while_there_are_two(world: World) -> None:
    (first,) = world.parts.host.directories
    alone = first.engine.inline_max_s
    incarnation = await world.changes.add(world.path("b"))
    assert [one.engine.inline_max_s for one in world.parts.host.directories] == [-1.0, -1.0]
    world.drained.add(incarnation)
    await world.changes.remove(world.path("b"))
    assert first.engine.inline_max_s == alone > 0


@pytest.mark.parametrize("path", ["b", "./b", "", "../b"])
async def test_a_path_that_is_not_absolute(world: World, path: str) -> None:
    for verb in (world.changes.add, world.changes.remove):
        error = await error_of(lambda verb=verb: verb(path))  # type: ignore[misc]
        assert isinstance(error, InvalidArgument)
        assert "absolute" in error.message
    assert used(world) == ["a"]


async def test_a_path_that_the_file_does_not_name(world: World) -> None:
    """INV-DIRS-1"""
    error = await error_of(lambda: world.changes.add(world.path("c")))
    assert isinstance(error, InvalidArgument)
    assert "does not name" in error.message
    assert "c" not in world.names()
    world.named.append(world.path("c") + "/")
    assert await world.changes.add(world.path("x/../c"))
    assert used(world) == ["a", "c"]


async def test_a_file_that_does_not_read(world: World) -> None:
    def unreadable() -> list[str]:
        raise InvalidArgument("no such table", field="store")

    world.changes = DirectoryChanges(world.parts, world.company, unreadable)
    assert "no such table" in (await error_of(lambda: world.changes.add(world.path("b")))).message
    assert used(world) == ["a"]


@pytest.mark.parametrize(("cluster", "store"), [(ClusterId("other"), S1), (CLUSTER, StoreId("s2"))])
async def test_of_another_store_or_cluster(
    world: World, cluster: ClusterId, store: StoreId
) -> None:
    DataDirectory.open(world.path("b"), vfs=PosixVfs(), cluster_id=cluster, store_id=store).close()
    before = world.holds("b/IDENTITY")
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert isinstance(error, WrongCluster)
    assert used(world) == ["a"]
    assert world.holds("b/IDENTITY") == before


async def test_in_use_by_another_process(world: World) -> None:
    other = DataDirectory.open(
        world.path("b"), vfs=PosixVfs(), cluster_id=CLUSTER, store_id=StoreId("s2")
    )
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert "uses the data directory" in error.message or isinstance(error, WrongCluster)
    other.close()


async def test_no_more_directories_than_a_heartbeat_names(world: World) -> None:
    """DATA_DIRECTORIES_MAX, also when the file names others by now."""
    names = [f"d{number}" for number in range(bounds.DATA_DIRECTORIES_MAX)]
    world.named = [world.path(name) for name in names]
    for name in names[:-1]:
        await world.changes.add(world.path(name))
    error = await error_of(lambda: world.changes.add(world.path(names[-1])))
    assert isinstance(error, VerbRefused)
    assert len(used(world)) == bounds.DATA_DIRECTORIES_MAX
    assert names[-1] not in world.names()


async def test_a_process_without_descriptors_for_another_one(world: World) -> None:
    said: list[int] = []

    def crowded(count: int) -> str:
        said.append(count)
        return "too few descriptors"

    world.changes = DirectoryChanges(
        world.parts, world.company, lambda: world.named, crowded=crowded
    )
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert isinstance(error, VerbRefused)
    assert said == [2]
    assert "b" not in world.names()


async def test_a_symlink_to_one_that_is_used(world: World) -> None:
    world.link("b", "a")
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert isinstance(error, InvalidArgument)
    assert used(world) == ["a"]
    await world.start_replica(world.parts.host.identity.incarnations[0])


async def test_one_that_was_used_before_is_for_a_restart(world: World) -> None:
    """It may hold replicas, and it may belong to a store that was forgotten."""
    await world.restart(["a", "b"])
    await world.restart(["a"])
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert "was used before" in error.message
    assert used(world) == ["a"]
    await world.restart(["a", "b"])
    assert used(world) == ["a", "b"]


async def test_a_copy_of_one_that_is_used(world: World) -> None:
    world.copy("a", "b")
    assert "was used before" in (await error_of(lambda: world.changes.add(world.path("b")))).message
    assert used(world) == ["a"]


async def test_one_with_other_files(world: World) -> None:
    world.write("b/somebody.else", "mine")
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert "not empty" in error.message
    assert used(world) == ["a"]
    assert world.holds("b/somebody.else") == b"mine"


async def test_a_file_in_its_place(world: World) -> None:
    world.write("b", "a file")
    assert isinstance(await error_of(lambda: world.changes.add(world.path("b"))), InvalidArgument)
    assert used(world) == ["a"]


async def test_a_read_only_disk(world: World) -> None:
    world.disk.read_only.add(world.path("b"))
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert isinstance(error, InvalidArgument)
    assert "Read-only" in error.message
    assert used(world) == ["a"]
    world.disk.read_only.clear()
    await world.changes.add(world.path("b"))
    assert used(world) == ["a", "b"]


async def test_a_full_disk(world: World) -> None:
    with mounted([world.file("b")], 4 << 20):
        foreign = fill(world.file("b"), 0)
        error = await error_of(lambda: world.changes.add(world.path("b")))
        assert isinstance(error, InvalidArgument)
        assert used(world) == ["a"]
        foreign.unlink()
        await world.changes.add(world.path("b"))
        assert used(world) == ["a", "b"]
        await world.restart(["a"])


async def test_a_disk_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store goes on; when the disk answers later the directory is closed again."""
    monkeypatch.setattr(directory_changes.bounds, "DIRECTORY_OPEN_S", 0.05)
    event = world.disk.stuck[world.path("b")] = threading.Event()
    error = await error_of(lambda: world.changes.add(world.path("b")))
    assert isinstance(error, NotReady)
    assert used(world) == ["a"]
    await world.start_replica(world.parts.host.identity.incarnations[0])
    event.set()
    monkeypatch.setattr(directory_changes.bounds, "DIRECTORY_OPEN_S", 60.0)

    # Whoever opened it late closes it, and then it can be added.
    await eventually(lambda: not world.held("b"))
    await world.changes.add(world.path("b"))
    assert used(world) == ["a", "b"]


async def test_what_changes_while_a_directory_opens_reaches_it(world: World) -> None:
    """Keys are rotated, and a configuration is taken up, while the disk takes its time."""
    event = world.disk.stuck[world.path("b")] = threading.Event()
    adding = asyncio.ensure_future(world.changes.add(world.path("b")))
    await eventually(lambda: world.disk.waiting)
    keys = Keys("k1", {"k1": bytes(range(32))})
    world.parts.use_keys(keys)
    world.parts.configure(60.0, 12_345, 60.0)
    event.set()
    await adding
    assert used(world) == ["a", "b"]
    assert [one.logdb._files.keys.ring for one in world.parts.directories] == [keys, keys]
    assert [one.used.budget.bytes_per_s for one in world.parts.directories] == [12_345, 12_345]


async def test_one_that_cannot_be_taken_is_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened, and could not be marked for the cluster's version, which was raised meanwhile."""

    async def broken(directory: StoreDirectory, version: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    event = world.disk.stuck[world.path("b")] = threading.Event()
    adding = asyncio.ensure_future(world.changes.add(world.path("b")))
    await eventually(lambda: world.changes._busy)
    with monkeypatch.context() as patch:
        patch.setattr(StoreDirectory, "raise_version", broken)
        patch.setattr(StoreDirectory, "cluster_version", 0)
        event.set()
        assert isinstance(await error_of(lambda: adding), InvalidArgument)
    assert used(world) == ["a"]
    await eventually(lambda: not world.held("b"))
    await world.changes.add(world.path("b"))
    assert used(world) == ["a", "b"]


async def test_one_change_at_a_time(world: World) -> None:
    event = world.disk.stuck[world.path("b")] = threading.Event()
    first = asyncio.ensure_future(world.changes.add(world.path("b")))
    await eventually(lambda: world.changes._busy)
    for _ in range(200):
        error = await error_of(lambda: world.changes.remove(world.path("a")))
        assert isinstance(error, Busy)
        assert error.metadata["retry_after_ms"] == str(int(DIRECTORY_CHANGE_RETRY_S * 1000))
    event.set()
    await first
    assert used(world) == ["a", "b"]


async def test_a_caller_who_leaves_changes_nothing_of_it(world: World) -> None:
    event = world.disk.stuck[world.path("b")] = threading.Event()
    caller = asyncio.ensure_future(world.changes.add(world.path("b")))
    await eventually(lambda: world.changes._busy)
    caller.cancel()
    event.set()
    await eventually(lambda: used(world) == ["a", "b"])


async def test_removed_when_drained_and_empty(world: World) -> None:
    """INV-DIRS-2"""
    assert (
        "only data directory"
        in (await error_of(lambda: world.changes.remove(world.path("a")))).message
    )
    incarnation = await world.changes.add(world.path("b"))
    error = await error_of(lambda: world.changes.remove(world.path("b")))
    assert isinstance(error, VerbRefused)
    assert "not drained" in error.message
    await world.start_replica(incarnation)
    world.drained.add(incarnation)
    error = await error_of(lambda: world.changes.remove(world.path("b")))
    assert "replicas have data" in error.message
    assert world.parts.host.replicas.running[ONE].incarnation == incarnation
    await world.parts.host.replicas.remove(ONE, ReplicaId(7))
    assert await world.changes.remove(world.path("b")) == incarnation
    assert used(world) == ["a"]
    assert world.parts.host.identity.incarnations == (world.parts.directories[0].used.incarnation,)
    assert world.company.here == []
    DataDirectory.open(world.path("b"), vfs=PosixVfs(), cluster_id=CLUSTER, store_id=S1).close()
    with pytest.raises(InvalidArgument):
        await world.start_replica(incarnation, 8)
    assert await world.changes.remove(world.path("b")) == incarnation, "once more is no harm"
    error = await error_of(lambda: world.changes.remove(world.path("c")))
    assert "the data directories here" in error.message


async def test_what_was_let_go_of_may_come_again(world: World) -> None:
    incarnation = await world.changes.add(world.path("b"))
    world.drained.add(incarnation)
    for _ in range(3):
        await world.changes.remove(world.path("b"))
        assert await world.changes.add(world.path("b")) == incarnation
    await world.start_replica(incarnation)


async def test_nothing_begins_in_a_directory_that_is_leaving(world: World) -> None:
    incarnation = await world.changes.add(world.path("b"))
    directory = world.parts.directories[1].used
    directory.leaving = True
    with pytest.raises(InvalidArgument):
        await world.start_replica(incarnation)
    assert world.parts.host.directories.roomiest() is not directory
    await world.start_replica(world.parts.directories[0].used.incarnation)


async def test_what_has_to_stay_keeps_its_directory(world: World) -> None:
    incarnation = await world.changes.add(world.path("b"))
    world.drained.add(incarnation)
    world.kept = "the audit log"
    assert isinstance(await error_of(lambda: world.changes.remove(world.path("b"))), VerbRefused)
    assert used(world) == ["a", "b"]


async def test_one_that_failed_goes_and_leaves_no_halted_replica(world: World) -> None:
    incarnation = await world.changes.add(world.path("b"))
    await world.start_replica(incarnation)
    world.parts.host.replicas.directory_failed(
        world.parts.directories[1].used, OSError(errno.EIO, "broken")
    )
    assert ONE in world.parts.host.halts.all()
    world.drained.add(incarnation)
    await world.changes.remove(world.path("b"))
    assert used(world) == ["a"]
    assert world.parts.host.halts.all() == {}


async def test_the_last_that_works_stays(world: World) -> None:
    await world.changes.add(world.path("b"))
    first = world.parts.directories[0].used
    world.parts.host.replicas.directory_failed(
        world.parts.directories[1].used, OSError(errno.EIO, "broken")
    )
    world.drained.add(first.incarnation)
    error = await error_of(lambda: world.changes.remove(first.path))
    assert "no other data directory" in error.message


async def test_a_directory_with_a_running_replica_is_never_dropped(world: World) -> None:
    """INV-HOST-5"""
    incarnation = await world.changes.add(world.path("b"))
    await world.start_replica(incarnation)
    with pytest.raises(InvariantViolation):
        world.parts.host.remove_directory(world.parts.directories[1].used)
    assert used(world) == ["a", "b"]


def test_how_long_a_disk_may_take() -> None:
    assert bounds.DIRECTORY_OPEN_S > bounds.HEARTBEAT_TIMEOUT_S
