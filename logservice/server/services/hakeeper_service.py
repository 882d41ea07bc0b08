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

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, TypeVar

from logservice_wire import rpcs
from logservice_wire.errors import InvalidArgument, ShardDeleted, ShardNotFound
from logservice_wire.rpcs import RequestT, ResponseT, Rpc
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc

from logservice import bounds, versions
from logservice.config import LimitsSection
from logservice.hakeeper.answers import queries
from logservice.hakeeper.answers.views import ClusterView, Life, ShardView, StoreView
from logservice.hakeeper.commands import proposals, replies, verbs
from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import LearnersIn, Policy, ZoneRule
from logservice.hakeeper.commands.quotas import QUOTA_NAMES, IdentityQuota
from logservice.hakeeper.commands.store_commands import ServiceOrder
from logservice.hakeeper.repair.balance import Move
from logservice.hakeeper.repair.leadership import HandOver
from logservice.ids import HAKEEPER_SHARD, Incarnation, Index, Lsn, ShardId, StoreId
from logservice.nodehost.agent.access_book import AccessBook
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient, SelfMade
from logservice.nodehost.agent.lookups import Found, Lookups
from logservice.outcome import Applied
from logservice.same_names import copied
from logservice.server.edge.call import Context, Method, effect, handler, in_time
from logservice.server.edge.identity_limits import IdentityLimits
from logservice.server.services.complaint import complaint
from logservice.server.services.context import log_shard
from logservice.server.services.new_name import new_name
from logservice.server.services.watching import EventFeed, watch

_HAKEEPERS_OWN: Final = Found(None)
"""Where an answer is not from a store's directory."""

_ORDERED: Final = 2
"""From this cluster version on the heartbeats of a service have an order."""

WordT = TypeVar("WordT", bound=Enum)


def administration(
    rpc: Rpc[RequestT, ResponseT],
    proposal: Callable[[RequestT, str], proposals.Proposal],
    answers: str = "",
    about: Callable[[RequestT], str] | None = None,
) -> Method[HAKeeperService, RequestT, ResponseT]:
    """The method of an RPC of administration: one proposal, made where HAKeeper's leader is.

    `proposal` makes the proposal from the request and the caller's identity; it raises
    InvalidArgument. `answers` is the field of the response that takes the state machine's answer.
    `about`: the identity that the request makes a rule for, which must be one of this cluster; ""
    for none.
    """
    response: Callable[..., ResponseT] = rpc.response

    async def administer(
        service: HAKeeperService, request: RequestT, context: Context
    ) -> ResponseT:
        if about is not None:
            service.check_client(about(request))
        asked = proposal(request, service.caller())
        applied = await service.administer(asked, context)
        return response(**({answers: applied.value} if answers else {}))

    administer.__name__, administer.__qualname__ = rpc.name, f"HAKeeperService.{rpc.name}"
    return handler(administer)


