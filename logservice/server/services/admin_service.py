"""admin_service: what one store is doing, for operators and tests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

from logservice_wire.errors import (
    InvalidArgument,
    NotEnoughStores,
    NotReady,
    TooLarge,
    UnknownOutcome,
    VerbRefused,
)
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc
from msgspec.structs import replace

from logservice.bounds import IDENTITIES_PER_PAGE_MAX, REPORT_BYTES_MAX
from logservice.ids import NO_REPLICA, ReplicaId, ShardId
from logservice.memory_budget import PARTS
from logservice.nodehost.assembly.directory_changes import DirectoryChanges
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.measuring.figure import Figure
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.same_names import copied
from logservice.server.edge import token_addresses
from logservice.server.edge.call import Context, effect, handler, timeout_s
from logservice.server.edge.identity_book import IdentityBook, Seen
from logservice.server.log_level import LogLevel
from logservice.server.measuring import Measuring
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.status import (
    DirectoryStatus,
    ReplicaStatus,
    StoreStatus,
    to_json_in_slices,
)
from logservice.server.reload.reloads import Reloads
from logservice.server.services import truncation_standing
from logservice.server.services.context import StoreContext, shard_not_found


class AdminService(admin_pb2_grpc.AdminServicer):
    """See the proto."""

    def __init__(
        self,
        store: StoreContext,
        status: Callable[[], StoreStatus],
        report: Callable[[bool], Awaitable[ClusterReport]],
        workers: Sequence[TruncationWorker] = (),
        log_level: LogLevel | None = None,
        seen: IdentityBook | None = None,
        reloads: Reloads | None = None,
        changes: DirectoryChanges | None = None,
        measuring: Measuring | None = None,
    ) -> None:
        """`status`: of this store; `report`: the cluster's, made now or not; see `Monitor`.
        `workers`: the truncation worker of each data directory. `log_level`, `reloads`: of this
        process. `seen`: who has called it. `changes`: of the data directories. `measuring`: of this
        store.
        """
        self._seen = IdentityBook() if seen is None else seen
        self._reloads = reloads
        self._measuring = measuring
        self._changes = changes
        self._workers = workers
        self._log_level = log_level or LogLevel("info")
        self._store = store
        self._host = store.host
        self._status = status
        self._report = report

    @handler
    async def GetStoreStatus(
        self, request: admin_pb2.GetStoreStatusRequest, context: Context
    ) -> admin_pb2.StoreStatus:
        """Identity, log storage, data directories and every replica here, or only the one that is
        asked for; role "halted" for those that do not run.
        """
        status = self._status()
        only = ShardId(request.only_shard) if request.HasField("only_shard") else None
        figures = status.logdb
        return admin_pb2.StoreStatus(
            store_id=status.store,
            cluster_id=status.cluster,
            version=status.version,
            uptime_ms=int(status.uptime_s * 1000),
            segment_bytes=int(figures.get("segment_bytes", 0)),
            segment_files=int(figures.get("segment_files", 0)),
            durable_writes=int(figures.get("durable_writes", 0)),
            entries_written=int(figures.get("entries_written", 0)),
            bytes_written=int(figures.get("bytes_written", 0)),
            durable_write_p50_us=int(figures.get("durable_write_p50_us", 0)),
            durable_write_p99_us=int(figures.get("durable_write_p99_us", 0)),
            replicas=[
                _replica(replica) for replica in status.replicas if only in (None, replica.shard)
            ],
            truncation_counts=status.truncation,
            directories=[_directory(status, directory) for directory in status.directories],
            memory=_memory(status.memory),
            log_level=_told(self._log_level),
            config=admin_pb2.ConfigInEffect(
                digest=status.config_digest,
                since_us=status.config_since_us,
                waiting=status.config_waiting,
            ),
        )

    @handler
    async def GetClusterReport(
        self, request: admin_pb2.GetClusterReportRequest, context: Context
    ) -> admin_pb2.ClusterReport:
        """The whole cluster as seen from here."""
        report = _as_reached(await self._report(request.made_now))
        found = await to_json_in_slices(report)
        if len(found) > REPORT_BYTES_MAX:
            raise TooLarge(
                "list the logs page by page instead",
                name="report",
                value=len(found),
                limit=REPORT_BYTES_MAX,
            )
        return admin_pb2.ClusterReport(json=found)

    @handler
    async def GetTruncation(
        self, request: admin_pb2.GetTruncationRequest, context: Context
    ) -> admin_pb2.GetTruncationResponse:
        """How truncation stands at the replicas here, page by page."""
        return await truncation_standing.page(self._host, self._workers, request)

    @handler
    async def TransferLeader(
        self, request: admin_pb2.TransferLeaderRequest, context: Context
    ) -> admin_pb2.TransferLeaderResponse:
        """Hand leadership to the replica on `store_id`, or on any other store; waits for it."""
        shard = ShardId(request.shard_id)
        info = self._host.replicas.info(shard)
        if info is None:
            raise shard_not_found(shard)
        target, store = _target(info, request.store_id)
        limit_s = timeout_s(context, self._store.limits)
        await effect(self._host.router.transfer_leadership(shard, target, limit_s))
        return admin_pb2.TransferLeaderResponse(leader_store=store)

    @handler
    async def ListIdentities(
        self, request: admin_pb2.ListIdentitiesRequest, context: Context
    ) -> admin_pb2.ListIdentitiesResponse:
        """Who has called this store, page by page."""
        only = request.identity if request.HasField("identity") else None
        rows = self._seen.rows(request.after, only)
        page = rows[: min(request.limit or IDENTITIES_PER_PAGE_MAX, IDENTITIES_PER_PAGE_MAX)]
        return admin_pb2.ListIdentitiesResponse(
            store_id=self._host.identity.store_id,
            since_us=_us(self._seen.since_s),
            forgotten=self._seen.forgotten,
            identities=[_seen_row(row) for row in page],
            after=page[-1].identity if len(page) < len(rows) else "",
        )

    @handler
    async def SetLogLevel(
        self, request: admin_pb2.SetLogLevelRequest, context: Context
    ) -> admin_pb2.SetLogLevelResponse:
        """Write more, or less, to the log of this process."""

        async def done() -> None:
            self._log_level.set(request.level, request.for_ms / 1000)

        await effect(done())
        return admin_pb2.SetLogLevelResponse(log_level=_told(self._log_level))

    @handler
    async def ReloadConfig(
        self, request: admin_pb2.ReloadConfigRequest, context: Context
    ) -> admin_pb2.ReloadConfigResponse:
        """Read the configuration again, and say what was taken up."""
        if self._reloads is None:
            raise VerbRefused("this store was not started from a file")
        found = await effect(self._reloads.reload(dry_run=request.dry_run))
        now = self._reloads.in_effect
        return admin_pb2.ReloadConfigResponse(
            taken_up=found.taken_up,
            needs_restart=found.needs_restart,
            first_start=found.first_start,
            config=admin_pb2.ConfigInEffect(
                digest=now.digest, since_us=now.since_us, waiting=now.waiting
            ),
        )

    @handler
    async def AddDirectory(
        self, request: admin_pb2.AddDirectoryRequest, context: Context
    ) -> admin_pb2.AddDirectoryResponse:
        """Use one more data directory."""
        found = await self._change(request.path, context, adds=True)
        return admin_pb2.AddDirectoryResponse(incarnation=found)

    @handler
    async def RemoveDirectory(
        self, request: admin_pb2.RemoveDirectoryRequest, context: Context
    ) -> admin_pb2.RemoveDirectoryResponse:
        """Let go of a data directory."""
        found = await self._change(request.path, context, adds=False)
        return admin_pb2.RemoveDirectoryResponse(incarnation=found)

    @handler
    async def Measure(
        self, request: admin_pb2.MeasureRequest, context: Context
    ) -> admin_pb2.MeasureResponse:
        """Measure one thing; it ends when the caller leaves."""
        if self._measuring is None:
            raise NotReady("this store measures nothing")
        found = await self._measuring.measure(request.what, request.target)
        return admin_pb2.MeasureResponse(figures=[_figure(one) for one in found])

    async def _change(self, path: str, context: Context, *, adds: bool) -> int:
        if self._changes is None:
            raise NotReady("the data directories of this store do not change")
        work = self._changes.add(path) if adds else self._changes.remove(path)
        limit_s = timeout_s(context, self._store.limits)
        try:
            return await effect(asyncio.wait_for(work, limit_s))
        except TimeoutError as error:
            raise UnknownOutcome(f"{path}: the disk takes long; it goes on meanwhile") from error


def _seen_row(row: Seen) -> admin_pb2.SeenIdentity:
    return copied(
        admin_pb2.SeenIdentity,
        row,
        first_us=_us(row.first_s),
        last_us=_us(row.last_s),
        denied_us=_us(row.denied_s),
        not_after_us=_us(row.not_after_s),
        denied_shard=row.denied_shard,
    )


def _us(wall_s: float) -> int:
    """On the wire; 0 for never, and for a certificate that does not end."""
    return int(wall_s * 1_000_000) if math.isfinite(wall_s) else 0


def _figure(figure: Figure) -> admin_pb2.Figure:
    return copied(admin_pb2.Figure, figure, verdict=figure.verdict.value)


def _told(log_level: LogLevel) -> admin_pb2.LogLevel:
    return admin_pb2.LogLevel(
        level=log_level.level,
        configured=log_level.configured,
        ends_in_ms=math.ceil(log_level.ends_in_s * 1000),
    )


def _as_reached(report: ClusterReport) -> ClusterReport:
    """With the addresses that this caller can use."""
    if not token_addresses.offset.get():
        return report
    stores = tuple(
        replace(row, client_address=token_addresses.moved(row.client_address))
        for row in report.stores
    )
    return replace(report, stores=stores)


def _replica(replica: ReplicaStatus) -> admin_pb2.StoreReplica:
    return copied(
        admin_pb2.StoreReplica,
        replica,
        shard_id=replica.shard,
        replica_id=replica.replica,
        leader_replica=replica.leader,
        exported_snapshots=replica.exports,
        followers=[
            copied(admin_pb2.FollowerProgress, one, replica_id=one.replica, store_id=one.store)
            for one in replica.followers
        ],
    )


def _directory(status: StoreStatus, directory: DirectoryStatus) -> admin_pb2.StoreDirectory:
    return copied(
        admin_pb2.StoreDirectory,
        directory,
        used_bytes=int(directory.logdb.get("segment_bytes", 0)),
        free_bytes=int(directory.logdb.get("free_bytes", 0)),
        replicas=sum(one.incarnation == directory.incarnation for one in status.replicas),
        full=bool(directory.logdb.get("disk_full", 0)),
    )


def _memory(figures: Mapping[str, int]) -> list[admin_pb2.StoreMemory]:
    return [
        admin_pb2.StoreMemory(
            part=part.name,
            used_bytes=figures[f"{part.name}/used"],
            limit_bytes=figures[f"{part.name}/limit"],
            refused=figures.get(f"{part.name}/refused", 0),
            key=part.key,
        )
        for part in PARTS
        if f"{part.name}/used" in figures
    ]


def _target(info: ReplicaInfo, store_id: str) -> tuple[ReplicaId, str]:
    """The voter to lead: the one on `store_id`, else the follower that is furthest along. A witness
    never is.
    """
    match = dict(info.match)
    members = info.membership
    voters = [member for member in members.members if member.replica_id in members.full_voters]
    candidates = [
        member
        for member in voters
        if (member.store_id == store_id if store_id else member.replica_id != info.leader)
    ]
    if not candidates and store_id:
        there = ", ".join(sorted(member.store_id for member in voters))
        text = f"no voter of the shard that may lead is on {store_id!r}; they are on {there}"
        raise InvalidArgument(text, field="store_id")
    if not candidates:
        raise NotEnoughStores("the shard has no other voter", wanted=2, available=1)
    chosen = max(candidates, key=lambda member: match.get(member.replica_id, NO_REPLICA))
    return chosen.replica_id, chosen.store_id
