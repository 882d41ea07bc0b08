"""Rpcs: the RPCs of the contract, one row each.

Theory of operation. What an RPC takes and answers, what its caller must be allowed to do, and what
a lost answer means, is said here and nowhere else. The client calls by these rows (the generated
stubs are untyped, and refuse any grpcio older than the one that generated them). The store
registers its services by them: an RPC without a row is not served. The tests walk the proto's
descriptors and try every row with every role, and docs/protocol.md shows the table. CONTRIBUTING.md
lists what else a new RPC needs.

Why a row asks for the role it asks for:

- probing, status and routing of a shard: any role over it, because every role needs them;
- a hold keeps records from being truncated, and so decides about the log's space: TRUNCATE; a
  reader's hold (`reader_hold`) is bounded, so HOLD will do (`Rpc.of_reader`);
- timestamps and the writer's epoch belong to whoever appends: APPEND;
- writers and holds belong to an identity; whoever asks to override that needs ADMIN over the shard
  instead, and is audited as administration (`Rpc.overriding`);
- a service of the database reports itself and allocates ids with APPEND over the cluster;
- ADMIN over the shard or over the cluster moves its leader and its replicas.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from logservice_wire import read_answer
from logservice_wire.bounds import REPLAYED_PER_SERVICE_MAX, STREAM_LANES_MAX
from logservice_wire.roles import Role
from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_LOG: Final = "/logservice.v1.Log/"
_HAKEEPER: Final = "/logservice.v1.HAKeeper/"
_ADMIN: Final = "/logservice.v1.Admin/"


@dataclass(frozen=True, slots=True, eq=False)
class Rpc(Generic[RequestT, ResponseT]):
    """One RPC.

    roles: the caller needs one of them; empty: an identity is enough. shard: the field of the
    request that names the shard; "": the RPC is about the cluster. cluster_too: the role over the
    cluster will do instead of that over the shard. named: the field of the request that names a
    log; a role over that name will do instead of that over the cluster. each: a list of the request
    that names a shard in each item, at most `each_max`; over each of them the caller needs what
    `each_as` needs. admin: every call is
    audited, whatever is decided. override: a request can ask for more; then `overriding` is its
    row. readers: a request may be about a reader's hold; then `of_reader` is its row. mutates: a
    lost answer leaves the outcome unknown. idempotent: after an unknown outcome the same request
    may be sent again. undoes: it can take back what shuts callers out, so no quota of identities
    keeps a configured administrator from it. parse: reads a response sooner than protobuf does.
    """

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    roles: frozenset[Role]
    shard: str = "shard_id"
    cluster_too: bool = False
    named: str = ""
    each: str = ""
    each_as: Rpc[Any, Any] | None = None
    each_max: int = 0
    admin: bool = False
    override: bool = False
    readers: bool = False
    mutates: bool = False
    idempotent: bool = True
    undoes: bool = False
    parse: Callable[[bytes], Any] | None = None

    @property
    def name(self) -> str:
        """The method's name without its service."""
        return self.path.rpartition("/")[2]

    @property
    def parse_request(self) -> Callable[[bytes], Any]:
        """Reads a request from its bytes."""
        from_string: Callable[[bytes], Any] = self.request.FromString  # type: ignore[attr-defined]
        return from_string

    @property
    def parse_response(self) -> Callable[[bytes], Any]:
        """Reads a response from its bytes."""
        if self.parse is not None:
            return self.parse
        from_string: Callable[[bytes], Any] = self.response.FromString  # type: ignore[attr-defined]
        return from_string

    def overriding(self) -> Rpc[RequestT, ResponseT]:
        """The row of a request that acts on what belongs to another identity."""
        return replace(self, roles=_ONLY_ADMIN, cluster_too=False, admin=True, override=False)

    def of_reader(self) -> Rpc[RequestT, ResponseT]:
        """The row of a request about a reader's hold."""
        return replace(self, roles=self.roles | {Role.HOLD})


serialize: Final[Callable[[Any], bytes]] = operator.methodcaller("SerializeToString")
"""The bytes of any message."""

_ANY: Final = frozenset(Role)
_APPEND: Final = frozenset({Role.APPEND})
_READ: Final = frozenset({Role.READ})
_TRUNCATE: Final = frozenset({Role.TRUNCATE})
_ONLY_ADMIN: Final = frozenset({Role.ADMIN})
_APPEND_OR_ADMIN: Final = frozenset({Role.APPEND, Role.ADMIN})
_READ_OR_ADMIN: Final = frozenset({Role.READ, Role.ADMIN})

