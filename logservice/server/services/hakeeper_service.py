"""hakeeper_service: the HAKeeper service of one store.

Theory of operation. Every method is one proposal or one query to shard 0. Any store answers queries
and takes what services report, wherever the replicas of shard 0 are
(`nodehost.agent.hakeeper_client`). Administration is applied only where HAKeeper's leader is: the
store that authenticated the caller and wrote its audit log is the store that proposes. Any other
store answers NOT_LEADER and says where the leader is. A proposal is decoded again before it is
sent: one that the state machine would refuse as malformed gets its error here, at the edge, and is
never proposed. The views are the state machine's own; this file only renames their fields.
"""

from __future__ import annotations

from collections.abc import Callable

from logservice_wire import rpcs
from logservice_wire.errors import InvalidArgument, ShardNotFound
from logservice_wire.rpcs import RequestT, ResponseT, Rpc
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc

from logservice.config import LimitsSection
from logservice.hakeeper.answers.views import ClusterView, ShardView, StoreView
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.commands.store_commands import ServiceOrder
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient, SelfMade
from logservice.outcome import Applied
from logservice.same_names import copied
from logservice.server.edge.call import Context, Method, effect, handler, in_time


def administration(
    rpc: Rpc[RequestT, ResponseT],
    proposal: Callable[[RequestT], proposals.Proposal],
    answers: str = "",
) -> Method[HAKeeperService, RequestT, ResponseT]:
    """The method of an RPC of administration: one proposal, made where HAKeeper's leader is.

    `proposal` makes the proposal from the request; it raises InvalidArgument. `answers` is the
    field of the response that takes the state machine's answer.
    """
    response: Callable[..., ResponseT] = rpc.response

    async def administer(
        service: HAKeeperService, request: RequestT, context: Context
    ) -> ResponseT:
        applied = await service.administer(proposal(request), context)
        return response(**({answers: applied.value} if answers else {}))

    administer.__name__, administer.__qualname__ = rpc.name, f"HAKeeperService.{rpc.name}"
    return handler(administer)


