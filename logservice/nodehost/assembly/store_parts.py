"""StoreParts: the parts of one store behind the edge, put together in one place.

The server and the simulator run the same store. They differ in its seams (files, key-value engine,
transport, clock, executors, chance) and in who serves clients. So the assembly is here, and only
here. It makes the data directories (identity, log storage with its recovery, exported snapshots),
then the NodeHost, then HAKeeper's part (address book, client, bootstrap, shell, heartbeats), then a
truncation worker for each directory.

What can be refused is refused by the constructor, before a port is open: a foreign or copied data
directory, log storage that does not open. `start` opens the peer port and starts every replica
found. `background` returns what goes on for ever, for the caller to run: the caller decides what to
do when such a part fails (INV-STORE-1: end the process).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import posixpath
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from logservice_wire.errors import InvalidArgument, NotReady, ShardNotFound

from logservice import bounds
from logservice.clock import Clock
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    ClusterId,
    Incarnation,
    ReplicaId,
    ShardId,
    StoreId,
)
from logservice.invariants import InvariantViolation
from logservice.logdb.io.kv import KvError
from logservice.logdb.options import LogDbOptions
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Membership, decoded
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.bootstrap import Bootstrapper, InitialMember
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration, HAKeeperTicks
from logservice.nodehost.agent.heartbeats import HeartbeatSender, StoreDescription
from logservice.nodehost.agent.lookups import Lookups
from logservice.nodehost.agent.remembered_file import Copy
from logservice.nodehost.agent.version_learner import VersionLearner, said_by_all
from logservice.nodehost.assembly.store_directory import (
    DiskSeams,
    StoreDirectory,
    disk_failed,
    unopened,
)
from logservice.nodehost.integrity.comparison import Comparer
from logservice.nodehost.integrity.repair import Repairer
from logservice.nodehost.integrity.scrub import Scrubber, ScrubPass
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.rsm.log_rsm import LogRsm
from logservice.sealing_keys import Keys
from logservice.state_machine import StateMachine
from logservice.trace import NO_TRACING, Tracing
from logservice.versions import KNOWN, VersionRange

_BOOTSTRAP_ROUND_S: Final = 10.0
"""How often a first start that waits for other members says so."""

INTEGRITY: Final = (
    "recovery_damages",
    "recovery_unattributed",
    "scrub_passes",
    "scrub_bytes",
    "scrub_damages",
    "compare_passes",
    "compare_ranges",
    "compare_states",
    "compare_served",
    "compare_refused",
    "compare_wrong",
    "compare_undecided",
    "compare_contested",
    "compare_halted",
    "repair_repaired",
    "repair_entries",
    "repair_snapshots",
    "repair_waited",
)
"""The keys of `StoreParts.integrity_counts`. A count that is still 0 is there, too, so that alerts
see the 0."""

logger = logging.getLogger(__name__)


def state_machine_for(shard: ShardId) -> StateMachine:
    """What a shard replicates: HAKeeper in shard 0, a log in every other shard."""
    return HAKeeperRsm() if shard == HAKEEPER_SHARD else LogRsm()


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What a store is told. `members` are the stores that form shard 0 at the very first start."""

    cluster_id: ClusterId
    store_id: StoreId
    data_directories: Sequence[str]
    members: Sequence[InitialMember]
    first: FirstConfiguration
    options: NodeHostOptions = field(default_factory=NodeHostOptions)
    logdb: LogDbOptions = field(default_factory=LogDbOptions)
    keys: Keys | None = None
    """What entries are encrypted with; None: they are plain."""
    exports_max: int = bounds.EXPORTED_SNAPSHOTS_MAX
    replay_entries_max: int = bounds.TRUNCATION_REPLAY_ENTRIES_MAX
    hakeeper_tick_s: float = 1.0 / bounds.HAKEEPER_TICKS_PER_S
    heartbeat_interval_s: float = 1.0
    scrub_interval_s: float = bounds.SCRUB_PASS_INTERVAL_S
    scrub_bytes_per_s: int = bounds.SCRUB_BYTES_PER_S
    compare_interval_s: float = bounds.SCRUB_PASS_INTERVAL_S
    versions: VersionRange = KNOWN
    """The cluster versions that the store's program knows."""