# --- Log ------------------------------------------------------------------------------------------

CONNECT: Final = Rpc(
    _LOG + "Connect", log_pb2.ConnectRequest, log_pb2.ConnectResponse, _ANY, mutates=True
)
OPEN_SESSION: Final = Rpc(
    # A second session does no harm: the session whose answer was lost is evicted in time.
    _LOG + "OpenSession",
    log_pb2.OpenSessionRequest,
    log_pb2.OpenSessionResponse,
    _APPEND,
    mutates=True,
)
LIST_SESSIONS: Final = Rpc(
    _LOG + "ListSessions",
    log_pb2.ListSessionsRequest,
    log_pb2.ListSessionsResponse,
    _APPEND_OR_ADMIN,
)
FORGET_SESSION: Final = Rpc(
    # The second one finds it forgotten.
    _LOG + "ForgetSession",
    log_pb2.ForgetSessionRequest,
    log_pb2.ForgetSessionResponse,
    _APPEND,
    override=True,
    mutates=True,
)
APPEND: Final = Rpc(
    # With a session and a sequence the same request may be sent again; without them it may not.
    _LOG + "Append",
    log_pb2.AppendRequest,
    log_pb2.AppendResponse,
    _APPEND,
    mutates=True,
    idempotent=False,
)
APPEND_STREAM: Final = Rpc(
    _LOG + "AppendStream",
    log_pb2.AppendStreamRequest,
    log_pb2.AppendStreamResponse,
    _APPEND,
    shard="open.shard_id",
    mutates=True,
)
APPEND_SHARDS: Final = Rpc(
    _LOG + "AppendShards",
    log_pb2.AppendShardsRequest,
    log_pb2.AppendShardsResponse,
    frozenset(),
    shard="",
    each="opens",
    each_as=APPEND,
    each_max=STREAM_LANES_MAX,
    mutates=True,
)
READ: Final = Rpc(
    _LOG + "Read", log_pb2.ReadRequest, log_pb2.ReadResponse, _READ, parse=read_answer.parsed
)
FOLLOW: Final = Rpc(
    _LOG + "Follow", log_pb2.FollowRequest, log_pb2.ReadResponse, _READ, parse=read_answer.parsed
)
LSN_AT_TIME: Final = Rpc(
    _LOG + "LsnAtTime", log_pb2.LsnAtTimeRequest, log_pb2.LsnAtTimeResponse, _READ
)
DIGEST: Final = Rpc(_LOG + "Digest", log_pb2.DigestRequest, log_pb2.DigestResponse, _READ)
TRUNCATE: Final = Rpc(
    _LOG + "Truncate", log_pb2.TruncateRequest, log_pb2.TruncateResponse, _TRUNCATE, mutates=True
)
GET_SHARD_STATUS: Final = Rpc(
    _LOG + "GetShardStatus",
    log_pb2.GetShardStatusRequest,
    log_pb2.GetShardStatusResponse,
    _ANY,
    cluster_too=True,
)
ACQUIRE_WRITER: Final = Rpc(
    # Not repeated after an unknown outcome: seeing "granted to this holder" cannot tell our own
    # attempt from another process under the same name, and two owners are what the epoch prevents.
    _LOG + "AcquireWriter",
    log_pb2.AcquireWriterRequest,
    log_pb2.AcquireWriterResponse,
    _APPEND,
    override=True,
    mutates=True,
    idempotent=False,
)
RELEASE_WRITER: Final = Rpc(
    _LOG + "ReleaseWriter",
    log_pb2.ReleaseWriterRequest,
    log_pb2.ReleaseWriterResponse,
    _APPEND,
    override=True,
    mutates=True,
    idempotent=False,
)
SET_HOLD: Final = Rpc(
    _LOG + "SetHold",
    log_pb2.SetHoldRequest,
    log_pb2.SetHoldResponse,
    _TRUNCATE,
    readers=True,
    override=True,
    mutates=True,
)
RENEW_HOLD: Final = Rpc(
    _LOG + "RenewHold",
    log_pb2.RenewHoldRequest,
    log_pb2.RenewHoldResponse,
    _TRUNCATE,
    readers=True,
    mutates=True,
)
RELEASE_HOLD: Final = Rpc(
    _LOG + "ReleaseHold",
    log_pb2.ReleaseHoldRequest,
    log_pb2.ReleaseHoldResponse,
    _TRUNCATE,
    readers=True,
    override=True,
    mutates=True,
)
CLOSE_SHARD: Final = Rpc(
    # The second Close names the end that the first one made.
    _LOG + "CloseShard",
    log_pb2.CloseShardRequest,
    log_pb2.CloseShardResponse,
    _ONLY_ADMIN,
    admin=True,
    mutates=True,
)
BEGIN_RESTORE: Final = Rpc(
    # A repetition is known by its lineage.
    _LOG + "BeginRestore",
    log_pb2.BeginRestoreRequest,
    log_pb2.BeginRestoreResponse,
    _ONLY_ADMIN,
    admin=True,
    mutates=True,
)
RESTORE_BLOCKS: Final = Rpc(
    # Blocks that are there already are refused: each has its LSN.
    _LOG + "RestoreBlocks",
    log_pb2.RestoreBlocksRequest,
    log_pb2.RestoreBlocksResponse,
    _ONLY_ADMIN,
    admin=True,
    mutates=True,
)
FINISH_RESTORE: Final = Rpc(
    _LOG + "FinishRestore",
    log_pb2.FinishRestoreRequest,
    log_pb2.FinishRestoreResponse,
    _ONLY_ADMIN,
    admin=True,
    mutates=True,
)
ALLOCATE_TIMESTAMPS: Final = Rpc(
    # A range whose answer was lost is skipped; timestamps need not be dense.
    _LOG + "AllocateTimestamps",
    log_pb2.AllocateTimestampsRequest,
    log_pb2.AllocateTimestampsResponse,
    _APPEND,
    mutates=True,
)

