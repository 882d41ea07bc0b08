"""ReplicaTable: which replicas run on this store, and how each of them begins and ends.

Here replicas are started, stopped, removed, halted and looked up. A replica lives in one data
directory (`disks.directories`). It runs while its log can be trusted and its disk works; otherwise
it is noted among the halted ones (`disks.halts`), and HAKeeper is told.

INV-HOST-4: once this process has heard that a log is deleted, no replica of it begins here. The
removal of each is durable, so none begins after a restart either. A replica starts from its own
records: only such a removal or such a word stops it, and the lack of either never does.

INV-HOST-1: at most one replica of a shard runs on a store. A peer that speaks for a replica of
another store or incarnation than the membership says is not heard (`hearing`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from logservice_wire.errors import (
    Halted,
    InvalidArgument,
    NotReady,
    ShardDeleted,
    ShardExists,
    ShardNotFound,
)

from logservice.background import begin_task
from logservice.events import Event, emit
from logservice.hard_state import HardState
from logservice.ids import Incarnation, Index, ReplicaId, ShardId, StoreId
from logservice.invariants import InvariantViolation
from logservice.logdb.format.update import Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Membership
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.disks.halts import Halts
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.listeners import ReplicaRemoved, ReplicaStarted, ReplicaStopped
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica.changes import Changes
from logservice.nodehost.replica.quiesce import Quiescence
from logservice.nodehost.replica.replica import Replica, ReplicaHost
from logservice.nodehost.replica.start import ReplicaStart, choose_start, first_update
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.rsm.witness import WitnessRsm
from logservice.state_machine import StateMachine

logger = logging.getLogger(__name__)


class _Running(dict[ShardId, Replica]):
    """The replicas that run, by shard. To look up a shard without one raises Halted, ShardNotFound
    or ShardDeleted. buried: shards of which this process heard that they are deleted.
    """

    def __init__(self, halts: Halts) -> None:
        super().__init__()
        self._halts = halts
        self.buried: set[ShardId] = set()

    def __missing__(self, shard: ShardId) -> Replica:
        if shard in self.buried:
            raise ShardDeleted(f"shard {shard} was deleted", shard=shard)
        self._halts.check(shard)
        raise ShardNotFound(f"no replica of shard {shard} on this store", shard=shard)


class ReplicaTable:
    """See the module's text. There is one per NodeHost, on its loop thread."""

    running: Mapping[ShardId, Replica]
    """The replicas that run. `running[shard]` raises ShardNotFound, Halted or ShardDeleted when
    there is none.
    """

    def __init__(
        self,
        host: ReplicaHost,
        options: NodeHostOptions,
        *,
        identity: PeerIdentity,
        directories: Directories,
        halts: Halts,
        quiescence: Quiescence,
        state_machines: Callable[[ShardId], StateMachine],
        random: Callable[[int], int],
        on_fatal: Callable[[BaseException], None],
        on_broken: Callable[[InvariantViolation], None],
    ) -> None:
        """`random` draws election timeouts. `on_fatal` and `on_broken`: see `NodeHost`."""
        self.directories = directories
        self.halts = halts
        self._host = host
        self._options = options
        self._identity = identity
        self._quiescence = quiescence
        self._state_machines = state_machines
        self._random = random
        self._on_fatal, self._on_broken = on_fatal, on_broken
        self._running = self.running = _Running(halts)
        self.changes = Changes(self._running)
        self._neighbours: tuple[int, frozenset[StoreId]] | None = None
        """They and how many replicas ran then; None since one has stopped or has other members."""
        self._removing: dict[tuple[ShardId, ReplicaId], asyncio.Task[None]] = {}
        self._open = False

    # --- the store's own life ---------------------------------------------------------------------

    def open(self) -> None:
        """The engines run: from now on replicas may be started and removed."""
        self._open = True

    def start_stored(self) -> None:
        """Start every replica found in log storage."""
        for shard, replica_id in self.directories.replicas():
            directory = self.directories.place(shard, replica_id)
            log = directory.logdb.log(shard, replica_id)
            if log.faulty:
                # The log is checked before its bootstrap record, which may be what was damaged.
                self.halts.note(shard, replica_id, directory, log.faulty)
                continue
            if log.bootstrap is None:
                continue
            if shard in self._running:
                # The store was stopped between the removal of the old replica and its clean-up; ids
                # grow, so the larger is the member.
                self._running.pop(shard).stop()
            try:
                self._run(shard, replica_id, directory)
            except Halted as halted:
                # The damage was found only now, and it is this replica's: the other shards start.
                self.halts.note(shard, replica_id, directory, halted.message)

    def close(self) -> None:
        """The store stops: every replica answers whoever waits for it, and none starts any more."""
        self._open = False
        for replica in self._running.values():
            replica.stop()
        self._running.clear()

    # --- one replica's life -----------------------------------------------------------------------

    async def start(
        self,
        shard: ShardId,
        replica_id: ReplicaId,
        membership: Membership,
        *,
        join: bool,
        incarnation: Incarnation | None = None,
    ) -> None:
        """Record the bootstrap, durably, then run the replica. Nothing happens if it runs already.

        `incarnation` is the data directory that the replica is bound to; with None this store
        chooses one (`Directories`). `join` says that it is no initial replica (`first_update`).
        Raises ShardExists when another replica of the shard runs here, InvalidArgument when this
        replica id was removed here.
        """
        running = self._running.get(shard)
        if running is not None:
            if running.replica_id == replica_id:
                running.hearing.members.name(membership)
                return
            raise ShardExists(f"shard {shard} runs here as {running.replica_id}", shard=shard)
        directory = self._check_startable(shard, replica_id, incarnation)
        engine = self._engine(directory)
        if engine.owes(shard, replica_id):
            # It was stopped with a write on its way. The log does not show it yet, and whoever
            # starts from the log as it is has forgotten a vote or an entry that gets durable.
            await engine.commit(shard, [])
        first = directory.logdb.log(shard, replica_id).bootstrap is None
        if first:
            update = first_update(shard, replica_id, membership, join=join)
            await engine.commit(shard, [update])
        self._check_startable(shard, replica_id, directory.incarnation)
        if shard in self._running:
            return
        try:
            self._run(shard, replica_id, directory, begins=first and not join)
        except Halted as halted:
            self.halts.note(shard, replica_id, directory, halted.message)
            raise

    async def stop(self, shard: ShardId) -> None:
        """Stop the replica of `shard`; its data stays. Nothing happens when none runs."""
        replica = self._running.pop(shard, None)
        if replica is not None:
            replica.stop()
            self._quiescence.forget(replica)
            self._engine(replica.directory).deactivate(replica)
            self._host.tell(ReplicaStopped(shard, replica.replica_id))

    async def remove(self, shard: ShardId, replica_id: ReplicaId) -> None:
        """Stop the replica if it runs, and forget its data, durably and for ever."""
        running = self._running.get(shard)
        if running is not None and running.replica_id == replica_id:
            await self.stop(shard)
        directory = self.directories.holding(shard, replica_id)
        if directory is not None and directory.failed:
            # Nothing is written there any more. If the directory works again after a restart, the
            # replica is reported again, and HAKeeper asks again.
            self.halts.forget(shard, replica_id)
            return
        directory = directory or self.directories.roomiest()
        if not self.directories.removed(shard, replica_id):
            # There is one tombstone, however many callers ask while it is on its way (HAKeeper may
            # ask under two ids), and it goes on when one of them is cancelled.
            key = (shard, replica_id)
            if key not in self._removing:
                tombstone = self._entomb(self._engine(directory), shard, replica_id)
                self._removing[key] = begin_task(tombstone)
            await asyncio.shield(self._removing[key])
        self.halts.forget(shard, replica_id)
        await directory.drop_exports(shard, replica_id)

    async def _entomb(self, engine: Engine, shard: ShardId, replica_id: ReplicaId) -> None:
        await engine.commit(shard, [Update(shard, replica_id, remove=True)])
        self._host.tell(ReplicaRemoved(shard, replica_id))

    def bury(self, shard: ShardId) -> None:
        """The log is deleted (INV-HOST-4): nothing of it begins here any more."""
        self._running.buried.add(shard)

    def _check_not_removed(self, shard: ShardId, replica_id: ReplicaId) -> None:
        if shard in self._running.buried:
            raise ShardDeleted(f"shard {shard} was deleted", shard=shard)
        # The id is refused already while its tombstone is on the way to the disk: a replica that
        # starts then would lose its log while it runs. The tombstone gets there, or this process
        # stops.
        key = (shard, replica_id)
        if key in self._removing or self.directories.removed(shard, replica_id):
            raise InvalidArgument("a removed replica id never comes back", field="replica")

    def _check_startable(
        self, shard: ShardId, replica_id: ReplicaId, incarnation: Incarnation | None
    ) -> Directory:
        """The directory where the replica is or shall be. A removed replica never starts again. A
        damaged one neither votes nor acknowledges, nor is it begun anew, even if its bootstrap
        record is what was lost.
        """
        self._check_not_removed(shard, replica_id)
        directory = self.directories.place(shard, replica_id, incarnation)
        if faulty := directory.logdb.log(shard, replica_id).faulty:
            self.halts.note(shard, replica_id, directory, faulty)
            raise Halted(faulty, shard=shard)
        return directory

    def _run(
        self,
        shard: ShardId,
        replica_id: ReplicaId,
        directory: Directory,
        *,
        begins: bool = False,
    ) -> None:
        log = directory.logdb.log(shard, replica_id)
        machine = self._machine(log)
        snapshot = choose_start(log, directory.newest_export(shard, replica_id), machine)
        hard_state = log.hard_state
        if snapshot is not None and hard_state.commit < snapshot.index:
            hard_state = HardState(hard_state.term, hard_state.vote, snapshot.index)
        start = ReplicaStart(log, snapshot, hard_state)
        try:
            replica = Replica(
                shard,
                replica_id,
                directory,
                start,
                machine,
                self._host,
                self._options,
                identity=self._identity,
                random=self._random,
                on_halt=self.halt,
            )
        except InvariantViolation as broken:
            log.blame(f"an invariant does not hold: {broken}")
            self._tell_broken(shard, replica_id, broken)
            raise Halted(log.faulty, shard=shard) from broken
        self._running[shard] = replica
        self.halts.forget(shard)
        replica.set_room()
        if begins:
            replica.begin()
        replica.activate()
        self._host.tell(ReplicaStarted(shard, replica_id))

    def _machine(self, log: ReplicaLog) -> StateMachine:
        """INV-WITNESS-1."""
        if log.bootstrap is not None and log.bootstrap.of_witness(log.replica):
            return WitnessRsm()
        return self._state_machines(log.shard)

    # --- what cannot be trusted -------------------------------------------------------------------

    def halt(self, replica: Replica, reason: str, broken: InvariantViolation | None = None) -> None:
        """The data of `replica` cannot be trusted: it stops, and HAKeeper is told. `broken` is the
        invariant that does not hold, if that is why.
        """
        if broken is not None:
            self._tell_broken(replica.shard, replica.replica_id, broken)
        if replica.stopped:
            return  # it halted before, and another replica of the shard may run by now
        self._running.pop(replica.shard, None)
        replica.stop()
        self._quiescence.forget(replica)
        self.halts.note(replica.shard, replica.replica_id, replica.directory, reason)

    def halt_forgetful(self, shard: ShardId, replica: ReplicaId, through: Index) -> None:
        """Halt every replica in the data directory of `replica` if the log of `replica` there ends
        before `through`, which was durable in it once. The directory was then replaced by an older
        copy (`hakeeper.stores.heartbeats`, INV-HK-GONE-BACK), so each replica there forgot as much.
        """
        running = self._running.get(shard)
        if running is None or running.replica_id != replica:
            return
        last = running.log.last_index()
        if last >= through:
            return
        directory = running.directory
        reason = (
            f"data directory {directory.path} was put back from an older copy: it had entries of"
            f" shard {shard} through {through}, and ends at {last}"
        )
        for one in self.of(directory):
            # Nothing in the directory can be repaired in place: votes are forgotten, too.
            one.log.blame(reason)
            self.halt(one, reason)

    def damaged(self, shard: ShardId, replica_id: ReplicaId) -> None:
        """Log storage found that the replica's data cannot be trusted. The replica halts in its
        next step, a tick at the latest, and it wakes up for that if it is quiesced.
        """
        replica = self._running.get(shard)
        if replica is not None and replica.replica_id == replica_id:
            replica.damaged = True
            self._quiescence.damaged(replica)

    def directory_failed(self, directory: Directory, error: BaseException) -> None:
        """A disk is lost (INV-HOST-2): its replicas stop and are reported; the others go on.

        When the last disk is lost the store ends: it could only refuse everything.
        """
        if directory.failed:
            return
        last = len(self.directories.working) == 1
        directory.failed = f"{type(error).__name__}: {error}"
        emit(logger, Event.DIRECTORY_FAILED, path=directory.path, reason=directory.failed)
        if last:
            self._on_fatal(error)
            return
        for replica in self.of(directory):
            self.halt(replica, f"data directory {directory.path}: {directory.failed}")

    def _tell_broken(self, shard: ShardId, replica: ReplicaId, error: InvariantViolation) -> None:
        emit(logger, Event.REPLICA_BROKEN, shard=shard, replica=replica, error=error)
        logger.critical("where it broke", exc_info=error)
        self._on_broken(error)

    # --- repairs in place (`integrity.repair`) ----------------------------------------------------

    async def commit_repair(self, update: Update) -> None:
        """Make a step of a repair durable."""
        directory = self.directories.place(update.shard, update.replica)
        if update.repair is not None:
            # A restart must not begin with a state that was made from wrong entries.
            damaged_from = update.repair.damaged_from
            await directory.forget_exports(update.shard, update.replica, damaged_from)
        self._check_not_removed(update.shard, update.replica)
        await self._engine(directory).commit(update.shard, [update])

    def start_repaired(self, shard: ShardId, replica: ReplicaId) -> None:
        """Run a replica again whose log is whole."""
        if not self._open or shard in self._running or (shard, replica) in self._removing:
            return
        directory = self.directories.holding(shard, replica)
        if directory is None or directory.failed:
            return
        try:
            self._run(shard, replica, directory)
        except Halted as halted:
            self.halts.note(shard, replica, directory, halted.message)

    # --- look-ups ---------------------------------------------------------------------------------

    def info(self, shard: ShardId) -> ReplicaInfo | None:
        """A picture of the running replica of a shard, None when there is none."""
        replica = self._running.get(shard)
        return replica.info() if replica is not None else None

    def infos(self) -> list[ReplicaInfo]:
        """Pictures of all running replicas, in the order of their shards."""
        return [self._running[shard].info() for shard in sorted(self._running)]

    def neighbours(self) -> frozenset[StoreId]:
        """The stores with a member of a shard that has a replica here. To go through 10 000
        memberships takes 10 ms, so that is done when they may be others.
        """
        running = self._running
        if self._neighbours is None or self._neighbours[0] != len(running):
            memberships = [replica.raft.membership for replica in running.values()]
            found = frozenset(one.store_id for each in memberships for one in each.members)
            self._neighbours = (len(running), found)
        return self._neighbours[1]

    def neighbours_changed(self) -> None:
        """A replica stopped, or has another membership."""
        self._neighbours = None

    def of(self, directory: Directory) -> list[Replica]:
        """The replicas that run in one data directory."""
        return [one for one in self._running.values() if one.directory is directory]

    def _engine(self, directory: Directory) -> Engine:
        if not self._open:
            raise NotReady("the store is not running")
        return directory.engine