@dataclass(frozen=True, slots=True)
class StoreSeams:
    """Where a store meets the world.

    disk gives the seams of the data directory at a path; it is asked once for each. draw_id gives
    63 bits that no other incarnation or process start has; in production they come from the
    operating system, because an id that repeats defeats its purpose. draw_bytes gives random bytes
    for the encryption of entries. rng draws election timeouts.
    on_fatal must end the process. on_broken is told of a replica that halts because an invariant of
    it does not hold. tracing records spans.
    """

    disk: Callable[[str], DiskSeams]
    clock: Clock
    make_transport: Callable[[PeerIdentity], Transport]
    draw_id: Callable[[], int]
    rng: random.Random
    on_fatal: Callable[[BaseException], None]
    on_broken: Callable[[InvariantViolation], None] = lambda _: None
    state_machines: Callable[[ShardId], StateMachine] = state_machine_for
    draw_bytes: Callable[[int], bytes] = os.urandom
    tracing: Tracing = NO_TRACING


class StoreParts:
    """See the module's text. Call `start`, run what `background` gives, then `stop` and `close`."""

    def __init__(self, settings: StoreSettings, seams: StoreSeams) -> None:
        """Open storage and put the parts together; nothing is served yet.

        Raises InvalidArgument, WrongCluster (data directory), OSError, KvError.
        """
        self.settings = settings
        self._seams = seams
        self._keys = settings.keys
        self.directories: list[StoreDirectory] = []
        self.unopened: list[DirectoryReport] = []
        try:
            self._open_directories()
            self._assemble()
        except BaseException:
            self.close()
            raise

    def _open_directories(self) -> None:
        """Open all that can be opened. A disk that fails is left out, unless none is left.

        A directory that is empty, or was never there, becomes a new one with a new incarnation: the
        replicas that an earlier one held are lost, and HAKeeper replaces them.
        """
        paths = [posixpath.normpath(path) for path in self.settings.data_directories]
        if len(set(paths)) != len(paths):
            raise InvalidArgument(f"twice the same in {paths}", field="data_directories")
        failure: Exception | None = None
        for path in paths:
            seams = self._seams.disk(path)
            try:
                self.directories.append(self._open(path, seams))
            except (OSError, KvError, InvalidArgument) as error:
                if isinstance(error, InvalidArgument) and not disk_failed(error.__cause__):
                    raise
                logger.error("data directory %s is left out: %s", path, error)
                failure = failure or error
                self.unopened.append(unopened(path, seams, error))
        if not self.directories and failure is not None:
            raise failure

    def _open(self, path: str, disk: DiskSeams) -> StoreDirectory:
        settings, seams = self.settings, self._seams
        return StoreDirectory(
            path,
            disk,
            cluster_id=settings.cluster_id,
            store_id=settings.store_id,
            draw_incarnation=lambda: seams.draw_id() | 1,
            options=settings.logdb,
            keys=self._keys,
            draw_bytes=seams.draw_bytes,
            exports_max=settings.exports_max,
            replay_entries_max=settings.replay_entries_max,
            clock=seams.clock,
            scrub_bytes_per_s=settings.scrub_bytes_per_s,
            known=settings.versions,
        )

    def _assemble(self) -> None:
        settings, seams = self.settings, self._seams
        identity = PeerIdentity(
            settings.cluster_id,
            settings.store_id,
            tuple(directory.data.incarnation for directory in self.directories),
            seams.draw_id(),
        )
        self.host = NodeHost(
            settings.options,
            identity=identity,
            directories=[directory.used for directory in self.directories],
            unopened=self.unopened,
            transport=seams.make_transport(identity),
            state_machines=seams.state_machines,
            clock=seams.clock,
            on_fatal=seams.on_fatal,
            on_broken=seams.on_broken,
            rng=seams.rng,
            tracing=seams.tracing,
        )
        self.host.cluster_version.learn(said_by_all(self.directories))
        self.learner = VersionLearner(
            self.host.cluster_version, self.directories, self.host.replicas.directory_failed
        )
        seeds = {member.store_id: member.peer_address for member in settings.members}
        self.book = AddressBook(self._copies("ADDRESSES"), seeds)
        self.host.requests.directory = self.book
        self.directory = Directory(self._copies("DIRECTORY"), seams.clock)
        self.access = AccessBook(
            self._copies("ACCESS"),
            seams.clock,
            max(bounds.ACCESS_CURRENT_S, 3 * settings.heartbeat_interval_s),
            self.directory.heard_us,
            lambda: self.host.cluster_version.value >= 2,
        )
        self.client = HAKeeperClient(self.host, self.book)
        self.client.serve()
        self.lookups = self._lookups()
        self.unattributed_loss = [
            one.data.incarnation for one in self.directories if one.data.unattributed_loss
        ]
        self.bootstrapper = Bootstrapper(
            self.host, self.book, settings.members, unattributed_loss=bool(self.unattributed_loss)
        )
        self.bootstrapper.serve()
        self.workers = [directory.worker(self.host) for directory in self.directories]
        for directory, worker in zip(self.directories, self.workers, strict=True):
            directory.answer(self.host, worker)
        self.scrubbers = [
            directory.scrubber(self.host, seams.clock, settings.scrub_interval_s)
            for directory in self.directories
        ]
        host = self.host
        self.repairer = Repairer(
            host.replicas,
            host.requests,
            identity,
            seams.clock,
            self.book.peer_addresses,
            seams.state_machines,
        )
        self.comparer = Comparer(
            host.replicas, host.requests, seams.clock, pass_interval_s=settings.compare_interval_s
        )
        self.heartbeats: HeartbeatSender | None = None
        together, tick_s = self.client.together, settings.hakeeper_tick_s
        self.shell = HAKeeperTicks(host, settings.first, together, tick_s)

    @property
    def _books(self) -> Mapping[str, AddressBook | Directory | AccessBook]:
        """What is remembered, by the names of the files."""
        return {"ADDRESSES": self.book, "DIRECTORY": self.directory, "ACCESS": self.access}

    def _lookups(self) -> Lookups:
        return Lookups(
            self.client,
            self.directory,
            self.book.client_address,
            self._leader_here,
            max(bounds.DIRECTORY_SILENT_S, 4 * self.settings.heartbeat_interval_s),
        )

    def _leader_here(self, shard: ShardId) -> ReplicaId:
        info = self.host.replicas.info(shard)
        return info.leader if info is not None else NO_REPLICA

    def _copies(self, name: str) -> list[Copy]:
        """The copies of a remembered file, one in each data directory."""
        return [self._copy(name, one) for one in self.directories]

    def _copy(self, name: str, directory: StoreDirectory) -> Copy:
        path = posixpath.join(directory.data.path, name)
        return Copy(directory.seams.vfs, path, directory.seams.export_executor)

    def use_keys(self, keys: Keys) -> None:
        """Another ring of keys from now on, in every data directory. Raises KeysMissing, and
        changes nothing, when a segment needs a key that is not in it.
        """
        working = [one.logdb for one in self.directories if not one.used.failed]
        for logdb in working:
            logdb.check_keys(keys)
        for logdb in working:
            logdb.use_keys(keys)
        self._keys = keys

    @property
    def encrypts(self) -> bool:
        """Whether entries that are written now are encrypted, in every data directory."""
        return all(one.logdb.encrypts for one in self.directories)

    def configure(
        self, scrub_interval_s: float, scrub_bytes_per_s: int, compare_interval_s: float
    ) -> None:
        """Other paces of the scrub and the comparison from now on, also in directories that come
        later.
        """
        self.settings = replace(
            self.settings, scrub_interval_s=scrub_interval_s, scrub_bytes_per_s=scrub_bytes_per_s
        )
        for directory, scrubber in zip(self.directories, self.scrubbers, strict=True):
            directory.used.budget.bytes_per_s = scrub_bytes_per_s
            scrubber.timer.change(scrub_interval_s)
        self.comparer.timer.change(compare_interval_s)

    def open_directory(self, path: str) -> StoreDirectory:
        """Open one more data directory, which is not used yet. It may take as long as the disk
        likes, and runs in any thread. Raises InvalidArgument, WrongCluster, OSError, KvError.
        """
        seams = self._seams.disk(path)
        try:
            return self._open(path, seams)
        except BaseException:
            seams.shut_down()
            raise

    def take_directory(self, directory: StoreDirectory) -> tuple[TruncationWorker, Scrubber]:
        """Use a directory from now on, in which no replica is. The caller runs what is returned.
        Raises KeysMissing, and does nothing, as `use_keys`.
        """
        # Both may have changed while it was being opened.
        if self._keys is not None:
            directory.logdb.use_keys(self._keys)
        directory.used.budget.bytes_per_s = self.settings.scrub_bytes_per_s
        worker = directory.worker(self.host)
        scrubber = directory.scrubber(self.host, self._seams.clock, self.settings.scrub_interval_s)
        self.directories.append(directory)
        self.workers.append(worker)
        self.scrubbers.append(scrubber)
        directory.answer(self.host, worker)
        self.host.add_directory(directory.used)
        for name, book in self._books.items():
            book.add_copy(self._copy(name, directory))
        if self.heartbeats is not None:
            self.heartbeats.report_all()
        return worker, scrubber

    def drop_directory(self, directory: StoreDirectory) -> None:
        """Do not use a directory any more, in which no replica is. The caller has stopped its
        worker and its scrubber, and closes it.
        """
        self.host.remove_directory(directory.used)
        place = self.directories.index(directory)
        for one in (self.directories, self.workers, self.scrubbers):
            del one[place]
        for name, book in self._books.items():
            book.drop_copy(self._copy(name, directory).path)
        if self.heartbeats is not None:
            self.heartbeats.report_all()

    async def start(self) -> None:
        """Open the peer port and start every replica found. Raises OSError (port in use)."""
        await self.host.start()

    def background(
        self, describe: Callable[[], StoreDescription]
    ) -> list[Callable[[], Awaitable[None]]]:
        """What runs beside the shards until it is cancelled: HAKeeper's ticks, heartbeats, the
        first start, repairs, the scrub, the comparison with other replicas.
        """
        heartbeats = self.heartbeats = HeartbeatSender(
            self.host,
            self.client,
            self.book,
            self.access,
            describe,
            self.directory,
            self.learner,
            self.settings.heartbeat_interval_s,
            self.unattributed_loss,
            self.settings.versions,
        )

        def hakeeper_applied() -> None:
            heartbeats.hakeeper_applied()
            self.shell.applied()

        self.host.on_hakeeper_applied = hakeeper_applied
        scrubs = [scrubber.run for scrubber in self.scrubbers]
        return [
            self.shell.run,
            heartbeats.run,
            self._bootstrap,
            self.repairer.run,
            self.comparer.run,
            self._name_members,
            *scrubs,
        ]

    async def stop(self) -> None:
        """Stop serving; what `background` gave has ended before."""
        await self.host.stop()

    def close(self) -> None:
        """Release executors, log storage and the data directories; no call follows."""
        with contextlib.ExitStack() as stack:
            while self.directories:
                stack.callback(self.directories.pop().close)

    def log(self, shard: ShardId, replica: ReplicaId) -> ReplicaLog:
        """The durable log of a replica that has data here."""
        directory = self.host.directories.holding(shard, replica)
        if directory is None:
            raise ShardNotFound(f"replica {replica} has no data here", shard=shard)
        return directory.logdb.log(shard, replica)

    def truncation_counts(self) -> Mapping[str, int]:
        """How many visits of the truncation workers ended in which outcome."""
        counts: Counter[str] = Counter()
        for worker in self.workers:
            counts.update(worker.counts)
        return counts

    def integrity_counts(self) -> Mapping[str, int]:
        """Counts since the start about finding wrong data and restoring it; keys: `INTEGRITY`."""
        counts = dict.fromkeys(INTEGRITY, 0)
        for directory in self.directories:
            counts["recovery_damages"] += directory.damages
            counts["recovery_unattributed"] += directory.unattributed
        for scrubber in self.scrubbers:
            counts["scrub_passes"] += scrubber.progress.passes
            counts["scrub_bytes"] += scrubber.progress.bytes_verified
            counts["scrub_damages"] += scrubber.progress.damages
        for prefix, found in (("compare", self.comparer.counts), ("repair", self.repairer.counts)):
            for name, count in found.items():
                counts[f"{prefix}_{name}"] += count
        return counts

    def scrub_passes(self) -> Mapping[Incarnation, ScrubPass]:
        """Where the scrub stands in each data directory."""
        return {
            directory.incarnation: scrubber.look()
            for directory, scrubber in zip(self.host.directories, self.scrubbers, strict=True)
        }

    def exports_count(self, shard: ShardId, replica: ReplicaId) -> int:
        """The number of exported snapshots of a replica."""
        return sum(directory.exports.count(shard, replica) for directory in self.directories)

    async def _name_members(self) -> None:
        """When a stranger spoke, tell the shards here who their members are, as HAKeeper says."""
        await self.host.strangers.run(self._members_of, self._named)

    def _named(self, shard: ShardId, membership: Membership) -> None:
        replica = self.host.replicas.running.get(shard)
        if replica is not None:
            replica.hearing.members.name(membership)

    async def _members_of(self, shard: ShardId) -> Membership | None:
        if shard == HAKEEPER_SHARD:
            return self.book.hakeeper
        view = await self.client.shard(shard, bounds.HEARTBEAT_TIMEOUT_S)
        return decoded(view.membership) if view is not None else None

    async def _bootstrap(self) -> None:
        """Take part in the cluster's first start, for as long as the other members take."""
        while True:
            try:
                outcome = await self.bootstrapper.run(_BOOTSTRAP_ROUND_S)
            except NotReady as error:
                logger.warning("the first start waits: %s", error.message)
                # The round may have failed at once; others must get their turn all the same.
                await asyncio.sleep(0)
                continue
            logger.info("first start: %s", outcome.value)
            return