class HAKeeperService(hakeeper_pb2_grpc.HAKeeperServicer):
    """See the proto."""

    def __init__(
        self,
        hakeeper: HAKeeperClient,
        lookups: Lookups,
        limits: Callable[[], LimitsSection],
        access: AccessBook,
        caller: Callable[[], str],
        tick_s: float = 1.0 / bounds.HAKEEPER_TICKS_PER_S,
        admins: Callable[[], Sequence[str]] = tuple,
        identity_limits: IdentityLimits | None = None,
        clients: str = "",
    ) -> None:
        """`hakeeper` reaches shard 0 from this store, `lookups` its directory, too; `access` is the
        list in force here. `caller` returns the identity whose call is being served, `limits` those
        that are in force. `tick_s`: HAKeeper's tick. `admins` returns who may do everything here
        (`SecuritySection`). `identity_limits`: what identities may use here. `clients`: how the
        identity of every client of this cluster begins; "" in plaintext, where nobody has one.
        """
        self._clients = clients
        self._admins = admins
        self._identity_limits = identity_limits
        self.caller = caller
        self._tick_s = tick_s
        self._hakeeper = hakeeper
        self._lookups = lookups
        self._access = access
        self._limits_now = limits
        self.events = EventFeed(hakeeper)

    @property
    def _limits(self) -> LimitsSection:
        return self._limits_now()

    def check_client(self, identity: str) -> None:
        """Raises InvalidArgument for an identity that no caller of this cluster can have. A denial
        with a mistake in it would shut out nobody, and nothing would say so.
        """
        if identity and not identity.startswith(self._clients):
            raise InvalidArgument(
                f"no client of this cluster is called so; they all begin with {self._clients}",
                field="identity",
            )

    # The shard accepts appends once its replicas were started, a heartbeat later.
    CreateShard = administration(
        rpcs.CREATE_SHARD,
        lambda request, owner: proposals.CreateShard(
            shard=ShardId(request.shard_id),
            name=new_name(request.name),
            replicas=request.replicas,
            request_id=request.request_id,
            owner=owner if request.request_id else "",
            policy=_policy(request.policy),
            labels=dict(request.labels),
            witnesses=_witnesses(request),
        ),
        answers="shard_id",
    )
    ChangeShard = administration(
        rpcs.CHANGE_SHARD,
        lambda request, _: proposals.ChangeShard(
            shard=ShardId(request.shard_id),
            name=new_name(request.name),
            replicas=request.replicas,
            policy=_policy(request.policy) if request.HasField("policy") else None,
            labels=dict(request.labels.labels) if request.HasField("labels") else None,
            revision=request.revision if request.HasField("revision") else None,
        ),
        answers="revision",
    )
    DeleteShard = administration(
        rpcs.DELETE_SHARD,
        lambda request, _: proposals.DeleteShard(
            shard=ShardId(request.shard_id),
            name=request.name,
            closed_index=Index(request.closed_index),
            force=request.force,
        ),
    )
    # Every store follows with its next heartbeat or the one after that.
    ChangeAccess = administration(
        rpcs.CHANGE_ACCESS,
        lambda request, _: proposals.ChangeAccess(
            identity=request.identity,
            scope=request.scope,
            grant=tuple(request.grant),
            revoke=tuple(request.revoke),
            deny=tuple(request.deny),
            undeny=tuple(request.undeny),
        ),
        answers="version",
        # What was said before may always be taken back.
        about=lambda request: request.identity if request.grant or request.deny else "",
    )
    AdmitStore = administration(
        rpcs.ADMIT_STORE,
        lambda request, _: proposals.AdmitStore(StoreId(request.store_id), request.hakeeper),
    )
    SendServiceCommand = administration(
        rpcs.SEND_SERVICE_COMMAND,
        lambda request, owner: proposals.SendOrder(
            request.service_id, request.kind, request.payload, request.request_id, owner
        ),
        answers="command_id",
    )
    SetServiceState = administration(
        rpcs.SET_SERVICE_STATE,
        lambda request, _: verbs.SetWorkState(
            request.service_id, _word(verbs.WorkState, request.work_state, "work_state")
        ),
    )
    CreateTnShard = administration(
        rpcs.CREATE_TN_SHARD,
        lambda request, _: verbs.CreateTnShard(ShardId(request.shard_id), request.identity),
        answers="tn_shard_id",
    )
    DeleteTnShard = administration(
        rpcs.DELETE_TN_SHARD, lambda request, _: verbs.DeleteTnShard(request.tn_shard_id)
    )
    SetJoining = administration(
        rpcs.SET_JOINING, lambda request, _: proposals.SetJoining(_joining(request.joining))
    )

    # Every store says so in its data directories first, and follows then.
    RaiseClusterVersion = administration(
        rpcs.RAISE_CLUSTER_VERSION,
        lambda request, _: proposals.RaiseVersion(request.version),
        answers="cluster_version",
    )

    SetStoreMode = administration(
        rpcs.SET_STORE_MODE,
        lambda request, _: verbs.SetStoreMode(
            StoreId(request.store_id),
            _word(verbs.StoreMode, request.mode, "mode"),
            request.reason,
            request.force,
        ),
    )
    DrainDirectory = administration(
        rpcs.DRAIN_DIRECTORY,
        lambda request, _: verbs.DrainDirectory(
            StoreId(request.store_id),
            Incarnation(request.incarnation),
            request.undo,
            request.force,
        ),
    )
    ForgetStore = administration(
        rpcs.FORGET_STORE,
        lambda request, _: verbs.ForgetStore(
            StoreId(request.store_id), request.lost, request.force
        ),
    )
    AdoptShard = administration(
        rpcs.ADOPT_SHARD,
        lambda request, _: verbs.AdoptShard(
            ShardId(request.shard_id), request.membership, request.reason
        ),
    )
    MoveReplica = administration(rpcs.MOVE_REPLICA, lambda request, _: _errand(request), "wish_id")
    Rebalance = administration(
        rpcs.REBALANCE,
        lambda request, _: verbs.Rebalance(request.replicas, request.leaders, request.stop),
    )
    SetQuota = administration(
        rpcs.SET_QUOTA,
        lambda request, _: verbs.SetQuota(_quota(request.quota), tuple(request.clear)),
        answers="version",
        about=lambda request: request.quota.identity if not request.clear else "",
    )
    SkipNumbers = administration(
        rpcs.SKIP_NUMBERS,
        lambda request, _: verbs.SkipNumbers(
            copied(
                GivenOut,
                request.given_out,
                deleted=tuple((one.first, one.last) for one in request.given_out.deleted),
            )
        ),
    )
    CancelWish = administration(
        rpcs.CANCEL_WISH, lambda request, _: verbs.CancelWish(request.wish_id)
    )
    CancelOperator = administration(
        rpcs.CANCEL_OPERATOR, lambda request, _: verbs.CancelOperator(request.operator_id)
    )

    @handler
    async def SetRepair(
        self, request: hakeeper_pb2.SetRepairRequest, context: Context
    ) -> hakeeper_pb2.SetRepairResponse:
        """Replace nothing for so long."""
        ticks = self._ticks(request.off_ms)
        verb = verbs.SetRepair(request.store_id, ticks, request.reason)
        applied = await self.administer(verb, context)
        return hakeeper_pb2.SetRepairResponse(until_tick=applied.value)

    @handler
    async def SetLeader(
        self, request: hakeeper_pb2.SetLeaderRequest, context: Context
    ) -> hakeeper_pb2.SetLeaderResponse:
        """Keep a leader on a store, or where it is, for so long."""
        shard, ticks = ShardId(request.shard_id), self._ticks(request.for_ms)
        verb = verbs.SetLeader(shard, ticks, request.store_id, request.reason)
        applied = await self.administer(verb, context)
        return hakeeper_pb2.SetLeaderResponse(until_tick=applied.value)

    @handler
    async def ChangeSettings(
        self, request: hakeeper_pb2.ChangeSettingsRequest, context: Context
    ) -> hakeeper_pb2.ChangeSettingsResponse:
        """Change what is named; all of it, or nothing."""
        verb = verbs.ChangeSettings(
            self._ticks(request.store_timeout_ms),
            request.default_replicas,
            request.joining,
            request.force,
            request.replica_balance,
            request.leader_balance,
            request.replace_stuck,
            *(
                getattr(request, name) if request.HasField(name) else None
                for name in (
                    "catch_up_bytes_per_s",
                    "tail_read_bytes_per_s",
                    "catch_up_read_bytes_per_s",
                )
            ),
        )
        await self.administer(verb, context)
        return hakeeper_pb2.ChangeSettingsResponse()

    @handler
    async def PlanBalance(
        self, request: hakeeper_pb2.PlanBalanceRequest, context: Context
    ) -> hakeeper_pb2.BalancePlan:
        """What balancing would move."""
        wanted = {"replicas": request.replicas, "leaders": request.leaders}
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            plan = await self._hakeeper.balance_plan(limit_s, **wanted)
        moves = [_balance_move(one) for one in plan.moves]
        hand_overs = [_balance_move(one) for one in plan.hand_overs]
        return copied(hakeeper_pb2.BalancePlan, plan, moves=moves, hand_overs=hand_overs)

    @handler
    async def SetPhase(
        self, request: hakeeper_pb2.SetPhaseRequest, context: Context
    ) -> hakeeper_pb2.SetPhaseResponse:
        """A person's transition of the phase."""
        applied = await self.administer(
            proposals.SetPhase(_word(Phase, request.phase, "phase")), context
        )
        return hakeeper_pb2.SetPhaseResponse(phase=applied.data.decode())

    @handler
    async def CheckImpact(
        self, request: hakeeper_pb2.CheckImpactRequest, context: Context
    ) -> hakeeper_pb2.Impact:
        """What it would cost if these stores were away."""
        if len(request.store_ids) > bounds.HAKEEPER_STORES_MAX or not all(request.store_ids):
            raise InvalidArgument("name some stores", field="store_ids")
        stores = [StoreId(store) for store in request.store_ids]
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            found = await self._hakeeper.impact(stores, limit_s)
        findings = [
            hakeeper_pb2.ImpactFinding(
                kind=one.kind, shard_id=-1 if one.shard is None else one.shard, text=one.text
            )
            for one in found.findings
        ]
        return copied(hakeeper_pb2.Impact, found, findings=findings)

    def _ticks(self, milliseconds: int) -> int:
        """So many ticks of HAKeeper, rounded up."""
        return math.ceil(milliseconds / 1000 / self._tick_s)

    @handler
    async def Heartbeat(
        self, request: hakeeper_pb2.HeartbeatRequest, context: Context
    ) -> hakeeper_pb2.HeartbeatResponse:
        """A service of the database is alive; the answer carries its commands."""
        ordered = self._hakeeper.cluster_version >= _ORDERED
        applied = await self._propose(
            proposals.ServiceHeartbeat(
                service=request.service_id,
                kind=request.kind,
                address=request.address,
                labels=dict(request.labels),
                acked=tuple(request.acked_commands),
                owner=self.caller(),
                replayed=_replayed(request.replayed),
                boot_id=request.boot_id if ordered else 0,
                sequence=request.sequence if ordered else 0,
                drained=request.drained if ordered else False,
                serving=_serving(request.serving) if ordered else (),
                takes_tn_shards=request.takes_tn_shards if ordered else False,
            ),
            context,
        )
        reply = replies.decode(applied.data)
        response = hakeeper_pb2.HeartbeatResponse(
            replayed=[_replayed_hold(one) for one in reply.replayed],
            work_state=reply.work_state,
            tn_stop_ms=round(bounds.HAKEEPER_TN_STOP_TICKS * self._tick_s * 1000),
            serve=[
                hakeeper_pb2.ServedTnShard(
                    tn_shard_id=one.tn_shard, shard_id=one.shard, replica=one.replica
                )
                for one in reply.serve
            ],
        )
        for queued in reply.commands:
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
            view = await self._hakeeper.cluster(limit_s, stale=request.stale)
        response = _cluster(view, self._tick_s)
        for first in range(0, len(view.shards), bounds.HAKEEPER_SHARDS_PER_PAGE_MAX):
            page = view.shards[first : first + bounds.HAKEEPER_SHARDS_PER_PAGE_MAX]
            response.shards.extend(_shard(shard) for shard in page)
            await asyncio.sleep(0)
        return response

    @handler
    async def GetShardInfo(
        self, request: hakeeper_pb2.GetShardInfoRequest, context: Context
    ) -> hakeeper_pb2.ShardInfo:
        """Where the replicas of a shard are, from this store's view when the view has the shard."""
        shard = ShardId(request.shard_id)
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            found = await self._lookups.shard(shard, limit_s, fresh=request.fresh)
        view = found.view
        if view is None:
            raise ShardNotFound(f"no shard {shard}", shard=shard)
        if view.state == Life.DELETED:
            raise ShardDeleted(f"shard {shard} was deleted", shard=shard)
        return _shard(view, found)

    @handler
    async def ListShards(
        self, request: hakeeper_pb2.ListShardsRequest, context: Context
    ) -> hakeeper_pb2.ListShardsResponse:
        """A page of logs, as shard 0 has them."""
        query = queries.ListShards(
            after=ShardId(request.after),
            limit=request.limit or bounds.HAKEEPER_SHARDS_PER_PAGE_MAX,
            states=tuple(_word(Life, state, "states").value for state in request.states),
            labels=dict(request.labels),
            prefix=request.name_prefix,
        )
        _check_query(query)
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            page = await self._hakeeper.list_shards(query, limit_s)
        return hakeeper_pb2.ListShardsResponse(
            shards=[_shard(view) for view in page.shards], after=page.after
        )

    @handler
    async def ResolveShard(
        self, request: hakeeper_pb2.ResolveShardRequest, context: Context
    ) -> hakeeper_pb2.ShardInfo:
        """The living log of a name."""
        _check_query(queries.ResolveShard(request.name))
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            found = await self._lookups.resolve(request.name, limit_s, fresh=request.fresh)
        if found.view is None:
            raise ShardNotFound(f"no log is called {request.name!r}", name=request.name)
        return _shard(found.view, found)

    @handler
    async def WatchEvents(self, request: hakeeper_pb2.WatchEventsRequest, context: Context) -> None:
        """Blocks until the caller goes away; see `server.services.watching`."""
        limit_s = self._limits.rpc_timeout_default_s
        await watch(self.events, self.caller(), limit_s, request, context)

    @handler
    async def GetGivenOut(
        self, request: hakeeper_pb2.GetGivenOutRequest, context: Context
    ) -> hakeeper_pb2.GivenOut:
        """What was given out so far, as shard 0 has it."""
        with in_time(context, self._limits, self._hakeeper.expire, HAKEEPER_SHARD) as limit_s:
            given = await self._hakeeper.given_out(limit_s)
        ranges = [hakeeper_pb2.IdRange(first=first, last=last) for first, last in given.deleted]
        return copied(hakeeper_pb2.GivenOut, given, deleted=ranges)

    @handler
    async def AllocateIds(
        self, request: hakeeper_pb2.AllocateIdsRequest, context: Context
    ) -> hakeeper_pb2.AllocateIdsResponse:
        """A range of ids that nobody else gets."""
        proposal = proposals.AllocateIds(
            key=request.key,
            count=request.count,
            request_id=request.request_id,
            owner=self.caller(),
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
        limits = self._identity_limits
        return hakeeper_pb2.AccessList(
            version=view.version,
            version_here=self._access.list.version,
            stores=[
                hakeeper_pb2.StoreAccess(
                    store_id=one.store_id,
                    version=one.version,
                    heard_ms=round(one.ticks_since_heartbeat * self._tick_s * 1000),
                )
                for one in view.stores
            ],
            # A store counts from the answer to its heartbeat.
            age_max_ms=round((bounds.GRANT_AGE_MAX_S + bounds.HEARTBEAT_TIMEOUT_S) * 1000),
            grants=[copied(hakeeper_pb2.AccessGrant, one) for one in view.grants],
            denials=[copied(hakeeper_pb2.AccessGrant, one) for one in view.denials],
            admins=self._admins(),
            quotas=[copied(hakeeper_pb2.IdentityQuota, one) for one in view.quotas],
            quotas_version=view.quotas_version,
            quotas_version_here=limits.version if limits is not None else 0,
            quotas_configured=None
            if limits is None
            else copied(hakeeper_pb2.IdentityQuota, limits.configured()),
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


def _replayed(said: Iterable[hakeeper_pb2.ReplayedLsn]) -> tuple[tuple[ShardId, Lsn], ...]:
    found = {log_shard(one.shard_id): Lsn(one.lsn) for one in said}
    return tuple(sorted(found.items()))


def _replayed_hold(one: replies.ReplayedHold) -> hakeeper_pb2.ReplayedHold:
    return copied(hakeeper_pb2.ReplayedHold, one, shard_id=one.shard)


def _policy(asked: hakeeper_pb2.ShardPolicy) -> Policy:
    try:
        rule = ZoneRule(asked.zone_rule or ZoneRule.BEST_EFFORT)
    except ValueError as error:
        raise InvalidArgument(str(error), field="zone_rule") from error
    learners = tuple(LearnersIn(zone, count) for zone, count in sorted(asked.learners.items()))
    if asked.weight > bounds.SHARD_WEIGHT_MAX:
        raise InvalidArgument(f"a weight is at most {bounds.SHARD_WEIGHT_MAX}", field="weight")
    return Policy(
        rule,
        asked.leader_zone,
        asked.protected,
        learners,
        asked.max_bytes_per_s,
        asked.max_records_per_s,
        asked.weight or bounds.SHARD_WEIGHT_DEFAULT,
        asked.retention_age_s,
        asked.retention_bytes,
        asked.retention_records,
    )


def _witnesses(asked: hakeeper_pb2.CreateShardRequest) -> int:
    """INV-SERVICE-WAIVER: nobody gets less than G1 who has not said so, nor says so for nothing."""
    if asked.waive_g1 is not bool(asked.witnesses):
        why = "a log with witnesses, and no other, waives guarantee G1: say both or none"
        raise InvalidArgument(why, field="waive_g1")
    return asked.witnesses


def _check_query(query: queries.Query) -> None:
    """Raise InvalidArgument for a query that no store would understand."""
    try:
        queries.decode_query(queries.encode_query(query))
    except (queries.QueryCorrupt, OverflowError) as error:
        raise InvalidArgument(complaint(error, query), field="request") from error


def _quota(asked: hakeeper_pb2.IdentityQuota) -> IdentityQuota:
    values = {name: getattr(asked, name) if asked.HasField(name) else None for name in QUOTA_NAMES}
    return IdentityQuota(asked.identity, **values)


def _serving(said: Iterable[hakeeper_pb2.ServingTnShard]) -> tuple[tuple[int, int], ...]:
    return tuple((one.tn_shard_id, one.replica) for one in said)


def _word(words: type[WordT], said: str, field: str) -> WordT:
    """One of the words of a field. Raises InvalidArgument{field}, which names them."""
    try:
        return words(said)
    except ValueError as error:
        known = ", ".join(str(one.value) for one in words)
        raise InvalidArgument(f"{said!r} is none of {known}", field=field) from error


def _errand(request: hakeeper_pb2.MoveReplicaRequest) -> verbs.WishReplica:
    errand = verbs.Errand.MOVE
    if not request.from_store:
        errand = verbs.Errand.ADD
    elif not request.to_store:
        errand = verbs.Errand.REMOVE
    return verbs.WishReplica(
        errand,
        ShardId(request.shard_id),
        request.from_store,
        request.to_store,
        request.reason,
        request.force,
    )


def _check(proposal: proposals.Proposal) -> None:
    """Raise InvalidArgument for a proposal that the state machine would refuse as malformed."""
    try:
        proposals.decode(proposals.encode(proposal, versions.NEWEST))
    except (proposals.ProposalCorrupt, OverflowError) as error:
        raise InvalidArgument(complaint(error, proposal), field="request") from error


def _cluster(view: ClusterView, tick_s: float) -> hakeeper_pb2.ClusterState:
    timeout_ms = round(view.settings.store_timeout_ticks * tick_s * 1000)
    return copied(
        hakeeper_pb2.ClusterState,
        view,
        state=view.phase,
        settings=copied(hakeeper_pb2.Settings, view.settings, store_timeout_ms=timeout_ms),
        wishes=[copied(hakeeper_pb2.WishInfo, one) for one in view.wishes],
        gone_stores=[copied(hakeeper_pb2.GoneStore, one) for one in view.gone_stores],
        services=[
            copied(
                hakeeper_pb2.ServiceInfo,
                one,
                replayed=[_replayed_hold(held) for held in one.replayed],
            )
            for one in view.services
        ],
        tn_shards=[
            copied(
                hakeeper_pb2.TnShardInfo,
                one,
                tn_shard_id=one.tn_shard,
                shard_id=one.shard,
                service_id=one.service,
            )
            for one in view.tn_shards
        ],
        stores=[_store(store) for store in view.stores],
        shards=[],
        operators=[copied(hakeeper_pb2.OperatorInfo, one) for one in view.operators],
    )


def _store(view: StoreView) -> hakeeper_pb2.StoreInfo:
    directories = [copied(hakeeper_pb2.DirectoryInfo, one) for one in view.directories]
    return copied(hakeeper_pb2.StoreInfo, view, directories=directories)


def _shard(view: ShardView, found: Found = _HAKEEPERS_OWN) -> hakeeper_pb2.ShardInfo:
    return copied(
        hakeeper_pb2.ShardInfo,
        view,
        replicas=[copied(hakeeper_pb2.ReplicaInfo, one) for one in view.replicas],
        policy=copied(hakeeper_pb2.ShardPolicy, view),
        directory_index=found.index,
        directory_age_ms=math.ceil(found.age_s * 1000) if found.index else 0,
    )


def _balance_move(move: Move | HandOver) -> hakeeper_pb2.BalanceMove:
    return hakeeper_pb2.BalanceMove(
        shard_id=move.shard,
        replica_id=move.replica,
        from_store=move.source,
        to_store=move.target,
        why=move.why,
    )
