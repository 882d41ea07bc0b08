"""NodeHost: the object in a store that owns its replicas, log storage and transport.

Its methods are what clients ask of a shard, in Dragonboat's terms. Any replica accepts appends and
reads. An append goes on to the leader's store when another store leads; linearizable reads use
ReadIndex and are served here. Every request has a deadline and ends in one typed outcome
(`logservice_wire.errors`).

The rest is in its parts: `replicas` starts, stops, removes and looks up replicas; `router` changes
memberships and moves leaderships, on the leader's store only; `halts` says which replicas do not
run because they cannot be trusted. A store has one or several data directories (disks), each with
an engine of its own; a replica lives in one of them, under that directory's incarnation
(`directories`).

INV-HOST-5: a data directory is let go of only while no replica runs in it.

Time is counted in ticks (`ticker`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import random
from collections.abc import Callable, Sequence

from logservice_wire.errors import DeadlineExceeded, Halted, NotReady

from logservice.clock import Clock
from logservice.hakeeper.commands.proposals import DirectoryReport
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.ids import (
    Index,
    Lsn,
    ShardId,
    StoreId,
)
from logservice.invariants import InvariantViolation, invariant
from logservice.memory_part import MemoryPart
from logservice.nodehost.clocks.clock_watch import ClockWatch
from logservice.nodehost.disks.directories import Directories
from logservice.nodehost.disks.directory import Directory
from logservice.nodehost.disks.halts import Halts
from logservice.nodehost.hearing.refusals import Refusals
from logservice.nodehost.hearing.strangers import Strangers
from logservice.nodehost.hearing.vouching import Vouching
from logservice.nodehost.listeners import (
    ApplyingChanged,
    HostEvent,
    Listener,
    Listeners,
    Listening,
    MembershipChanged,
    PeerUnreachable,
    RoleChanged,
)
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.peers.requests import PeerRequests
from logservice.nodehost.quota_table import QuotaTable
from logservice.nodehost.replica.append_stages import AppendStages
from logservice.nodehost.replica.catch_up import CatchUpBudget
from logservice.nodehost.replica.entry_query import EntrySlice, query_entries
from logservice.nodehost.replica.hold_expiry import HoldExpiry
from logservice.nodehost.replica.log_reading import LogSlice, read_class, read_log
from logservice.nodehost.replica.pace import LimitTable
from logservice.nodehost.replica.quiesce import Quiescence
from logservice.nodehost.replica.read_limits import ReadClass, ReadLimits
from logservice.nodehost.replica.reader_holds import ReaderHolds
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.replica.replica_table import ReplicaTable
from logservice.nodehost.replica.retention import Retention
from logservice.nodehost.replica.role_log import RoleLog
from logservice.nodehost.replica.snapshot_requests import SnapshotRequests
from logservice.nodehost.replica.time_search import FoundTime, lsn_at_time
from logservice.nodehost.replica.under_way import UnderWay
from logservice.nodehost.routing.clock_leaving import ClockLeaving
from logservice.nodehost.routing.giving_way import GivingWay
from logservice.nodehost.routing.router import Router
from logservice.nodehost.routing.successors import Successors
from logservice.nodehost.ticker import Ticker
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.outcome import Applied
from logservice.raft.messages import Message, TimeoutNow
from logservice.rsm.append_request import AppendRequest
from logservice.sliced import Sliced
from logservice.state_machine import StateMachine
from logservice.trace import NO_TRACING, Tracing
from logservice.versions import KnownVersion

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
        self.cluster_version = version = KnownVersion()
        self.directories = Directories(directories, unopened)
        self._listeners = Listeners(RoleLog().told)
        self.halts = Halts(self.directories, self._listeners.tell)
        self.refusals = Refusals()
        self.strangers = Strangers()
        self.limits = LimitTable()
        self.quotas = QuotaTable()
        self.catch_up = CatchUpBudget(
            clock, options.catch_up_bytes_per_s, options.catch_up_turn_bytes
        )
        self.reads = ReadLimits(
            clock, options.tail_read_bytes_per_s, options.catch_up_read_bytes_per_s
        )
        self.unwritten = MemoryPart(options.unwritten_bytes_max)
        self.proposals = MemoryPart(options.store_proposal_bytes_max)
        self.stages = AppendStages(clock)
        self.requests = PeerRequests(identity, transport, self._is_member)
        self.ticker = Ticker(clock, options.tick_s, self._tick, self._ticks_to_act, on_fatal)
        self._quiescence = Quiescence(options, self.requests, self.ticker, identity, version)
        self.hold_expiry = HoldExpiry(clock)
        self.clocks = ClockWatch(
            identity, self.requests, clock, version, self._neighbours, self._looked
        )
        self.reader_holds = ReaderHolds(self.hold_expiry)
        self.retention = Retention(clock, self.clocks, self.limits, version)
        self.replicas = ReplicaTable(
            self,
            options,
            identity=identity,
            directories=self.directories,
            halts=self.halts,
            quiescence=self._quiescence,
            state_machines=state_machines,
            random=(rng or random.Random()).randrange,
            on_fatal=on_fatal,
            on_broken=on_broken,
        )
        running = self.replicas.running
        self._under_way = UnderWay()
        self.snapshots = SnapshotRequests(running, self._under_way)
        self.vouching = Vouching(running, self.requests, clock, options.election_timeout_s)
        self.router = Router(running, self.requests, identity, clock, options, tracing)
        self.successors = Successors(running, self.requests)
        self.giving_way = GivingWay(self.successors, clock, version)
        self._clock_leaving = ClockLeaving(self.successors)
        self._on_fatal = on_fatal
        self.on_hakeeper_applied: Callable[[], None] = lambda: None
        """Called when entries of shard 0 were applied here."""
        self._started = False

    # --- life cycle -------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, start every replica found in log storage, begin to tick."""
        self.directories.start_engines(
            self.transport,
            self.clock,
            self.options,
            self._on_fatal,
            self.replicas.directory_failed,
            self._segment_made,
            self.replicas.damaged,
            self.ticker.moment,
        )
        self._started = True
        self.replicas.open()
        await self.transport.start(self)
        self.replicas.start_stored()
        self.ticker.start()

    async def stop(self) -> None:
        """Answer everybody, finish the group at the disk, close the transport. Logs stay open."""
        self.ticker.stop()
        self.replicas.close()
        await self._under_way.stop()
        self.router.stop()
        await self._quiescence.stop()
        await self.vouching.stop()
        await self.giving_way.stop()
        await self.clocks.stop()
        await self._clock_leaving.stop()
        if self._started:
            for directory in self.directories:
                await directory.engine.stop()
        await self.transport.stop()
        await self._listeners.stop()

    def add_directory(self, directory: Directory) -> None:
        """Use one more data directory from now on, which holds no replica; peers are told."""
        self.directories.add(directory)
        self._restate()

    def remove_directory(self, directory: Directory) -> None:
        """Do not use a data directory any more in which no replica is; peers are told. The caller
        stops its engine.
        """
        invariant(not self.replicas.of(directory), "INV-HOST-5", path=directory.path)
        self.directories.remove(directory)
        self.snapshots.forget(directory.incarnation)
        self.halts.forget_directory(directory.incarnation)
        self._restate()

    def _restate(self) -> None:
        incarnations = tuple(one.incarnation for one in self.directories)
        self.identity = dataclasses.replace(self.identity, incarnations=incarnations)
        self.requests.restate(self.identity)
        self.transport.restate(self.identity)

    def listen(self, listener: Listener) -> Listening:
        """Tell `listener` what happens here from now on; see `listeners`."""
        return self._listeners.listen(listener)

    # --- requests ---------------------------------------------------------------------------------

    def submit_append(
        self, shard: ShardId, request: AppendRequest, timeout_s: float, *, local_only: bool = False
    ) -> asyncio.Future[Applied]:
        """`append` without waiting, so that the blocks of a stream are submitted in their order.
        `local_only`: it is not passed on to another store.

        Raises ShardNotFound, Busy, and NotReady for what the cluster's version has not, at once;
        everything else is the future's outcome.
        """
        replica = self.replicas.running[shard]
        deadline_s = self.clock.monotonic() + timeout_s
        return replica.append(request, deadline_s, local_only=local_only)

    async def append(self, shard: ShardId, request: AppendRequest, timeout_s: float) -> Applied:
        """Append one block; returns when it is applied."""
        return await self.submit_append(shard, request, timeout_s)

    async def propose(self, shard: ShardId, command: bytes, timeout_s: float) -> Applied:
        """Propose a state machine command (its bytes without envelope); returns when it is applied.

        Raises NotLeader where another store leads, unless the command is one that is forwarded.
        """
        replica = self.replicas.running[shard]
        return await replica.propose(command, self.clock.monotonic() + timeout_s)

    async def read_index(self, shard: ShardId, timeout_s: float) -> Index:
        """A linearization point: it returns once what was committed before is applied here."""
        replica = self.replicas.running[shard]
        future: asyncio.Future[Index] = asyncio.get_running_loop().create_future()
        replica.reads.add(future, self.clock.monotonic() + timeout_s)
        replica.activate()
        return await future

    def expire(self, shard: ShardId) -> None:
        """Answer everybody who waits for the replica of `shard` here and whose deadline passed."""
        replica = self.replicas.running.get(shard)
        if replica is not None:
            replica.expire(self.clock.monotonic())

    async def lookup(self, shard: ShardId, query: object, timeout_s: float) -> object:
        """A linearizable query of the state machine."""
        await self.read_index(shard, timeout_s)
        found = self.replicas.running[shard].state_machine.lookup(query)
        return await _in_steps(found) if isinstance(found, Sliced) else found

    def stale_lookup(self, shard: ShardId, query: object) -> object:
        """A query of what this replica has applied."""
        found = self.replicas.running[shard].state_machine.lookup(query)
        return found.at_a_stretch() if isinstance(found, Sliced) else found

    def read_class(self, shard: ShardId, lsn: Lsn) -> ReadClass:
        """What a read from there on would need; see `read_limits`."""
        return read_class(self.replicas.running[shard], lsn)

    async def read_log(
        self, shard: ShardId, lsn: Lsn, max_bytes: int, *, restoring: bool = False
    ) -> LogSlice:
        """See `log_reading.read_log`."""
        replica = self.replicas.running[shard]
        try:
            return await read_log(replica, lsn, max_bytes, restoring=restoring)
        except InvariantViolation as error:
            replica.fail(error)
            raise Halted(f"it halted while it was read: {error}", shard=shard) from error

    async def query_entries(
        self, shard: ShardId, low: Index, high: Index, max_bytes: int, timeout_s: float
    ) -> EntrySlice:
        """Entries of the Raft log by index; see `entry_query.query_entries`. Nothing is changed, so
        after DeadlineExceeded it may be asked again.
        """
        replica = self.replicas.running[shard]
        try:
            late = DeadlineExceeded("the entries were not read in time", shard=shard)
            stopped = NotReady("the host stopped", shard=shard)
            async with self._under_way.until(timeout_s, late, stopped):
                return await query_entries(replica, low, high, max_bytes)
        except InvariantViolation as error:
            replica.fail(error)
            raise Halted(f"it halted while it was read: {error}", shard=shard) from error

    # --- snapshots (`snapshot_requests`, `truncation.asked`) --------------------------------------

    async def request_snapshot(
        self, shard: ShardId, timeout_s: float, *, export_path: str = ""
    ) -> Index:
        """Put the state of the replica here aside, where a restart and a truncation find it; or
        write it to a file at `export_path`, for `install_exported`. Returns the snapshot's index.
        """
        if export_path:
            return await self.snapshots.run(
                shard, lambda keeper, replica: keeper.export_to(replica, export_path), timeout_s
            )
        return await self.snapshots.run(
            shard, lambda keeper, replica: keeper.save(replica), timeout_s
        )

    async def install_exported(self, shard: ShardId, path: str, timeout_s: float) -> Index:
        """Compact the log here behind the snapshot in the file at `path`. Returns its index."""
        return await self.snapshots.run(
            shard, lambda keeper, replica: keeper.install_from(replica, path), timeout_s
        )

    async def compact(self, shard: ShardId, index: Index, timeout_s: float) -> Index:
        """Compact the log here behind `index`, as far as the truncation LSN covers it. Returns the
        index that it is compacted behind.
        """
        return await self.snapshots.run(
            shard, lambda keeper, replica: keeper.compact(replica, index), timeout_s
        )

    async def lsn_at_time(self, shard: ShardId, append_time_us: int) -> FoundTime:
        """See `time_search.lsn_at_time`."""
        return await lsn_at_time(self.replicas.running[shard], append_time_us)

    # --- peers ------------------------------------------------------------------------------------

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        """See `TransportHandler`."""
        for shard, message in batch:
            replica = self.replicas.running.get(shard)
            if replica is not None and message.to == replica.replica_id:
                replica.hear(peer, message)

    def on_unreachable(self, store: StoreId) -> None:
        """See `TransportHandler`."""
        self.tell(PeerUnreachable(store))
        with self.ticker.moment:
            for replica in list(self.replicas.running.values()):
                for member in replica.raft.membership.members:
                    if member.store_id == store:
                        replica.unreachable(member.replica_id)

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        """See `TransportHandler`."""
        return await self.requests.serve(peer, method, body)

    def _is_member(self, shard: ShardId, peer: PeerIdentity) -> bool | None:
        """See `PeerRequests`."""
        replica = self.replicas.running.get(shard)
        return replica.hearing.members.have(peer) if replica is not None else None

    # --- what replicas need (`replica.ReplicaHost`) -----------------------------------------------

    def tell(self, event: HostEvent) -> None:
        """See `ReplicaHost`."""
        self._listeners.tell(event)

    def woke(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self._quiescence.touch(replica)

    def changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self.replicas.changes.touch(replica.shard)
        if replica.stopped:
            self.replicas.neighbours_changed()

    def route(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self.router.route(replica)

    def limit(self, version: int, limits: Sequence[ShardLimits]) -> None:
        """What logs may take, as HAKeeper says; it is in force at once."""
        self.limits.update(version, limits)
        for replica in self.replicas.running.values():
            replica.pace.follow_table()
            replica.changed()

    def send(self, replica: Replica, message: Message) -> None:
        """See `ReplicaHost`."""
        if type(message) is TimeoutNow:
            self.vouching.announce(replica, message)
        store = replica.store_of(message.to)
        if store is None or not self.transport.send(store, replica.shard, message):
            replica.unreachable(message.to)

    def leader_changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        raft = replica.raft
        epoch = raft.membership.change_epoch
        self.tell(
            RoleChanged(replica.shard, replica.replica_id, raft.role, raft.term, raft.leader, epoch)
        )
        if replica.intake.waiting:
            replica.serve_intake()

    def membership_changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self.replicas.neighbours_changed()
        members = replica.raft.membership
        self.tell(
            MembershipChanged(
                replica.shard,
                replica.replica_id,
                replica.raft.role,
                members.change_epoch,
                members.voters,
                members.learners,
            )
        )

    def holds_changed(self, replica: Replica) -> None:
        """See `ReplicaHost`."""
        self.hold_expiry.changed(replica)

    def hakeeper_applied(self) -> None:
        """See `ReplicaHost`."""
        self.on_hakeeper_applied()

    def applying(self, replica: Replica, *, changed: bool) -> None:
        """See `ReplicaHost`."""
        stuck = replica.applying.stuck
        if changed:
            committed = replica.raft.commit
            self.tell(
                ApplyingChanged(
                    replica.shard, replica.replica_id, stuck, replica.applied, committed
                )
            )
        if stuck:
            self.giving_way.stuck(replica)

    # --- time -------------------------------------------------------------------------------------

    def _neighbours(self) -> frozenset[StoreId]:
        """See `ClockWatch`."""
        return self.replicas.neighbours()

    def _looked(self) -> None:
        """The clocks were compared."""
        if self.clocks.far:
            self._clock_leaving.leave(self.replicas.running.values(), self.clocks.near)

    def _tick_directory(self, directory: Directory) -> None:
        directory.engine.mark_if_idle()
        try:
            self._look_at_disk(directory)
        except OSError as error:
            self.replicas.directory_failed(directory, error)

    def _segment_made(self, directory: Directory) -> None:
        """INV-SPACE-3. A disk that cannot be asked fails with the next tick, not in the engine."""
        with contextlib.suppress(OSError):
            self._look_at_disk(directory)

    def _look_at_disk(self, directory: Directory) -> None:
        """Tell every replica in the directory what its disk takes, when that has changed."""
        if directory.look_at_disk():
            for replica in self.replicas.of(directory):
                replica.set_room()

    def _tick(self, ticks: int, now_s: float) -> None:
        """So many ticks have passed."""
        for directory in self.directories.working:
            self._tick_directory(directory)
        for _ in range(ticks):
            self._quiescence.tick(now_s)
        self.hold_expiry.tick(now_s)
        self.clocks.tick(now_s, len(self.replicas.running))

    def _ticks_to_act(self) -> int:
        """In how many ticks something may be due, unless something happens before."""
        ticks = self._quiescence.ticks_to_act()
        for directory in self.directories.working if ticks > 1 else ():
            mark_s = directory.engine.mark_due_s()
            if mark_s is not None:
                ticks = min(ticks, math.ceil(mark_s / self.options.tick_s))
        return ticks


async def _in_steps(found: Sliced[object]) -> object:
    """The answer; other work runs meanwhile."""
    while True:
        try:
            next(found.steps)
        except StopIteration as ended:
            return ended.value
        await asyncio.sleep(0)
