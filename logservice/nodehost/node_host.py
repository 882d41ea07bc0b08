"""NodeHost: the object in a store that owns its replicas, log storage and transport.

Its methods are the public surface, in Dragonboat's terms. Any replica accepts appends and reads. An
append goes on to the leader's store when another store leads; linearizable reads use ReadIndex and
are served here. What only the leader's store does (`router`) ends in NOT_LEADER on other stores.
Every request has a deadline and ends in one typed outcome (`logservice_wire.errors`).

A store has one or several data directories (disks), each with an engine of its own; a replica lives
in one of them, under that directory's incarnation (`directory`, `directories`).

INV-HOST-1: at most one replica of a shard runs in a NodeHost. A peer that speaks for a replica of
another store or incarnation than the membership says is not heard (`hearing`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from logservice_wire.errors import Halted, InvalidArgument, NotReady, ShardExists, ShardNotFound

from logservice.clock import Clock
from logservice.config_change import ConfigChange
from logservice.events import Event, emit
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hard_state import HardState
from logservice.ids import (
    HAKEEPER_SHARD,
    NO_REPLICA,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    ShardId,
    StoreId,
)
from logservice.invariants import InvariantViolation
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.membership import Membership
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.engine import Engine
from logservice.nodehost.disks.halts import Halts
from logservice.nodehost.hearing.refusals import Refusals
from logservice.nodehost.hearing.strangers import Strangers
from logservice.nodehost.hearing.vouching import Vouching
from logservice.nodehost.info import HaltedReplica, ReplicaInfo
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.quiesce import Quiescence
from logservice.nodehost.replica.log_reading import LogSlice, read_log
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.role_log import RoleLog
from logservice.nodehost.replica.start import ReplicaStart, choose_start, first_update
from logservice.nodehost.routing.router import Router
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.outcome import Applied
from logservice.raft.messages import Message, TimeoutNow
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.snapshot import Snapshot
from logservice.state_machine import StateMachine
from logservice.trace import NO_TRACING, Tracing

logger = logging.getLogger(__name__)


class NodeHost:
    """See the module's text. All methods must be called on the loop thread that ran `start`."""

    def __init__(
        self,
        options: NodeHostOptions,
        *,
        identity: PeerIdentity,
        directories: Sequence[Directory],
        unopened: Sequence[DirectoryReport] = (),
        transport: Transport,
        state_machines: Callable[[ShardId], StateMachine],
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        on_broken: Callable[[InvariantViolation], None] = lambda _: None,
        rng: random.Random | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        """`on_fatal` must end the process. `directories` are those that `identity` names;
        `unopened` are further ones of the store, for reports. `on_broken` is told when an invariant
        of one replica does not hold and the replica halts (INV-REPLICA-3).

        `rng` draws election timeouts, different from store to store. `tracing` records spans.
        """
        self.options = options
        self.identity = identity
        self.transport = transport
        self.clock = clock
        self.tracing = tracing
        self.directories = Directories(directories, unopened)
        self._state_machines = state_machines
        self._on_fatal, self._on_broken = on_fatal, on_broken
        self._rng = rng or random.Random()
        self._replicas: dict[ShardId, Replica] = {}
        self.halts = Halts(self.directories)
        self.refusals = Refusals()
        self.strangers = Strangers()
        self._removing: dict[tuple[ShardId, ReplicaId], asyncio.Task[None]] = {}
        self.requests = PeerRequests(identity, transport, self._is_member)
        self.vouching = Vouching(self, options.election_timeout_s)
        self._started = False
        self._ticker: asyncio.TimerHandle | None = None
        self._next_tick_s = 0.0
        self._stopping = False
        self._router = Router(self, self._tick_s, options.election_timeout_s)
        self._role_log = RoleLog()
        self._quiescence = Quiescence(options, self.requests)

    # --- life cycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, start every replica found in log storage, begin to tick."""
        self.directories.start_engines(
            self.transport,
            self.clock,
            self.options,
            self._on_fatal,
            self._directory_failed,
            self._quiescence.damaged,
        )
        self._started = True
        await self.transport.start(self)
        for shard, replica_id in self.directories.replicas():
            directory = self.directories.place(shard, replica_id)
            log = directory.logdb.log(shard, replica_id)
            if log.faulty:
                # The log is checked before its bootstrap record, which may be what was damaged.
                self.halts.note(shard, replica_id, directory, log.faulty)
                continue
            if log.bootstrap is None:
                continue
            if shard in self._replicas:
                # The store was stopped between the removal of the old replica and its clean-up; ids
                # grow, so the larger is the member.
                self._replicas.pop(shard).stop()
            try:
                self._run(shard, replica_id, directory)
            except Halted as halted:
                # The damage was found only now, and it is this replica's: the other shards start.
                self.halts.note(shard, replica_id, directory, halted.message)
        self._next_tick_s = self.clock.monotonic() + self._tick_s
        self._ticker = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    async def stop(self) -> None:
        """Answer everybody, finish the group at the disk, close the transport. Logs stay open."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.cancel()
        for replica in self._replicas.values():
            replica.stop()
        self._replicas.clear()
        self._router.stop()
        await self._quiescence.stop()
        await self.vouching.stop()
        if self._started:
            for directory in self.directories:
                await directory.engine.stop()
        await self.transport.stop()

    async def start_replica(
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
        running = self._replicas.get(shard)
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
            await engine.commit([])
        if directory.logdb.log(shard, replica_id).bootstrap is None:
            update = first_update(shard, replica_id, membership, join=join)
            await engine.commit([update])
        self._check_startable(shard, replica_id, directory.incarnation)
        if shard in self._replicas:
            return
        try:
            self._run(shard, replica_id, directory)
        except Halted as halted:
            self.halts.note(shard, replica_id, directory, halted.message)
            raise

    async def stop_replica(self, shard: ShardId) -> None:
        """Stop the replica of `shard`; its data stays. Nothing happens when none runs."""
        replica = self._replicas.pop(shard, None)
        if replica is not None:
            replica.stop()
            self._quiescence.forget(replica)
            self._engine(replica.directory).deactivate(replica)

    async def remove_replica(self, shard: ShardId, replica_id: ReplicaId) -> None:
        """Stop the replica if it runs, and forget its data, durably and for ever."""
        running = self._replicas.get(shard)
        if running is not None and running.replica_id == replica_id:
            await self.stop_replica(shard)
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
                tombstone = self._engine(directory).commit([Update(shard, replica_id, remove=True)])
                self._removing[key] = asyncio.get_running_loop().create_task(tombstone)
            await asyncio.shield(self._removing[key])
        self.halts.forget(shard, replica_id)
        await directory.drop_exports(shard, replica_id)

    def _check_not_removed(self, shard: ShardId, replica_id: ReplicaId) -> None:
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

    def _run(self, shard: ShardId, replica_id: ReplicaId, directory: Directory) -> None:
        log = directory.logdb.log(shard, replica_id)
        machine = self._state_machines(shard)
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
                self,
                self.options,
                identity=self.identity,
                random=self._rng.randrange,
            )
        except InvariantViolation as broken:
            log.blame(f"an invariant does not hold: {broken}")
            self._tell_broken(shard, replica_id, broken)
            raise Halted(log.faulty, shard=shard) from broken
        self._replicas[shard] = replica
        self.halts.forget(shard)
        replica.set_room()
        replica.activate()

    # --- what runs here ---------------------------------------------------------------------------

    def replica_info(self, shard: ShardId) -> ReplicaInfo | None:
        """A picture of the running replica of a shard, None when there is none."""
        replica = self._replicas.get(shard)
        return replica.info() if replica is not None else None

    def log_bounds(self, shard: ShardId) -> tuple[Lsn, Lsn]:
        """First readable and newest applied LSN of a log shard here; cheap, for every response."""
        replica = self.replica(shard)
        rsm = replica.log_rsm
        return (
            (replica.first_lsn, Lsn(rsm.state.next_lsn - 1))
            if rsm is not None
            else (Lsn(0), Lsn(0))
        )

    def replica_infos(self) -> list[ReplicaInfo]:
        """Pictures of all running replicas, in the order of their shards."""
        return [self._replicas[shard].info() for shard in sorted(self._replicas)]

    def stored_replicas(self) -> list[tuple[ShardId, ReplicaId]]:
        """Every replica with data here, running or not."""
        return self.directories.replicas()

    def bootstrap_of(self, shard: ShardId) -> Bootstrap | None:
        """What the replica of `shard` stored here was bootstrapped with."""
        return self.directories.bootstrap_of(shard)

    def halted(self) -> dict[ShardId, HaltedReplica]:
        """Shards whose replica here does not run because its data or disk cannot be trusted."""
        return self.halts.all()

    def repairing(self) -> set[ShardId]:
        """Shards whose halted replica here is being repaired in place."""
        return self.halts.repairing()

    def roomiest(self) -> Incarnation:
        """The data directory that a replica gets when nobody chose one for it."""
        return self.directories.roomiest().incarnation

    def directory_infos(self) -> list[DirectoryReport]:
        """Every data directory, failed ones too."""
        return self.directories.infos()

    # --- requests ---------------------------------------------------------------------------------

    def submit_append(
        self, shard: ShardId, request: AppendRequest, timeout_s: float, *, local_only: bool = False
    ) -> asyncio.Future[Applied]:
        """`append` without waiting, so that the blocks of a stream are submitted in their order.

        Raises ShardNotFound, Busy at once; everything else is the future's outcome.
        """
        replica = self.replica(shard)
        if replica.log_rsm is None:
            raise ShardNotFound("the shard holds no records", shard=shard)
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        replica.submit(
            future, self.clock.monotonic() + timeout_s, append=request, local_only=local_only
        )
        return future

    async def append(self, shard: ShardId, request: AppendRequest, timeout_s: float) -> Applied:
        """Append one block; returns when it is applied."""
        return await self.submit_append(shard, request, timeout_s)

    async def propose(
        self, shard: ShardId, command: bytes, timeout_s: float, *, local_only: bool = False
    ) -> Applied:
        """Propose a state machine command (its bytes without envelope); returns when it is applied.

        Raises NotLeader where another store leads, unless the command is one that is forwarded.
        """
        replica = self.replica(shard)
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        replica.submit(
            future,
            self.clock.monotonic() + timeout_s,
            command=command,
            local_only=local_only,
            forwarded=shard != HAKEEPER_SHARD and commands.is_forwarded(command),
        )
        return await future

    async def read_index(self, shard: ShardId, timeout_s: float) -> Index:
        """A linearization point: it returns once what was committed before is applied here."""
        replica = self.replica(shard)
        future: asyncio.Future[Index] = asyncio.get_running_loop().create_future()
        replica.reads.add(future, self.clock.monotonic() + timeout_s)
        replica.activate()
        return await future

    def expire(self, shard: ShardId) -> None:
        """Answer everybody who waits for the replica of `shard` here and whose deadline passed."""
        replica = self._replicas.get(shard)
        if replica is not None:
            replica.expire(self.clock.monotonic())

    async def lookup(self, shard: ShardId, query: object, timeout_s: float) -> object:
        """A linearizable query of the state machine."""
        await self.read_index(shard, timeout_s)
        return self.stale_lookup(shard, query)

    def stale_lookup(self, shard: ShardId, query: object) -> object:
        """A query of what this replica has applied."""
        return self.replica(shard).state_machine.lookup(query)

    async def read_log(self, shard: ShardId, lsn: Lsn, max_bytes: int) -> LogSlice:
        """See `log_reading.read_log`."""
        replica = self.replica(shard)
        try:
            return await read_log(replica, lsn, max_bytes)
        except InvariantViolation as error:
            replica.fail(error)
            raise Halted(f"it halted while it was read: {error}", shard=shard) from error

    async def wait_applied(self, shard: ShardId, lsn: Lsn, timeout_s: float) -> bool:
        """Wait until a record with `lsn` is applied; False when the time passed or the replica
        stopped.
        """
        return await self.replica(shard).wait_lsn(lsn, timeout_s)

    async def change_membership(
        self, shard: ShardId, change: ConfigChange, timeout_s: float
    ) -> Membership:
        """Change who is in the shard; returns the membership that the change made.

        Raises NotLeader where another store leads, StaleEpoch when the compare-and-swap on the
        change epoch was lost, Busy while another change is under way.
        """
        return await self._router.change_membership(shard, change, timeout_s)

    async def transfer_leadership(
        self, shard: ShardId, target: ReplicaId, timeout_s: float
    ) -> None:
        """Ask for `target` to lead; returns when it leads, as seen here.

        Raises NotLeader where another store leads, InvalidArgument when `target` is not a voter,
        DeadlineExceeded when it did not come to lead (an election timeout aborts the transfer).
        """
        await self._router.transfer_leadership(shard, target, timeout_s)

    # --- snapshots --------------------------------------------------------------------------------

    def applied_snapshot(self, shard: ShardId) -> Snapshot:
        """RSM state and membership at the applied index, as of now."""
        return self.replica(shard).applied_snapshot()

    async def install_snapshot(
        self, shard: ShardId, snapshot: Snapshot, truncation_lsn: Lsn
    ) -> None:
        """Record `snapshot` as installed, durably; the log is compacted behind it.

        INV-T1: its last LSN is at most `truncation_lsn` (its justification, kept in the record).
        INV-T3: it is not above what is applied here. A snapshot that is older than the installed
        one changes nothing.
        """
        replica = self.replica(shard)
        if replica.log_rsm is not None and snapshot.next_lsn - 1 > truncation_lsn:
            raise InvalidArgument("the snapshot lies above the truncation LSN", field="snapshot")
        if snapshot.index > replica.applied:
            raise InvalidArgument("the snapshot lies above the applied index", field="snapshot")
        if snapshot.index < replica.reader.first_index():
            return
        installed = InstalledSnapshot(snapshot, truncation_lsn)
        update = Update(shard, replica.replica_id, snapshot=installed)
        await self._engine(replica.directory).commit([update])
        replica.changed()

    # --- repairs (`repair.RepairHost`) ------------------------------------------------------------

    async def commit_repair(self, update: Update) -> None:
        """See `RepairHost`."""
        directory = self.directories.place(update.shard, update.replica)
        if update.repair is not None:
            # A restart must not begin with a state that was made from wrong entries.
            damaged_from = update.repair.damaged_from
            await directory.forget_exports(update.shard, update.replica, damaged_from)
        self._check_not_removed(update.shard, update.replica)
        await self._engine(directory).commit([update])

    def start_repaired(self, shard: ShardId, replica: ReplicaId) -> None:
        """See `RepairHost`."""
        if self._stopping or shard in self._replicas or (shard, replica) in self._removing:
            return
        directory = self.directories.holding(shard, replica)
        if directory is None or directory.failed:
            return
        try:
            self._run(shard, replica, directory)
        except Halted as halted:
            self.halts.note(shard, replica, directory, halted.message)

    # --- peers ------------------------------------------------------------------------------------

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        """See `TransportHandler`."""
        for shard, message in batch:
            replica = self._replicas.get(shard)
            if replica is not None and message.to == replica.replica_id:
                replica.hear(peer, message)

    def on_unreachable(self, store: StoreId) -> None:
        """See `TransportHandler`."""
        for replica in self._replicas.values():
            for member in replica.raft.membership.members:
                if member.store_id == store:
                    replica.unreachable(member.replica_id)

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """See `TransportHandler`."""
        return await self.requests.serve(peer, method, body)

    def _is_member(self, shard: ShardId, peer: PeerIdentity) -> bool | None:
        """See `PeerRequests`."""
        replica = self._replicas.get(shard)
        return replica.hearing.members.have(peer) if replica is not None else None

    # --- what replicas need (`replica.ReplicaHost`) -----------------------------------------------

    def woke(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self._quiescence.touch(replica)

    def route(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self._router.route(replica)

    def send(self, replica: Replica, message: Message) -> None:
        """See `ReplicaHost`."""
        if type(message) is TimeoutNow:
            self.vouching.announce(replica, message)
        store = replica.store_of(message.to)
        if store is None or not self.transport.send(store, replica.shard, message):
            replica.unreachable(message.to)

    def leader_changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self._role_log.role_changed(replica)
        if replica.intake.waiting:
            replica.serve_intake()

    def halt(self, replica: Replica, reason: str) -> None:
        """See `ReplicaHost`."""
        self._replicas.pop(replica.shard, None)
        replica.stop()
        self._quiescence.forget(replica)
        self.halts.note(replica.shard, replica.replica_id, replica.directory, reason)

    def broken(self, replica: Replica, error: InvariantViolation) -> None:
        """See `ReplicaHost`."""
        self._tell_broken(replica.shard, replica.replica_id, error)

    def membership_changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self._role_log.membership_changed(replica)

    # --- inside -----------------------------------------------------------------------------------

    def _tell_broken(self, shard: ShardId, replica: ReplicaId, error: InvariantViolation) -> None:
        emit(logger, Event.REPLICA_BROKEN, shard=shard, replica=replica, error=error)
        logger.critical("where it broke", exc_info=error)
        self._on_broken(error)

    def _directory_failed(self, directory: Directory, error: BaseException) -> None:
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
        for replica in list(self._replicas.values()):
            if replica.directory is directory:
                self.halt(replica, f"data directory {directory.path}: {directory.failed}")

    def _engine(self, directory: Directory) -> Engine:
        if not self._started or self._stopping:
            raise NotReady("the store is not running")
        return directory.engine

    @property
    def _tick_s(self) -> float:
        return self.options.tick_ms / 1000

    def halt_forgetful(self, shard: ShardId, replica: ReplicaId, through: Index) -> None:
        """Halt every replica in the data directory of `replica` if the log of `replica` there ends
        before `through`, which was durable in it once. The directory was then replaced by an older
        copy (`hakeeper.stores.heartbeats`, INV-HK-GONE-BACK), so each replica there forgot as much.
        """
        running = self._replicas.get(shard)
        if running is None or running.replica_id != replica:
            return
        last = running.reader.durable_log().last_index()
        if last >= through:
            return
        directory = running.directory
        reason = (
            f"data directory {directory.path} was put back from an older copy: it had entries of"
            f" shard {shard} through {through}, and ends at {last}"
        )
        for one in list(self._replicas.values()):
            if one.directory is directory:
                # Nothing in the directory can be repaired in place: votes are forgotten, too.
                one.reader.durable_log().blame(reason)
                self.halt(one, reason)

    def replica(self, shard: ShardId) -> Replica:
        """The running replica of `shard`; raises ShardNotFound."""
        replica = self._replicas.get(shard)
        if replica is None:
            self.halts.check(shard)
            raise ShardNotFound(f"no replica of shard {shard} on this store", shard=shard)
        return replica

    def running(self, shard: ShardId) -> Replica | None:
        """The running replica of `shard`, None when there is none."""
        return self._replicas.get(shard)

    def leader_store(self, shard: ShardId) -> StoreId | None:
        """The store that leads a shard, as far as it is known here; a hint."""
        replica = self._replicas.get(shard)
        leader = NO_REPLICA if replica is None else replica.raft.leader
        if replica is None or leader == NO_REPLICA:
            return None
        return replica.hearing.members.store_of(leader)

    def _tick_directory(self, directory: Directory) -> None:
        """Tell every replica in the directory what its disk takes, when that has changed."""
        directory.engine.mark_if_idle()
        try:
            changed = directory.look_at_disk()
        except OSError as error:
            self._directory_failed(directory, error)
            return
        for replica in self._replicas.values() if changed else ():
            if replica.directory is directory:
                replica.set_room()

    def _tick(self) -> None:
        # A late timer counts as one tick, never as several: the messages that would have kept the
        # election timers quiet may still be waiting in a socket.
        now_s = self.clock.monotonic()
        self._next_tick_s = max(self._next_tick_s + self._tick_s, now_s + self._tick_s / 2)
        self._ticker = asyncio.get_running_loop().call_later(self._next_tick_s - now_s, self._tick)
        try:
            for directory in self.directories.working:
                self._tick_directory(directory)
            self._quiescence.tick(now_s)
        except BaseException as error:  # noqa: BLE001 - reported, and the process ends
            self._on_fatal(error)