# --- HAKeeper -------------------------------------------------------------------------------------

HEARTBEAT: Final = Rpc(
    _HAKEEPER + "Heartbeat",
    hakeeper_pb2.HeartbeatRequest,
    hakeeper_pb2.HeartbeatResponse,
    _APPEND,
    shard="",
    each="replayed",
    each_as=SET_HOLD,
    each_max=REPLAYED_PER_SERVICE_MAX,
    mutates=True,
)
SEND_SERVICE_COMMAND: Final = Rpc(
    # The request id makes a second attempt return the first one's command.
    _HAKEEPER + "SendServiceCommand",
    hakeeper_pb2.SendServiceCommandRequest,
    hakeeper_pb2.SendServiceCommandResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_SERVICE_STATE: Final = Rpc(
    _HAKEEPER + "SetServiceState",
    hakeeper_pb2.SetServiceStateRequest,
    hakeeper_pb2.SetServiceStateResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
CREATE_TN_SHARD: Final = Rpc(
    # A log has at most one, so a second attempt finds the first one's.
    _HAKEEPER + "CreateTnShard",
    hakeeper_pb2.CreateTnShardRequest,
    hakeeper_pb2.CreateTnShardResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
DELETE_TN_SHARD: Final = Rpc(
    _HAKEEPER + "DeleteTnShard",
    hakeeper_pb2.DeleteTnShardRequest,
    hakeeper_pb2.DeleteTnShardResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
GET_CLUSTER_STATE: Final = Rpc(
    _HAKEEPER + "GetClusterState",
    hakeeper_pb2.GetClusterStateRequest,
    hakeeper_pb2.ClusterState,
    _READ_OR_ADMIN,
    shard="",
)
GET_SHARD_INFO: Final = Rpc(
    _HAKEEPER + "GetShardInfo",
    hakeeper_pb2.GetShardInfoRequest,
    hakeeper_pb2.ShardInfo,
    _ANY,
    cluster_too=True,
)
WATCH_EVENTS: Final = Rpc(
    _HAKEEPER + "WatchEvents",
    hakeeper_pb2.WatchEventsRequest,
    hakeeper_pb2.WatchEventsResponse,
    _READ_OR_ADMIN,
    shard="",
)
ALLOCATE_IDS: Final = Rpc(
    # The request id makes a second attempt return the first one's range.
    _HAKEEPER + "AllocateIds",
    hakeeper_pb2.AllocateIdsRequest,
    hakeeper_pb2.AllocateIdsResponse,
    _APPEND,
    shard="",
    mutates=True,
)
CREATE_SHARD: Final = Rpc(
    _HAKEEPER + "CreateShard",
    hakeeper_pb2.CreateShardRequest,
    hakeeper_pb2.CreateShardResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
    idempotent=False,
)
CHANGE_SHARD: Final = Rpc(
    # The same change twice is one change. One that names a revision is refused the second time.
    _HAKEEPER + "ChangeShard",
    hakeeper_pb2.ChangeShardRequest,
    hakeeper_pb2.ChangeShardResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
DELETE_SHARD: Final = Rpc(
    _HAKEEPER + "DeleteShard",
    hakeeper_pb2.DeleteShardRequest,
    hakeeper_pb2.DeleteShardResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
LIST_SHARDS: Final = Rpc(
    _HAKEEPER + "ListShards",
    hakeeper_pb2.ListShardsRequest,
    hakeeper_pb2.ListShardsResponse,
    _READ_OR_ADMIN,
    shard="",
)
RESOLVE_SHARD: Final = Rpc(
    _HAKEEPER + "ResolveShard",
    hakeeper_pb2.ResolveShardRequest,
    hakeeper_pb2.ShardInfo,
    _ANY,
    shard="",
    named="name",
)
GET_ACCESS_LIST: Final = Rpc(
    _HAKEEPER + "GetAccessList",
    hakeeper_pb2.GetAccessListRequest,
    hakeeper_pb2.AccessList,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    undoes=True,
)
CHANGE_ACCESS: Final = Rpc(
    # The same change twice is one change.
    _HAKEEPER + "ChangeAccess",
    hakeeper_pb2.ChangeAccessRequest,
    hakeeper_pb2.ChangeAccessResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
    undoes=True,
)
GET_GIVEN_OUT: Final = Rpc(
    _HAKEEPER + "GetGivenOut",
    hakeeper_pb2.GetGivenOutRequest,
    hakeeper_pb2.GivenOut,
    _READ_OR_ADMIN,
    shard="",
)
SKIP_NUMBERS: Final = Rpc(
    # The same numbers twice are skipped once.
    _HAKEEPER + "SkipNumbers",
    hakeeper_pb2.SkipNumbersRequest,
    hakeeper_pb2.SkipNumbersResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_QUOTA: Final = Rpc(
    # The same change twice is one change.
    _HAKEEPER + "SetQuota",
    hakeeper_pb2.SetQuotaRequest,
    hakeeper_pb2.SetQuotaResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
    undoes=True,
)
ADMIT_STORE: Final = Rpc(
    _HAKEEPER + "AdmitStore",
    hakeeper_pb2.AdmitStoreRequest,
    hakeeper_pb2.AdmitStoreResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_JOINING: Final = Rpc(
    _HAKEEPER + "SetJoining",
    hakeeper_pb2.SetJoiningRequest,
    hakeeper_pb2.SetJoiningResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_STORE_MODE: Final = Rpc(
    _HAKEEPER + "SetStoreMode",
    hakeeper_pb2.SetStoreModeRequest,
    hakeeper_pb2.SetStoreModeResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
DRAIN_DIRECTORY: Final = Rpc(
    _HAKEEPER + "DrainDirectory",
    hakeeper_pb2.DrainDirectoryRequest,
    hakeeper_pb2.DrainDirectoryResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_REPAIR: Final = Rpc(
    _HAKEEPER + "SetRepair",
    hakeeper_pb2.SetRepairRequest,
    hakeeper_pb2.SetRepairResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
FORGET_STORE: Final = Rpc(
    _HAKEEPER + "ForgetStore",
    hakeeper_pb2.ForgetStoreRequest,
    hakeeper_pb2.ForgetStoreResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
ADOPT_SHARD: Final = Rpc(
    _HAKEEPER + "AdoptShard",
    hakeeper_pb2.AdoptShardRequest,
    hakeeper_pb2.AdoptShardResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
MOVE_REPLICA: Final = Rpc(
    _HAKEEPER + "MoveReplica",
    hakeeper_pb2.MoveReplicaRequest,
    hakeeper_pb2.MoveReplicaResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
CANCEL_WISH: Final = Rpc(
    _HAKEEPER + "CancelWish",
    hakeeper_pb2.CancelWishRequest,
    hakeeper_pb2.CancelWishResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
CANCEL_OPERATOR: Final = Rpc(
    _HAKEEPER + "CancelOperator",
    hakeeper_pb2.CancelOperatorRequest,
    hakeeper_pb2.CancelOperatorResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
SET_LEADER: Final = Rpc(
    _HAKEEPER + "SetLeader",
    hakeeper_pb2.SetLeaderRequest,
    hakeeper_pb2.SetLeaderResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
CHECK_IMPACT: Final = Rpc(
    _HAKEEPER + "CheckImpact",
    hakeeper_pb2.CheckImpactRequest,
    hakeeper_pb2.Impact,
    _READ_OR_ADMIN,
    shard="",
)
CHANGE_SETTINGS: Final = Rpc(
    _HAKEEPER + "ChangeSettings",
    hakeeper_pb2.ChangeSettingsRequest,
    hakeeper_pb2.ChangeSettingsResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
REBALANCE: Final = Rpc(
    _HAKEEPER + "Rebalance",
    hakeeper_pb2.RebalanceRequest,
    hakeeper_pb2.RebalanceResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
PLAN_BALANCE: Final = Rpc(
    _HAKEEPER + "PlanBalance",
    hakeeper_pb2.PlanBalanceRequest,
    hakeeper_pb2.BalancePlan,
    _READ_OR_ADMIN,
    shard="",
)
SET_PHASE: Final = Rpc(
    _HAKEEPER + "SetPhase",
    hakeeper_pb2.SetPhaseRequest,
    hakeeper_pb2.SetPhaseResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
RAISE_CLUSTER_VERSION: Final = Rpc(
    _HAKEEPER + "RaiseClusterVersion",
    hakeeper_pb2.RaiseClusterVersionRequest,
    hakeeper_pb2.RaiseClusterVersionResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)

# --- Admin ----------------------------------------------------------------------------------------

GET_STORE_STATUS: Final = Rpc(
    _ADMIN + "GetStoreStatus",
    admin_pb2.GetStoreStatusRequest,
    admin_pb2.StoreStatus,
    _READ_OR_ADMIN,
    shard="",
)
GET_CLUSTER_REPORT: Final = Rpc(
    _ADMIN + "GetClusterReport",
    admin_pb2.GetClusterReportRequest,
    admin_pb2.ClusterReport,
    _READ_OR_ADMIN,
    shard="",
)
GET_TRUNCATION: Final = Rpc(
    _ADMIN + "GetTruncation",
    admin_pb2.GetTruncationRequest,
    admin_pb2.GetTruncationResponse,
    _READ_OR_ADMIN,
    shard="",
)
TRANSFER_LEADER: Final = Rpc(
    _ADMIN + "TransferLeader",
    admin_pb2.TransferLeaderRequest,
    admin_pb2.TransferLeaderResponse,
    _ONLY_ADMIN,
    cluster_too=True,
    admin=True,
    mutates=True,
)
LIST_IDENTITIES: Final = Rpc(
    _ADMIN + "ListIdentities",
    admin_pb2.ListIdentitiesRequest,
    admin_pb2.ListIdentitiesResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
)
ADD_DIRECTORY: Final = Rpc(
    # The second one finds it there.
    _ADMIN + "AddDirectory",
    admin_pb2.AddDirectoryRequest,
    admin_pb2.AddDirectoryResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
REMOVE_DIRECTORY: Final = Rpc(
    # The second one finds it gone.
    _ADMIN + "RemoveDirectory",
    admin_pb2.RemoveDirectoryRequest,
    admin_pb2.RemoveDirectoryResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
MEASURE: Final = Rpc(
    _ADMIN + "Measure",
    admin_pb2.MeasureRequest,
    admin_pb2.MeasureResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
)
SET_LOG_LEVEL: Final = Rpc(
    _ADMIN + "SetLogLevel",
    admin_pb2.SetLogLevelRequest,
    admin_pb2.SetLogLevelResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
)
RELOAD_CONFIG: Final = Rpc(
    _ADMIN + "ReloadConfig",
    admin_pb2.ReloadConfigRequest,
    admin_pb2.ReloadConfigResponse,
    _ONLY_ADMIN,
    shard="",
    admin=True,
    mutates=True,
    undoes=True,
)

RPCS: Final[Mapping[str, Rpc[Any, Any]]] = {
    one.path: one for one in list(globals().values()) if isinstance(one, Rpc)
}
"""Every row above, by its path."""
