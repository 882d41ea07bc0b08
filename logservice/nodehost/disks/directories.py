"""Directories: which data directory of the store a replica lives in.

A replica stays where its data is; nothing but the data itself records the place. A new replica goes
where the caller says (HAKeeper binds a replica to one incarnation before it starts). When nobody
says, it goes to the working directory with the fewest replicas; of several such, to the first in
the order of the configuration.

A directory may come and go while the store runs (`assembly.directory_changes`). One that is leaving
takes no replica.

INV-HOST-3: data or a tombstone of one (shard, replica) is in at most one directory of the store:
ids are never reused, and `place` finds the holder before it chooses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from logservice_wire.errors import Halted, InvalidArgument

from logservice.clock import Clock
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.ids import Incarnation, ReplicaId, ShardId
from logservice.logdb.format.update import Bootstrap
from logservice.logdb.space.stats import LogDbStats
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.seam import Transport


class Directories:
    """The directories of one store, at least one, in the order of the configuration."""

    def __init__(
        self, directories: Sequence[Directory], unopened: Sequence[DirectoryReport] = ()
    ) -> None:
        """`unopened` are further directories of the store, for reports.

        Raises InvalidArgument when `directories` is empty, or two of them are the same.
        """
        self._all = list(directories)
        self._unopened = tuple(unopened)
        self._make_engine: Callable[[Directory], Engine] | None = None
        self._inline_max_s = -1.0
        incarnations = {directory.incarnation for directory in self._all}
        if not self._all or len(incarnations) != len(self._all):
            raise InvalidArgument("expected different data directories", field="data_directories")

    def __iter__(self) -> Iterator[Directory]:
        """All directories, failed ones too."""
        return iter(tuple(self._all))

    def __len__(self) -> int:
        """The number of directories, failed ones too."""
        return len(self._all)

    def start_engines(
        self,
        transport: Transport,
        clock: Clock,
        options: NodeHostOptions,
        on_fatal: Callable[[BaseException], None],
        on_disk_failed: Callable[[Directory, BaseException], None],
        on_segment: Callable[[Directory], None],
        on_fault: Callable[[ShardId, ReplicaId], None],
        moment: AbstractContextManager[None],
    ) -> None:
        """Give each directory its engine, and those that come later. See `Engine`; for `on_fault`
        see `LogDb`.
        """
        self._inline_max_s = options.fsync_inline_max_s

        def make(directory: Directory) -> Engine:
            directory.logdb.on_fault = on_fault
            return Engine(
                directory.logdb,
                transport,
                directory.executor,
                clock,
                self._inline_s,
                options.group_bytes_goal,
                on_fatal,
                functools.partial(on_disk_failed, directory),
                functools.partial(on_segment, directory),
                moment,
            )

        self._make_engine = make
        for directory in self._all:
            directory.engine = make(directory)

    @property
    def _inline_s(self) -> float:
        """For how slow a disk the loop waits. A stuck disk must not stop the others: with several
        disks the loop waits for none.
        """
        return self._inline_max_s if len(self._all) == 1 else -1.0

    def add(self, directory: Directory) -> None:
        """One more, while the engines run."""
        assert self._make_engine is not None
        self._all.append(directory)
        directory.engine = self._make_engine(directory)
        self._follow_number()

    def remove(self, directory: Directory) -> None:
        """It is not used any more. Its engine goes on until somebody stops it."""
        self._all.remove(directory)
        self._follow_number()

    def _follow_number(self) -> None:
        for directory in self._all:
            directory.engine.inline_max_s = self._inline_s

    def infos(self) -> list[DirectoryReport]:
        """The report of each directory, also of those that failed or were not opened."""
        return [*(directory.info() for directory in self._all), *self._unopened]

    def stats(self) -> list[LogDbStats]:
        """Counters of log storage, for each working directory."""
        return [directory.logdb.stats() for directory in self.working]

    @property
    def working(self) -> list[Directory]:
        """The directories that did not fail."""
        return [directory for directory in self._all if not directory.failed]

    def holding(self, shard: ShardId, replica: ReplicaId) -> Directory | None:
        """The directory with the replica's data or tombstone, whether it failed or not."""
        for directory in self._all:
            if directory.logdb.knows(shard, replica):
                return directory
        return None

    def replicas(self) -> list[tuple[ShardId, ReplicaId]]:
        """Every replica with data in a working directory, sorted."""
        return sorted(key for directory in self.working for key in directory.logdb.replicas())

    def stores(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether a working directory has data of the replica: whether it is in `replicas`."""
        return any(directory.logdb.stores(shard, replica) for directory in self.working)

    def bootstrap_of(self, shard: ShardId) -> Bootstrap | None:
        """The bootstrap of the newest replica of `shard` that is stored here."""
        for stored_shard, replica in reversed(self.replicas()):
            if stored_shard == shard:
                return self.place(shard, replica).logdb.log(shard, replica).bootstrap
        return None

    def removed(self, shard: ShardId, replica: ReplicaId) -> bool:
        """Whether the replica was removed here, so that its id is refused for ever."""
        return any(directory.logdb.has_removed(shard, replica) for directory in self._all)

    def place(
        self, shard: ShardId, replica: ReplicaId, incarnation: Incarnation | None = None
    ) -> Directory:
        """Where the replica is or shall be. `incarnation` says where the caller wants it.

        Raises InvalidArgument{field: incarnation} when the replica is somewhere else, or there is
        no such directory; Halted when that directory failed.
        """
        found = self.holding(shard, replica)
        if incarnation is not None:
            wanted = self.of(incarnation)
            if wanted is None or found not in (None, wanted):
                known = ", ".join(str(one.incarnation) for one in self._all)
                raise InvalidArgument(
                    f"the data directories here are {known}; replica {replica} of shard {shard}"
                    f" is not in {incarnation}",
                    field="incarnation",
                )
            found = wanted
        found = found or self.roomiest()
        if found.failed:
            raise Halted(f"data directory {found.path}: {found.failed}", shard=shard)
        if found.leaving and not found.logdb.knows(shard, replica):
            raise InvalidArgument(f"{found.path} is being removed", field="incarnation")
        return found

    def of(self, incarnation: Incarnation) -> Directory | None:
        """The directory with this incarnation, None when there is none."""
        for directory in self._all:
            if directory.incarnation == incarnation:
                return directory
        return None

    def roomiest(self) -> Directory:
        """The working directory with the fewest replicas; raises Halted when none works."""
        if not self.working:
            raise Halted("every data directory of the store failed")
        staying = [one for one in self.working if not one.leaving] or self.working
        return min(staying, key=lambda directory: len(directory.logdb.replicas()))
