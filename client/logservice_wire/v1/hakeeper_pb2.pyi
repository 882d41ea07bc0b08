from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeartbeatRequest(_message.Message):
    __slots__ = ("service_id", "kind", "address", "labels", "acked_commands")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ACKED_COMMANDS_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    kind: str
    address: str
    labels: _containers.ScalarMap[str, str]
    acked_commands: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, service_id: _Optional[str] = ..., kind: _Optional[str] = ..., address: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., acked_commands: _Optional[_Iterable[int]] = ...) -> None: ...

class ServiceCommand(_message.Message):
    __slots__ = ("id", "kind", "payload")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: str
    payload: bytes
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[ServiceCommand]
    def __init__(self, commands: _Optional[_Iterable[_Union[ServiceCommand, _Mapping]]] = ...) -> None: ...

class GetClusterStateRequest(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: bool
    def __init__(self, stale: bool = ...) -> None: ...

class DirectoryInfo(_message.Message):
    __slots__ = ("path", "incarnation", "used_bytes", "free_bytes", "replicas", "failed", "full")
    PATH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    path: str
    incarnation: int
    used_bytes: int
    free_bytes: int
    replicas: int
    failed: str
    full: bool
    def __init__(self, path: _Optional[str] = ..., incarnation: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., replicas: _Optional[int] = ..., failed: _Optional[str] = ..., full: bool = ...) -> None: ...

class StoreInfo(_message.Message):
    __slots__ = ("store_id", "host", "peer_address", "client_address", "expired", "ticks_since_heartbeat", "disk_used_bytes", "disk_free_bytes", "replicas", "labels", "directories")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    TICKS_SINCE_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    DISK_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    host: str
    peer_address: str
    client_address: str
    expired: bool
    ticks_since_heartbeat: int
    disk_used_bytes: int
    disk_free_bytes: int
    replicas: int
    labels: _containers.ScalarMap[str, str]
    directories: _containers.RepeatedCompositeFieldContainer[DirectoryInfo]
    def __init__(self, store_id: _Optional[str] = ..., host: _Optional[str] = ..., peer_address: _Optional[str] = ..., client_address: _Optional[str] = ..., expired: bool = ..., ticks_since_heartbeat: _Optional[int] = ..., disk_used_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., replicas: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., directories: _Optional[_Iterable[_Union[DirectoryInfo, _Mapping]]] = ...) -> None: ...

class ReplicaInfo(_message.Message):
    __slots__ = ("replica_id", "store_id", "role", "reported", "leader", "applied_index", "first_lsn", "applied_lsn", "incarnation")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_LSN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    store_id: str
    role: str
    reported: bool
    leader: bool
    applied_index: int
    first_lsn: int
    applied_lsn: int
    incarnation: int
    def __init__(self, replica_id: _Optional[int] = ..., store_id: _Optional[str] = ..., role: _Optional[str] = ..., reported: bool = ..., leader: bool = ..., applied_index: _Optional[int] = ..., first_lsn: _Optional[int] = ..., applied_lsn: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class ShardInfo(_message.Message):
    __slots__ = ("shard_id", "name", "wanted_replicas", "replicas", "leader_store", "leader_address", "term", "membership_epoch", "joint", "client_addresses")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WANTED_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADER_STORE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    JOINT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    wanted_replicas: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaInfo]
    leader_store: str
    leader_address: str
    term: int
    membership_epoch: int
    joint: bool
    client_addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., wanted_replicas: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaInfo, _Mapping]]] = ..., leader_store: _Optional[str] = ..., leader_address: _Optional[str] = ..., term: _Optional[int] = ..., membership_epoch: _Optional[int] = ..., joint: bool = ..., client_addresses: _Optional[_Iterable[str]] = ...) -> None: ...

class OperatorInfo(_message.Message):
    __slots__ = ("operator_id", "shard_id", "kind", "step", "age_ticks")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_TICKS_FIELD_NUMBER: _ClassVar[int]
    operator_id: int
    shard_id: int
    kind: str
    step: str
    age_ticks: int
    def __init__(self, operator_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., kind: _Optional[str] = ..., step: _Optional[str] = ..., age_ticks: _Optional[int] = ...) -> None: ...

class ClusterState(_message.Message):
    __slots__ = ("cluster_id", "state", "tick", "term", "stores", "shards", "operators", "flags")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    state: str
    tick: int
    term: int
    stores: _containers.RepeatedCompositeFieldContainer[StoreInfo]
    shards: _containers.RepeatedCompositeFieldContainer[ShardInfo]
    operators: _containers.RepeatedCompositeFieldContainer[OperatorInfo]
    flags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., state: _Optional[str] = ..., tick: _Optional[int] = ..., term: _Optional[int] = ..., stores: _Optional[_Iterable[_Union[StoreInfo, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ShardInfo, _Mapping]]] = ..., operators: _Optional[_Iterable[_Union[OperatorInfo, _Mapping]]] = ..., flags: _Optional[_Iterable[str]] = ...) -> None: ...

class GetShardInfoRequest(_message.Message):
    __slots__ = ("shard_id",)
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    def __init__(self, shard_id: _Optional[int] = ...) -> None: ...

class AllocateIdsRequest(_message.Message):
    __slots__ = ("key", "count", "request_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    key: str
    count: int
    request_id: str
    def __init__(self, key: _Optional[str] = ..., count: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class AllocateIdsResponse(_message.Message):
    __slots__ = ("first",)
    FIRST_FIELD_NUMBER: _ClassVar[int]
    first: int
    def __init__(self, first: _Optional[int] = ...) -> None: ...

class CreateShardRequest(_message.Message):
    __slots__ = ("shard_id", "name", "replicas")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    replicas: int
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., replicas: _Optional[int] = ...) -> None: ...

class CreateShardResponse(_message.Message):
    __slots__ = ("shard_id",)
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    def __init__(self, shard_id: _Optional[int] = ...) -> None: ...

class AccessGrant(_message.Message):
    __slots__ = ("identity", "scope", "roles")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    identity: str
    scope: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, identity: _Optional[str] = ..., scope: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ...) -> None: ...

class GetAccessListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccessList(_message.Message):
    __slots__ = ("version", "grants", "version_here")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_HERE_FIELD_NUMBER: _ClassVar[int]
    version: int
    grants: _containers.RepeatedCompositeFieldContainer[AccessGrant]
    version_here: int
    def __init__(self, version: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[AccessGrant, _Mapping]]] = ..., version_here: _Optional[int] = ...) -> None: ...

class ChangeAccessRequest(_message.Message):
    __slots__ = ("identity", "scope", "grant", "revoke")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    identity: str
    scope: str
    grant: _containers.RepeatedScalarFieldContainer[str]
    revoke: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, identity: _Optional[str] = ..., scope: _Optional[str] = ..., grant: _Optional[_Iterable[str]] = ..., revoke: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeAccessResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class AdmitStoreRequest(_message.Message):
    __slots__ = ("store_id", "hakeeper")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    HAKEEPER_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    hakeeper: bool
    def __init__(self, store_id: _Optional[str] = ..., hakeeper: bool = ...) -> None: ...

class AdmitStoreResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetJoiningRequest(_message.Message):
    __slots__ = ("joining",)
    JOINING_FIELD_NUMBER: _ClassVar[int]
    joining: str
    def __init__(self, joining: _Optional[str] = ...) -> None: ...

class SetJoiningResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
