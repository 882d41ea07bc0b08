"""Methods of the public contract, typed: path, and the classes of request and response.

The client calls through these instead of the generated stubs: the stubs are untyped and refuse any
grpcio older than the one that generated them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from logservice_wire.v1 import admin_pb2, hakeeper_pb2, log_pb2

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """One RPC.

    mutating: a lost answer leaves the outcome unknown. idempotent: calling again after an unknown
    outcome is harmless.
    """

    path: str
    request: type[RequestT]
    response: type[ResponseT]
    mutating: bool = False
    idempotent: bool = True

    @property
    def decode(self) -> Callable[[bytes], Any]:
        """Parses the response."""
        from_string: Callable[[bytes], Any] = self.response.FromString  # type: ignore[attr-defined]
        return from_string


encode: Final[Callable[[Any], bytes]] = operator.methodcaller("SerializeToString")
"""Serializes any request."""

_LOG: Final = "/logservice.v1.Log/"
_HAKEEPER: Final = "/logservice.v1.HAKeeper/"
_ADMIN: Final = "/logservice.v1.Admin/"

CONNECT: Final = Method(
    _LOG + "Connect", log_pb2.ConnectRequest, log_pb2.ConnectResponse, mutating=True
)
OPEN_SESSION: Final = Method(
    # A second session does no harm: the one whose answer was lost is evicted in time.
    _LOG + "OpenSession",
    log_pb2.OpenSessionRequest,
    log_pb2.OpenSessionResponse,
    mutating=True,
)
APPEND_STREAM: Final = Method(
    _LOG + "AppendStream",
    log_pb2.AppendStreamRequest,
    log_pb2.AppendStreamResponse,
    mutating=True,
)
READ: Final = Method(_LOG + "Read", log_pb2.ReadRequest, log_pb2.ReadResponse)
FOLLOW: Final = Method(_LOG + "Follow", log_pb2.FollowRequest, log_pb2.ReadResponse)
TRUNCATE: Final = Method(
    _LOG + "Truncate", log_pb2.TruncateRequest, log_pb2.TruncateResponse, mutating=True
)
GET_SHARD_STATUS: Final = Method(
    _LOG + "GetShardStatus", log_pb2.GetShardStatusRequest, log_pb2.GetShardStatusResponse
)
ACQUIRE_WRITER: Final = Method(
    # Not repeated after an unknown outcome: seeing "granted to this holder" cannot tell our own
    # attempt from another process under the same name, and two owners are what the epoch prevents.
    _LOG + "AcquireWriter",
    log_pb2.AcquireWriterRequest,
    log_pb2.AcquireWriterResponse,
    mutating=True,
    idempotent=False,
)
RELEASE_WRITER: Final = Method(
    _LOG + "ReleaseWriter",
    log_pb2.ReleaseWriterRequest,
    log_pb2.ReleaseWriterResponse,
    mutating=True,
    idempotent=False,
)
SET_HOLD: Final = Method(
    _LOG + "SetHold", log_pb2.SetHoldRequest, log_pb2.SetHoldResponse, mutating=True
)
RELEASE_HOLD: Final = Method(
    _LOG + "ReleaseHold", log_pb2.ReleaseHoldRequest, log_pb2.ReleaseHoldResponse, mutating=True
)
ALLOCATE_TIMESTAMPS: Final = Method(
    # A range whose answer was lost is skipped; timestamps need not be dense.
    _LOG + "AllocateTimestamps",
    log_pb2.AllocateTimestampsRequest,
    log_pb2.AllocateTimestampsResponse,
    mutating=True,
)

GET_CLUSTER_STATE: Final = Method(
    _HAKEEPER + "GetClusterState", hakeeper_pb2.GetClusterStateRequest, hakeeper_pb2.ClusterState
)
GET_SHARD_INFO: Final = Method(
    _HAKEEPER + "GetShardInfo", hakeeper_pb2.GetShardInfoRequest, hakeeper_pb2.ShardInfo
)
ALLOCATE_IDS: Final = Method(
    # The request id makes a second attempt return the first one's range.
    _HAKEEPER + "AllocateIds",
    hakeeper_pb2.AllocateIdsRequest,
    hakeeper_pb2.AllocateIdsResponse,
    mutating=True,
)
CREATE_SHARD: Final = Method(
    _HAKEEPER + "CreateShard",
    hakeeper_pb2.CreateShardRequest,
    hakeeper_pb2.CreateShardResponse,
    mutating=True,
    idempotent=False,
)

GET_ACCESS_LIST: Final = Method(
    _HAKEEPER + "GetAccessList", hakeeper_pb2.GetAccessListRequest, hakeeper_pb2.AccessList
)
CHANGE_ACCESS: Final = Method(
    # The same change twice is one change.
    _HAKEEPER + "ChangeAccess",
    hakeeper_pb2.ChangeAccessRequest,
    hakeeper_pb2.ChangeAccessResponse,
    mutating=True,
)

ADMIT_STORE: Final = Method(
    _HAKEEPER + "AdmitStore",
    hakeeper_pb2.AdmitStoreRequest,
    hakeeper_pb2.AdmitStoreResponse,
    mutating=True,
)
SET_JOINING: Final = Method(
    _HAKEEPER + "SetJoining",
    hakeeper_pb2.SetJoiningRequest,
    hakeeper_pb2.SetJoiningResponse,
    mutating=True,
)

GET_CLUSTER_REPORT: Final = Method(
    _ADMIN + "GetClusterReport", admin_pb2.GetClusterReportRequest, admin_pb2.ClusterReport
)
GET_STORE_STATUS: Final = Method(
    _ADMIN + "GetStoreStatus", admin_pb2.GetStoreStatusRequest, admin_pb2.StoreStatus
)
TRANSFER_LEADER: Final = Method(
    _ADMIN + "TransferLeader",
    admin_pb2.TransferLeaderRequest,
    admin_pb2.TransferLeaderResponse,
    mutating=True,
)
