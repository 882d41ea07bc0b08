"""Heartbeats: tell HAKeeper what runs here, and do what it asks.

Theory of operation. Once per interval the sender reports this store and its replicas, as a
difference to the last report that HAKeeper surely has. The answer carries commands. Each command
is carried out in a task of its own, because a slow one must not silence the store. Its result,
success or failure, is sent with every heartbeat until one of them was applied. A command that is
delivered again while it runs, or before HAKeeper has seen its result, is recognised by its id and
not repeated. After a restart it may be repeated, so all commands are idempotent
(`hakeeper.commands.store_commands`).

This file alone decides that a replica is created here only in the data directory that the command
names, and only if HAKeeper knows that it has never run (`fresh`). Where any other replica's data is
missing, the store answers SHARD_NOT_FOUND, and HAKeeper replaces the replica instead of letting it
begin again empty. A data directory with an unattributed loss may have lost replicas that HAKeeper
never heard of. Every heartbeat names those directories (INV-HK-LOST-TRACK), so HAKeeper knows of
the loss before it gives this process its first command.

INV-BEAT-1: a living store is heard. A heartbeat of the store's earlier process may arrive late,
after the first one of this process, and then HAKeeper takes the earlier process for the newer one.
Only the store can know better: it holds the locks of its data directories, so whoever else spoke
for one of them is dead. The store goes on under another boot id.

When HAKeeper cannot be reached nothing here stops: the shards do not need HAKeeper to serve.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    Reason,
    ShardNotFound,
    StaleEpoch,
)

from logservice import bounds
from logservice.events import Event, emit
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.proposals import DirectoryReport, ReplicaReport
from logservice.hakeeper.commands.store_commands import (
    AnyCommand,
    ChangeMembership,
    CommandResult,
    QueuedCommand,
    RemoveReplica,
    StartReplica,
    TransferLeader,
    described,
)
from logservice.ids import Incarnation, Index, ShardId
from logservice.membership import Membership, MembershipCorrupt
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.raft.ready import Role
from logservice.same_names import copied

logger = logging.getLogger(__name__)

_DETAIL_CHARACTERS = 1024
"""What `wire_types.Detail` takes."""

_PATH_CHARACTERS = 4096
"""What `wire_types.Path` takes."""


@dataclass(frozen=True, slots=True)
class StoreDescription:
    """What HAKeeper is told about the store itself. Addresses are what others dial."""

    host: str
    peer_address: str
    client_address: str
    labels: Mapping[str, str]


class HeartbeatSender:
    """One per store; `run` until cancelled, or `beat_once` by whoever keeps the time."""

    def __init__(
        self,
        host: NodeHost,
        client: HAKeeperClient,
        book: AddressBook,
        access: AccessBook,
        describe: Callable[[], StoreDescription],
        interval_s: float = 1.0,
        unattributed_loss: Sequence[Incarnation] = (),
    ) -> None:
        """`describe` is asked before every heartbeat; `unattributed_loss`: see the head of
        this file.
        """
        self._host = host
        self._client = client
        self._book = book
        self._access = access
        self._describe = describe
        self._interval_s = interval_s
        self._unattributed_loss = tuple(unattributed_loss)
        self._boot_id = host.identity.boot_id
        self._sequence = 0
        self._base = 0
        self._reported: dict[ShardId, ReplicaReport] = {}
        self._results: dict[int, CommandResult] = {}
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(bounds.STORE_COMMANDS_AT_ONCE_MAX)
        self._encoded: dict[ShardId, tuple[Membership, bytes]] = {}
        self._made: dict[ShardId, tuple[ReplicaInfo, ReplicaReport]] = {}
        self._broken: BaseException | None = None
        self.last_success_s: float | None = None
        """When a heartbeat was last answered, on the host's monotonic clock."""

    async def run(self) -> None:
        """Beat for ever; when cancelled, the commands under way are cancelled too."""
        for store in sorted(self._book.peer_addresses()):
            if store != self._host.identity.store_id:
                self._host.transport.set_address(store, *self._book.candidates(store))
        try:
            while True:
                started_s = self._host.clock.monotonic()
                try:
                    await self.beat_once()
                except LogServiceError as error:
                    logger.info("heartbeat was not answered: %s", error)
                passed_s = self._host.clock.monotonic() - started_s
                await asyncio.sleep(max(0.0, self._interval_s - passed_s))
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Cancel the commands under way; HAKeeper delivers them again."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settle(self) -> None:
        """Wait until no command is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def beat_once(self) -> replies.HeartbeatReply:
        """One heartbeat; begins what the answer asks for. Raises a LogServiceError if
        unanswered.
        """
        if self._broken is not None:
            raise self._broken
        beat, reports = self._heartbeat()
        try:
            applied = await self._client.propose(beat, bounds.HEARTBEAT_TIMEOUT_S)
        except StaleEpoch as refused:
            holder = refused.metadata.get("incarnations", "").split(",")
            if any(str(mine) in holder for mine in self._host.identity.incarnations):
                self._renew_boot_id()
            raise
        try:
            reply = replies.decode(applied.data)
        except replies.ReplyCorrupt as error:
            raise InvalidArgument(str(error), field="reply") from error
        for result in beat.results:
            self._results.pop(result.id, None)
        self._base = 0 if reply.need_full else beat.sequence
        self._reported = reports
        self.last_success_s = self._host.clock.monotonic()
        if reply.access is not None:
            self._access.update(reply.access_version, reply.access)
        known, was_known = self._book.stores, self._book.knows_hakeeper
        changed = self._book.update(reply.directory, reply.hakeeper)
        for store in sorted(self._book.stores - known) if was_known else ():
            emit(logger, Event.STORE_JOINED, joined=store)
            self._host.requests.audit.peer(store, "joined", reason="")
        for store in changed:
            if store != self._host.identity.store_id:
                self._host.transport.set_address(store, *self._book.candidates(store))
        for lost in reply.forgotten:
            self._host.replicas.halt_forgetful(lost.shard, lost.replica, lost.through)
        for queued in reply.commands:
            self._accept(queued)
        return reply

    def _renew_boot_id(self) -> None:
        """INV-BEAT-1. As random as the first one, and never one that was used."""
        seed = f"{self._host.identity.boot_id}/{self._boot_id}".encode()
        digest = hashlib.blake2b(seed, digest_size=8).digest()
        self._boot_id = int.from_bytes(digest, "little") >> 1
        self._base = 0
        logger.warning("a late heartbeat of an earlier process was taken for a newer one")

    # --- reporting --------------------------------------------------------------------------------

    def _heartbeat(self) -> tuple[proposals.StoreHeartbeat, dict[ShardId, ReplicaReport]]:
        reports = self._reports()
        full = self._base == 0
        known = {(report.shard, report.replica) for report in reports.values()}
        stored = tuple(item for item in self._host.directories.replicas() if item not in known)
        described = self._describe()
        self._sequence += 1
        beat = proposals.StoreHeartbeat(
            self._host.identity.store_id,
            described.host,
            described.peer_address,
            described.client_address,
            tuple(_bounded(one) for one in self._host.directories.infos() if one.incarnation),
            self._boot_id,
            self._sequence,
            self._base,
            dict(described.labels),
            replicas=tuple(
                report
                for shard, report in sorted(reports.items())
                if full
                or (
                    # Sleeping replicas give the same object again: no need to compare its fields.
                    (before := self._reported.get(shard)) is not report and before != report
                )
            ),
            gone=() if full else tuple(sorted(set(self._reported) - set(reports))),
            stored=stored,
            results=tuple(self._results[number] for number in sorted(self._results)),
            access_version=self._access.list.version,
            unattributed_loss=self._unattributed_loss,
        )
        return beat, reports

    def _reports(self) -> dict[ShardId, ReplicaReport]:
        reports = {info.shard: self._report(info) for info in self._host.replicas.infos()}
        repairing = self._host.halts.repairing()
        for shard, halted in self._host.halts.all().items():
            if shard not in reports:
                reports[shard] = ReplicaReport(
                    shard,
                    halted.replica,
                    halted.incarnation,
                    Index(0),
                    b"",
                    halted=halted.reason[:_DETAIL_CHARACTERS],
                    repairing=shard in repairing,
                )
        self._encoded = {shard: self._encoded[shard] for shard in reports if shard in self._encoded}
        self._made = {shard: self._made[shard] for shard in reports if shard in self._made}
        return reports

    def _report(self, info: ReplicaInfo) -> ReplicaReport:
        made = self._made.get(info.shard)
        if made is not None and made[0] is info:
            return made[1]
        report = self._make_report(info)
        self._made[info.shard] = (info, report)
        return report

    def _make_report(self, info: ReplicaInfo) -> ReplicaReport:
        leads = info.role is Role.LEADER
        known = self._encoded.get(info.shard)
        if known is None or known[0] is not info.membership:
            known = (info.membership, info.membership.encode())
            self._encoded[info.shard] = known
        return copied(
            ReplicaReport,
            info,
            epoch=info.membership.change_epoch,
            membership=known[1],
            leads=leads,
            match=info.match if leads else (),
            recently_active=info.recently_active if leads else (),
            halted=info.halted[:_DETAIL_CHARACTERS],
            repairing=False,
        )

    # --- commands ---------------------------------------------------------------------------------

    def _accept(self, queued: QueuedCommand) -> None:
        if queued.id in self._seen:
            return
        self._seen[queued.id] = None
        while len(self._seen) > bounds.STORE_COMMANDS_REMEMBERED:
            self._seen.popitem(last=False)
        task = asyncio.get_running_loop().create_task(self._execute(queued))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # An invariant does not hold: `run` ends with it, and so does the store.
            self._broken = task.exception()

    async def _execute(self, queued: QueuedCommand) -> None:
        """Carry out one command; whatever happens becomes a result, except cancellation."""
        try:
            async with self._slots:
                await self._carry_out(queued.command)
        except LogServiceError as error:
            emit(logger, Event.COMMAND_FAILED, command_id=queued.id, error=error)
            reason, detail = error.reason.value, str(error)
        except MembershipCorrupt as error:
            reason, detail = InvalidArgument.reason.value, str(error)
        except asyncio.CancelledError:
            # Not carried out; it is accepted again when it is delivered again.
            self._seen.pop(queued.id, None)
            raise
        except Exception as error:
            logger.exception("HAKeeper's command %d failed", queued.id)
            reason, detail = Reason.UNKNOWN_OUTCOME.value, repr(error)
        else:
            reason = detail = ""
            emit(
                logger, Event.COMMAND_DONE, command_id=queued.id, command=described(queued.command)
            )
        self._results[queued.id] = CommandResult(queued.id, reason, detail[:_DETAIL_CHARACTERS])

    async def _carry_out(self, command: AnyCommand) -> None:
        if isinstance(command, StartReplica):
            await self._start(command)
        elif isinstance(command, RemoveReplica):
            await self._host.replicas.remove(command.shard, command.replica)
        elif isinstance(command, ChangeMembership):
            await self._host.router.change_membership(
                command.shard, command.config_change(), bounds.STORE_COMMAND_TIMEOUT_S
            )
        elif isinstance(command, TransferLeader):
            await self._host.router.transfer_leadership(
                command.shard, command.target, bounds.STORE_COMMAND_TIMEOUT_S
            )
        else:
            raise InvalidArgument("a store takes no orders for services", field="command")

    async def _start(self, command: StartReplica) -> None:
        if command.incarnation not in self._host.identity.incarnations:
            raise InvalidArgument(
                f"the data directories here are {self._host.identity.incarnations}",
                field="incarnation",
            )
        stored = (command.shard, command.replica) in self._host.directories.replicas()
        if not stored and not command.fresh:
            raise ShardNotFound(
                f"replica {command.replica} has run here and its data is gone", shard=command.shard
            )
        await self._host.replicas.start(
            command.shard,
            command.replica,
            Membership.decode(command.membership),
            join=command.join,
            incarnation=command.incarnation,
        )


def _bounded(report: DirectoryReport) -> DirectoryReport:
    """The report with its texts cut to what HAKeeper takes."""
    failed, path = report.failed[:_DETAIL_CHARACTERS], report.path[:_PATH_CHARACTERS]
    return msgspec.structs.replace(report, failed=failed, path=path)