class HAKeeperService(hakeeper_pb2_grpc.HAKeeperServicer):
    """See the proto."""

    def __init__(
        self,
        hakeeper: HAKeeperClient,
        limits: LimitsSection,
        access: AccessBook,
        caller: Callable[[], str],
    ) -> None:
        """`hakeeper` reaches shard 0 from this store; `access` is the list in force here. `caller`
        returns the identity whose call is being served.
        """
        self._caller = caller
        self._hakeeper = hakeeper
        self._access = access
        self._limits = limits

    # The shard accepts appends once its replicas were started, a heartbeat later.
    CreateShard = administration(
        rpcs.CREATE_SHARD,
        lambda request: proposals.CreateShard(
            shard=ShardId(request.shard_id), name=request.name, replicas=request.replicas
        ),
        answers="shard_id",
    )
    # Every store follows with its next heartbeat or the one after that.
    ChangeAccess = administration(
        rpcs.CHANGE_ACCESS,
        lambda request: proposals.ChangeAccess(
            identity=request.identity,
            scope=request.scope,
            grant=tuple(request.grant),
            revoke=tuple(request.revoke),
        ),
        answers="version",
    )
    AdmitStore = administration(
        rpcs.ADMIT_STORE,
        lambda request: proposals.AdmitStore(StoreId(request.store_id), request.hakeeper),
    )
    SetJoining = administration(
        rpcs.SET_JOINING, lambda request: proposals.SetJoining(_joining(request.joining))
    )

    @handler
    async def Heartbeat(
        self, request: hakeeper_pb2.HeartbeatRequest, context: Context
    ) -> hakeeper_pb2.HeartbeatResponse:
        """A service of the database is alive; the answer carries its commands."""
        applied = await self._propose(
            proposals.ServiceHeartbeat(
                service=request.service_id,
                kind=request.kind,
                address=request.address,
                labels=dict(request.labels),
                acked=tuple(request.acked_commands),
                owner=self._caller(),
            ),
            context,
        )
        response = hakeeper_pb2.HeartbeatResponse()
        for queued in replies.decode(applied.data).commands:
            if isinstance(queued.command, ServiceOrder):
                response.commands.add(
                    id=queued.id, kind=queued.command.kind, payload=queued.command.payload
                )
        return response

    @handler
    async def GetClusterState(
        self, request: hakeeper_pb2.GetClusterStateRequest, context: Context
    ) -> hakeeper_pb2.ClusterState:
        """Everything HAKeeper knows."""
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            return _cluster(await self._hakeeper.cluster(limit_s, stale=request.stale))

    @handler
    async def GetShardInfo(
        self, request: hakeeper_pb2.GetShardInfoRequest, context: Context
    ) -> hakeeper_pb2.ShardInfo:
        """Where the replicas of a shard are, from this store's view when the view has the shard."""
        shard = ShardId(request.shard_id)
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            view = await self._hakeeper.shard(shard, limit_s, stale=True)
            if view is None:
                # The view may be older than the shard: ask again, linearizably, before saying no.
                view = await self._hakeeper.shard(shard, limit_s)
        if view is None:
            raise ShardNotFound(f"no shard {shard}", shard=shard)
        return _shard(view)

    @handler
    async def AllocateIds(
        self, request: hakeeper_pb2.AllocateIdsRequest, context: Context
    ) -> hakeeper_pb2.AllocateIdsResponse:
        """A range of ids that nobody else gets."""
        proposal = proposals.AllocateIds(
            key=request.key,
            count=request.count,
            request_id=request.request_id,
            owner=self._caller(),
        )
        applied = await self._propose(proposal, context)
        return hakeeper_pb2.AllocateIdsResponse(first=applied.value)

    @handler
    async def GetAccessList(
        self, request: hakeeper_pb2.GetAccessListRequest, context: Context
    ) -> hakeeper_pb2.AccessList:
        """The access list as shard 0 has it, and which version is in force here."""
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            view = await self._hakeeper.access_list(limit_s)
        return hakeeper_pb2.AccessList(
            version=view.version,
            version_here=self._access.list.version,
            grants=[
                hakeeper_pb2.AccessGrant(
                    identity=grant.identity, scope=grant.scope, roles=grant.roles
                )
                for grant in view.grants
            ],
        )

    async def _propose(self, proposal: SelfMade, context: Context) -> Applied:
        _check(proposal)
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            return await effect(self._hakeeper.propose(proposal, limit_s))

    async def administer(self, proposal: proposals.Proposal, context: Context) -> Applied:
        """Propose where HAKeeper's leader is; NOT_LEADER says where that is."""
        _check(proposal)
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            return await effect(self._hakeeper.administer(proposal, limit_s))


def _joining(word: str) -> proposals.Joining:
    try:
        return proposals.Joining(word)
    except ValueError as error:
        raise InvalidArgument(str(error), field="joining") from error


def _check(proposal: proposals.Proposal) -> None:
    """Raise InvalidArgument for a proposal that the state machine would refuse as malformed."""
    try:
        proposals.decode(proposals.encode(proposal))
    except (proposals.ProposalCorrupt, OverflowError) as error:
        raise InvalidArgument(str(error), field="request") from error


def _cluster(view: ClusterView) -> hakeeper_pb2.ClusterState:
    return copied(
        hakeeper_pb2.ClusterState,
        view,
        state=view.phase,
        stores=[_store(store) for store in view.stores],
        shards=[_shard(shard) for shard in view.shards],
        operators=[copied(hakeeper_pb2.OperatorInfo, one) for one in view.operators],
    )


def _store(view: StoreView) -> hakeeper_pb2.StoreInfo:
    directories = [copied(hakeeper_pb2.DirectoryInfo, one) for one in view.directories]
    return copied(hakeeper_pb2.StoreInfo, view, directories=directories)


def _shard(view: ShardView) -> hakeeper_pb2.ShardInfo:
    replicas = [copied(hakeeper_pb2.ReplicaInfo, one) for one in view.replicas]
    return copied(hakeeper_pb2.ShardInfo, view, replicas=replicas)
