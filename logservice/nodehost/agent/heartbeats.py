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

When HAKeeper cannot be reached nothing here stops: the shards do not need HAKeeper to serve. When
it turns this store away (it was forgotten, and went on running) the store hands its leaderships to
others. HAKeeper hears of a shard from its leader's store, and does not hear this one; so it could
not replace the replicas here as long as they lead. Why it was turned away is kept for `/readyz`,
which says it until a heartbeat is answered.

Heartbeats of stores with a replica of shard 0 go together: each entry of shard 0 that is applied
here sends one that is nearly due (`hakeeper_applied`), and the next one is due a little earlier, in
time for the entry of its second (`together`). At the cluster's first start the entry that places
the first shards sends one in any case: its answer carries the commands that start them.

An answer carries a bounded number of commands, and HAKeeper has a bounded number under way. An
interval for each of them would be most of the time that many new logs take. So when replicas were
started, and no command is under way any more, a heartbeat tells of them at once, and of nothing
else. One more follows when HAKeeper has had time to think of what comes next (`HEARTBEAT_SOON_S`).
Both go between those of the intervals, which they do not move, and are only sent by a store that
has just started a replica.

A heartbeat that is not answered is one line in the log for each reason, and not one for each
interval: a store may be turned away for days.

INV-BEAT-AWAY: a store that HAKeeper turned away asks for another leader of every shard that it
leads, after each refusal, as long as the shard has another voter.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import msgspec
from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    PermissionDenied,
    Reason,
    ShardNotFound,
    StaleEpoch,
)

from logservice import bounds
from logservice.background import begin_task
from logservice.events import Event, emit
from logservice.hakeeper.answers import queries
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.phase import Phase
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
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, Lsn, ReplicaId, ShardId
from logservice.membership import MembershipCorrupt, shared
from logservice.nodehost.agent import service_holds
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.address_book import AddressBook
from logservice.nodehost.agent.directory import Directory
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.nodehost.agent.version_learner import VersionLearner
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.pause import Pause
from logservice.raft.ready import Role
from logservice.same_names import copied
from logservice.versions import CLOCK_LABEL, KNOWN, VersionRange, used_labels

logger = logging.getLogger(__name__)

_TURNED_AWAY: Final = "joining"
"""Said in a refusal of HAKeeper: why the store is none of the cluster's (`stores.enrolment`)."""

_STORED_BEATS: Final = 30
"""At every so many heartbeats what is stored here is looked at, although nothing says that it has
changed."""

_TOGETHER: Final = 0.25
"""Of the interval: by so much a heartbeat may be early to go with those of other stores."""

_EARLIER: Final = 0.1
"""Of the interval: by no more than that one heartbeat comes earlier to go with those of others."""

_UNPLACED: Final = (Phase.CREATED, Phase.BOOTSTRAPPING)

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


_NOT_YET: Final[Mapping[str, Any]] = {
    "closed_index": Index(0),
    "closed_lsn": Lsn(0),
    "holds": 0,
    "requested_lsn": Lsn(0),
    "service_holds": (),
}
"""What a report does not say before the cluster is at version 2."""


