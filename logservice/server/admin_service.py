"""admin_service: what one store is doing, for operators and tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from logservice_wire.errors import InvalidArgument, NotEnoughStores
from logservice_wire.v1 import admin_pb2, admin_pb2_grpc

from logservice.ids import NO_REPLICA, ReplicaId, ShardId
from logservice.nodehost.info import ReplicaInfo
from logservice.server.context import StoreContext, shard_not_found
from logservice.server.errors import Context, handler
from logservice.server.limits import timeout_s
from logservice.server.version import server_version


class AdminService(admin_pb2_grpc.AdminServicer):
    """See the proto."""

    def __init__(
        self,
        store: StoreContext,
        truncation_counts: Callable[[], Mapping[str, int]],
        exports: Callable[[ShardId, ReplicaId], int],
    ) -> None:
        """`truncation_counts`: the worker's visits by outcome; `exports`: snapshots kept."""
        self._store = store
        self._host = store.host
        self._truncation_counts = truncation_counts
        self._exports = exports
        self._started_s = store.host.clock.monotonic()

    @handler
    async def GetStoreStatus(
        self, request: admin_pb2.GetStoreStatusRequest, context: Context
    ) -> admin_pb2.StoreStatus:
        """Identity, log storage and every replica here; role "halted" for those that do not run."""
        identity = self._host.identity
        stats = self._host.logdb_stats()[0]
        return admin_pb2.StoreStatus(
            store_id=identity.store_id,
            cluster_id=identity.cluster_id,
            incarnation=identity.incarnations[0],
            version=server_version(),
            uptime_ms=int((self._host.clock.monotonic() - self._started_s) * 1000),
            segment_bytes=stats.segment_bytes,
            segment_files=stats.segment_files,
            fsyncs=stats.fsyncs,
            entries_written=stats.entries_written,
            bytes_written=stats.bytes_written,
            fsync_p50_us=stats.sync_p50_us,
            fsync_p99_us=stats.sync_p99_us,
            replicas=[
                *(self._replica(info) for info in self._host.replica_infos()),
                *(
                    admin_pb2.StoreReplica(shard_id=shard, role="halted")
                    for shard in self._host.halted()
                ),
            ],
            truncation_counts=dict(self._truncation_counts()),
        )

    @handler
    async def TransferLeader(
        self, request: admin_pb2.TransferLeaderRequest, context: Context
    ) -> admin_pb2.TransferLeaderResponse:
        """Hand leadership to the replica on `store_id`, or on any other store; waits for it."""
        shard = ShardId(request.shard_id)
        info = self._host.replica_info(shard)
        if info is None:
            raise shard_not_found(shard)
        target, store = _target(info, request.store_id)
        limit_s = timeout_s(context, self._store.limits)
        await self._host.transfer_leadership(shard, target, limit_s)
        return admin_pb2.TransferLeaderResponse(leader_store=store)

    def _replica(self, info: ReplicaInfo) -> admin_pb2.StoreReplica:
        return admin_pb2.StoreReplica(
            shard_id=info.shard,
            replica_id=info.replica,
            role=info.role.name.lower(),
            term=info.term,
            leader_replica=info.leader,
            committed_index=info.committed,
            applied_index=info.applied,
            first_index=info.first_index,
            last_index=info.last_index,
            first_lsn=info.first_lsn,
            applied_lsn=info.applied_lsn,
            truncated_lsn=info.truncated_lsn,
            exported_snapshots=self._exports(info.shard, info.replica),
            membership_epoch=info.membership.change_epoch,
        )


def _target(info: ReplicaInfo, store_id: str) -> tuple[ReplicaId, str]:
    """The voter to lead: the one on `store_id`, else the follower that is furthest along."""
    match = dict(info.match)
    candidates = [
        member
        for member in info.membership.members
        if member.replica_id in info.membership.voters
        and (member.store_id == store_id if store_id else member.replica_id != info.leader)
    ]
    if not candidates and store_id:
        raise InvalidArgument(f"no voter of the shard on {store_id!r}", field="store_id")
    if not candidates:
        raise NotEnoughStores("the shard has no other voter", wanted=2, available=1)
    chosen = max(candidates, key=lambda member: match.get(member.replica_id, NO_REPLICA))
    return chosen.replica_id, chosen.store_id