class HeartbeatSender:
    """One per store; `run` until cancelled, or `beat_once` by whoever keeps the time."""

    def __init__(
        self,
        host: NodeHost,
        client: HAKeeperClient,
        book: AddressBook,
        access: AccessBook,
        describe: Callable[[], StoreDescription],
        directory: Directory,
        learner: VersionLearner,
        interval_s: float = 1.0,
        unattributed_loss: Sequence[Incarnation] = (),
        versions: VersionRange = KNOWN,
    ) -> None:
        """`describe` is asked before every heartbeat; `unattributed_loss`: see the head of
        this file. `versions`: the cluster versions that this program knows.
        """
        self._versions = versions
        self._host = host
        self._client = client
        self._book = book
        self._access = access
        self._describe = describe
        self._directory = directory
        self._following: asyncio.Task[None] | None = None
        self._stores_index = 0
        self._learner = learner
        self._interval_s = interval_s
        self._pause = Pause()
        self._next_s = 0.0
        self._missed = False
        """The heartbeat that begins goes behind an entry that it should go with."""
        self._unplaced = False
        """The newest answer said that the first shards are not placed yet."""
        self._started: set[ShardId] = set()
        """Where a replica was started on HAKeeper's command since the newest heartbeat began."""
        self._soon_s = math.inf
        """When one more heartbeat goes, in any case, to fetch what is to be started next."""
        self._unattributed_loss = tuple(unattributed_loss)
        self._boot_id = host.identity.boot_id
        self._sequence = 0
        self._base = 0
        self._full_due = False
        self._reported: dict[ShardId, ReplicaReport] = {}
        """What the heartbeats that were answered have said."""
        self._stored: tuple[tuple[ShardId, ReplicaId], ...] = ()
        """What is stored here of replicas that are in no report."""
        self._results: dict[int, CommandResult] = {}
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._burying: set[ShardId] = set()
        self._leaving: set[ShardId] = set()
        self._holding: set[ShardId] = set()
        self._slots = asyncio.Semaphore(bounds.STORE_COMMANDS_AT_ONCE_MAX)
        self._made: dict[ShardId, tuple[ReplicaInfo | None, ReplicaReport]] = {}
        """What there is to report now; None for a replica that is halted."""
        self._made_at = host.cluster_version.value
        self._untold: set[ShardId] = set()
        """Shards whose reports may be others than those in `_reported`."""
        self._halted: set[ShardId] = set()
        self._stuck: dict[ShardId, ReplicaId] = {}
        host.replicas.changes.touch_all()
        self._broken: BaseException | None = None
        self._unanswered: set[Reason] = set()
        self.turned_away = ""
        """Why HAKeeper takes no heartbeat of this store; "" when it took the last one it judged."""
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
                between = self._goes_between(started_s)
                in_s = self._next_in_s() if not between else 0.0
                tells, self._soon_s = bool(self._started), math.inf
                try:
                    await self.beat_once(few=between)
                    if tells:
                        self._soon_s = self._host.clock.monotonic() + bounds.HEARTBEAT_SOON_S
                except LogServiceError as error:
                    if error.reason not in self._unanswered:
                        self._unanswered.add(error.reason)
                        logger.info("heartbeat was not answered: %s", error)
                if not between:
                    self._next_s = started_s + in_s
                left_s = min(self._next_s, self._soon_s) - self._host.clock.monotonic()
                goes_now = self._placed_now() or self._all_started()
                await self._pause.sleep(0.0 if goes_now else left_s)
        finally:
            await self.stop()

    def _next_in_s(self) -> float:
        """From the heartbeat that begins to the next one."""
        missed, self._missed = self._missed, False
        if not missed:
            return self._interval_s
        return self._interval_s - min(2 * bounds.HAKEEPER_TOGETHER_S, self._interval_s * _EARLIER)

    def hakeeper_applied(self) -> None:
        """An entry of shard 0 was applied here: a heartbeat that is nearly due goes now. So the
        stores with a replica of shard 0 send theirs together, and its disks and connections are
        busy once in an interval, not once for each store.
        """
        early_s = self._next_s - self._host.clock.monotonic()
        if early_s <= 0:
            return
        nearly = self._nearly_due(early_s)
        self._missed |= nearly
        if nearly or self._placed_now():
            self._pause.end()

    def _placed_now(self) -> bool:
        """Whether the first shards were placed since the newest answer, as far as a replica of
        shard 0 here knows. It says so once, so that nothing is sent without a pause.
        """
        if not self._unplaced or self._host.replicas.info(HAKEEPER_SHARD) is None:
            return False
        self._unplaced = self._host.stale_lookup(HAKEEPER_SHARD, queries.GetPhase()) in _UNPLACED
        return not self._unplaced

    def _all_started(self) -> bool:
        """Whether there are new replicas to tell of, and no command is under way."""
        return bool(self._started) and not self._tasks

    def _goes_between(self, now_s: float) -> bool:
        """Whether the heartbeat that begins is one more, and not the one of its interval, which it
        does not move.
        """
        if self._nearly_due(self._next_s - now_s):
            return False
        return self._all_started() or now_s >= self._soon_s

    def _nearly_due(self, in_s: float) -> bool:
        """Whether a heartbeat that is due in so many seconds goes with what goes now."""
        return in_s <= self._interval_s * _TOGETHER

    async def stop(self) -> None:
        """Cancel the commands under way; HAKeeper delivers them again."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._learner.stop()

    def report_all(self) -> None:
        """The next heartbeat is a full report: the data directories have changed, and HAKeeper
        forgets then what it queued for this store and what is stored here.
        """
        self._full_due = True

    async def settle(self) -> None:
        """Wait until no command is under way."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def beat_once(self, *, few: bool = False) -> replies.HeartbeatReply:
        """One heartbeat; begins what the answer asks for. `few`: it is about replicas that were
        just started, and no others. Raises a LogServiceError if unanswered.
        """
        if self._broken is not None:
            raise self._broken
        beat = self._heartbeat(few=few)
        known = self._directory.index
        asked_s = self._host.clock.boottime()
        try:
            applied = await self._client.propose(beat, bounds.HEARTBEAT_TIMEOUT_S)
        except StaleEpoch as refused:
            holder = refused.metadata.get("incarnations", "").split(",")
            if any(str(mine) in holder for mine in self._host.identity.incarnations):
                self._renew_boot_id()
            raise
        except PermissionDenied as refused:
            if _TURNED_AWAY in refused.metadata:
                self.turned_away = refused.metadata[_TURNED_AWAY]
                self._leave_leaderships()
            raise
        try:
            reply = replies.decode(applied.data)
        except replies.ReplyCorrupt as error:
            raise InvalidArgument(str(error), field="reply") from error
        for result in beat.results:
            self._results.pop(result.id, None)
        self._base = 0 if reply.need_full else beat.sequence
        self._has_told(beat)
        self.last_success_s = self._host.clock.monotonic()
        self.turned_away = ""
        self._unanswered.clear()
        self._unplaced = reply.phase in _UNPLACED
        self._learner.hear(reply.cluster_version, placed=not self._unplaced)
        if reply.access is not None:
            self._access.update(reply.access_version, reply.access, reply.denials)
        self._access.confirm(asked_s)
        self._take_stores(reply)
        if reply.limits is not None:
            self._host.limit(reply.limits_version, reply.limits)
        self._host.limits.confirm(asked_s)
        if reply.quotas is not None:
            self._host.quotas.update(reply.quotas_version, reply.quotas)
        self._host.catch_up.change(reply.catch_up_bytes_per_s)
        self._host.reads.change(reply.tail_read_bytes_per_s, reply.catch_up_read_bytes_per_s)
        if reply.index and self._directory.hear(
            known, reply.index, reply.directory_index, reply.access_version
        ):
            self._follow_soon()
        for shard in reply.deleted:
            self._bury(shard)
        for lost in reply.forgotten:
            self._host.replicas.halt_forgetful(lost.shard, lost.replica, lost.through)
        self._hold(reply.holds)
        for queued in reply.commands:
            self._accept(queued)
        return reply

    def _take_stores(self, reply: replies.HeartbeatReply) -> None:
        """Who belongs to the cluster and where; an answer without it says that nothing changed."""
        if reply.stores_index and reply.stores_index == self._stores_index:
            self._book.learn_hakeeper(reply.hakeeper)
            return
        self._stores_index = reply.stores_index
        known, was_known = self._book.stores, self._book.knows_hakeeper
        changed = self._book.update(reply.directory, reply.hakeeper)
        for store in sorted(self._book.stores - known) if was_known else ():
            emit(logger, Event.STORE_JOINED, joined=store)
            self._host.requests.audit.peer(store, "joined", reason="")
        for store in changed:
            if store != self._host.identity.store_id:
                self._host.transport.set_address(store, *self._book.candidates(store))

    def _follow_soon(self) -> None:
        if self._following is None or self._following.done():
            self._following = begin_task(self._follow(), self._done)
            self._tasks.add(self._following)

    async def _follow(self) -> None:
        """Ask for rows of the directory that this store has not."""
        try:
            for _ in range(bounds.DIRECTORY_PAGES_PER_BEAT_MAX):
                asked = self._directory.wanted()
                page = await self._client.directory(asked, bounds.HEARTBEAT_TIMEOUT_S)
                if not self._directory.take(asked, page):
                    return
                await asyncio.sleep(0)
        except LogServiceError as error:
            logger.info("the directory was not told: %s", error)

    def _leave_leaderships(self) -> None:
        """INV-BEAT-AWAY: to the voter of each shard that is furthest along."""
        for info in self._host.replicas.infos():
            match = dict(info.match)
            heirs = [one for one in info.membership.full_voters if one != info.replica]
            if info.role is Role.LEADER and heirs and info.shard not in self._leaving:
                heir = max(heirs, key=lambda one: (match.get(one, Index(0)), -one))
                self._leaving.add(info.shard)
                self._tasks.add(begin_task(self._leave(info.shard, heir), self._tasks.discard))

    async def _leave(self, shard: ShardId, heir: ReplicaId) -> None:
        try:
            await self._host.router.transfer_leadership(shard, heir, bounds.HEARTBEAT_TIMEOUT_S)
        except LogServiceError as error:
            logger.info("shard %d has no other leader yet: %s", shard, error)
        finally:
            self._leaving.discard(shard)

    def _renew_boot_id(self) -> None:
        """INV-BEAT-1. As random as the first one, and never one that was used."""
        seed = f"{self._host.identity.boot_id}/{self._boot_id}".encode()
        digest = hashlib.blake2b(seed, digest_size=8).digest()
        self._boot_id = int.from_bytes(digest, "little") >> 1
        self._base = 0
        logger.warning("a late heartbeat of an earlier process was taken for a newer one")

    # --- reporting --------------------------------------------------------------------------------

    def _heartbeat(self, *, few: bool) -> proposals.StoreHeartbeat:
        """`few`: only the replicas that were just started are looked at, if that can do. Until they
        quiesce all are looked at otherwise, which takes 20 ms for a thousand.
        """
        if self._full_due:
            self._base, self._full_due = 0, False
        full = self._base == 0
        started, self._started = self._started, set()
        few = few and not full and not self._stored and started.isdisjoint(self._reported)
        few = few and self._made_at == self._host.cluster_version.value
        if few:
            self._look_at(started)
        else:
            self._look()
        told = {
            shard: made[1]
            for shard in (self._made if full else self._untold)
            if (made := self._made.get(shard)) is not None
            and (full or self._reported.get(shard) != made[1])
        }
        gone = [one for one in self._untold if one in self._reported and one not in self._made]
        looks = self._sequence % _STORED_BEATS == 0
        if not few and (full or looks or self._stored or self._are_others(told)):
            known = {(report.shard, report.replica) for _, report in self._made.values()}
            stored = self._host.directories.replicas()
            self._stored = tuple(item for item in stored if item not in known)
        described = self._describe()
        self._sequence += 1
        return proposals.StoreHeartbeat(
            self._host.identity.store_id,
            described.host,
            described.peer_address,
            described.client_address,
            tuple(_bounded(one) for one in self._host.directories.infos() if one.incarnation),
            self._boot_id,
            self._sequence,
            self._base,
            {
                **described.labels,
                **self._versions.labels(),
                **used_labels(self._host.cluster_version.value),
                **({CLOCK_LABEL: "far"} if self._host.clocks.far else {}),
            },
            replicas=tuple(told[shard] for shard in sorted(told)),
            gone=() if full else tuple(sorted(gone)),
            stored=self._stored,
            results=tuple(self._results[number] for number in sorted(self._results)),
            access_version=self._access.list.version,
            unattributed_loss=self._unattributed_loss,
            stuck=self._told_stuck(),
            stores_index=self._stores_index if self._host.cluster_version.value >= 2 else 0,
            limits_version=self._host.limits.version,
            quotas_version=self._host.quotas.version,
        )

    def _has_told(self, beat: proposals.StoreHeartbeat) -> None:
        """HAKeeper knows what the heartbeat said."""
        if not beat.base:
            self._reported.clear()
        for shard in beat.gone:
            self._reported.pop(shard, None)
        self._reported.update((report.shard, report) for report in beat.replicas)
        self._untold.clear()

    def _are_others(self, told: Mapping[ShardId, ReplicaReport]) -> bool:
        """Whether these are not the replicas of the newest heartbeat that was answered: only then
        can data be stored here that was not before, and belongs to none of them.
        """
        before = self._reported
        return len(self._made) != len(before) or any(
            shard not in before or before[shard].replica != report.replica
            for shard, report in told.items()
        )

    def _look(self) -> None:
        """Bring `_made`, `_stuck` and `_untold` up to date, by what has changed here."""
        changes, version = self._host.replicas.changes, self._host.cluster_version.value
        if version != self._made_at:
            self._made_at = version
            self._made.clear()  # a report says more now
            changes.touch_all()
        for shard, info in changes.take():
            if info is not None:
                self._make(info)
            elif self._made.pop(shard, None) is not None:
                self._stuck.pop(shard, None)
                self._untold.add(shard)
        self._look_at_halted()

    def _look_at(self, started: Collection[ShardId]) -> None:
        """The same for replicas that were just started, and for no other."""
        for info in map(self._host.replicas.info, started):
            if info is not None:
                self._make(info)

    def _look_at_halted(self) -> None:
        running, halted = self._host.replicas.running, self._host.halts.all()
        for shard in self._halted:
            if shard not in halted and shard not in running:
                self._made.pop(shard, None)
                self._untold.add(shard)
        self._halted = {shard for shard in halted if shard not in running}
        repairing = self._host.halts.repairing()
        for shard in self._halted:
            one = halted[shard]
            report = ReplicaReport(
                shard,
                one.replica,
                one.incarnation,
                Index(0),
                b"",
                halted=one.reason[:_DETAIL_CHARACTERS],
                repairing=shard in repairing,
            )
            self._made[shard] = (None, report)
            self._untold.add(shard)

    def _told_stuck(self) -> tuple[tuple[ShardId, ReplicaId], ...]:
        if self._host.cluster_version.value < 2:
            return ()
        return tuple(sorted(self._stuck.items())[: bounds.HEARTBEAT_STUCK_MAX])

    def _make(self, info: ReplicaInfo) -> None:
        """The report of a replica that runs."""
        known, before = self._made.get(info.shard, (None, None))
        if known is info:
            return
        if known is not None and before is not None and known.membership is info.membership:
            membership = before.membership
        else:
            membership = info.membership.encode()
        report = self._make_report(info, membership)
        if before == report:
            report = before  # `_reported` has it, too: one of them is kept
        else:
            self._untold.add(info.shard)
        self._made[info.shard] = (info, report)
        if info.stuck:
            self._stuck[info.shard] = info.replica
        else:
            self._stuck.pop(info.shard, None)

    def _make_report(self, info: ReplicaInfo, membership: bytes) -> ReplicaReport:
        leads = info.role is Role.LEADER
        return copied(
            ReplicaReport,
            info,
            epoch=info.membership.change_epoch,
            membership=membership,
            leads=leads,
            match=info.match if leads else (),
            recently_active=info.recently_active if leads else (),
            halted=info.halted[:_DETAIL_CHARACTERS],
            repairing=False,
            **({} if self._host.cluster_version.value >= 2 else _NOT_YET),
        )

    # --- deleted logs -----------------------------------------------------------------------------

    def _bury(self, shard: ShardId) -> None:
        """HAKeeper says that the log is deleted: remove every replica of it, whoever put it here.

        Every answer says so until no report and no list of what is stored names one.
        """
        if shard in self._burying:
            return
        self._burying.add(shard)
        self._tasks.add(begin_task(self._remove_all(shard), self._done))

    async def _remove_all(self, shard: ShardId) -> None:
        try:
            async with self._slots:
                self._host.replicas.bury(shard)
                for replica in self._replicas_of(shard):
                    await self._host.replicas.remove(shard, replica)
                    emit(logger, Event.LOG_REMOVED, shard=shard, replica=replica)
        except LogServiceError as error:
            emit(logger, Event.LOG_NOT_REMOVED, shard=shard, error=error)
        finally:
            self._burying.discard(shard)

    def _replicas_of(self, shard: ShardId) -> list[ReplicaId]:
        found = {
            replica for stored, replica in self._host.directories.replicas() if stored == shard
        }
        running = self._host.replicas.info(shard)
        halted = self._host.halts.all().get(shard)
        found |= {one.replica for one in (running, halted) if one is not None}
        return sorted(found)

    # --- holds of services ------------------------------------------------------------------------

    def _hold(self, orders: Sequence[replies.HoldOrder]) -> None:
        """Carry out what HAKeeper wants held in the logs that are led here, one task for each.

        It asks again until a report says that it is so, hence what fails is not tried again here.
        """
        for shard, some in groupby(sorted(orders, key=_shard_of), _shard_of):
            if shard not in self._holding:
                self._holding.add(shard)
                self._tasks.add(begin_task(self._hold_in(shard, tuple(some)), self._done))

    async def _hold_in(self, shard: ShardId, orders: Sequence[replies.HoldOrder]) -> None:
        try:
            async with self._slots:
                for order in orders:
                    await service_holds.carry_out(self._host, order)
        finally:
            self._holding.discard(shard)

    # --- commands ---------------------------------------------------------------------------------

    def _accept(self, queued: QueuedCommand) -> None:
        if queued.id in self._seen:
            return
        self._seen[queued.id] = None
        while len(self._seen) > bounds.STORE_COMMANDS_REMEMBERED:
            self._seen.popitem(last=False)
        self._tasks.add(begin_task(self._execute(queued), self._done))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # An invariant does not hold: `run` ends with it, and so does the store.
            self._broken = task.exception()
        if self._all_started():
            self._pause.end()

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
            if isinstance(queued.command, StartReplica):
                self._started.add(queued.command.shard)
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
        if not command.fresh and not self._host.directories.stores(command.shard, command.replica):
            raise ShardNotFound(
                f"replica {command.replica} has run here and its data is gone", shard=command.shard
            )
        await self._host.replicas.start(
            command.shard,
            command.replica,
            shared(command.membership),
            join=command.join,
            incarnation=command.incarnation,
        )


def _shard_of(order: replies.HoldOrder) -> ShardId:
    return order.shard


def _bounded(report: DirectoryReport) -> DirectoryReport:
    """The report with its texts cut to what HAKeeper takes."""
    failed, path = report.failed[:_DETAIL_CHARACTERS], report.path[:_PATH_CHARACTERS]
    return msgspec.structs.replace(report, failed=failed, path=path)
