from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeartbeatRequest(_message.Message):
    __slots__ = ("service_id", "kind", "address", "labels", "acked_commands", "replayed", "boot_id", "sequence", "drained", "serving", "takes_tn_shards")
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
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    SERVING_FIELD_NUMBER: _ClassVar[int]
    TAKES_TN_SHARDS_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    kind: str
    address: str
    labels: _containers.ScalarMap[str, str]
    acked_commands: _containers.RepeatedScalarFieldContainer[int]
    replayed: _containers.RepeatedCompositeFieldContainer[ReplayedLsn]
    boot_id: int
    sequence: int
    drained: bool
    serving: _containers.RepeatedCompositeFieldContainer[ServingTnShard]
    takes_tn_shards: bool
    def __init__(self, service_id: _Optional[str] = ..., kind: _Optional[str] = ..., address: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., acked_commands: _Optional[_Iterable[int]] = ..., replayed: _Optional[_Iterable[_Union[ReplayedLsn, _Mapping]]] = ..., boot_id: _Optional[int] = ..., sequence: _Optional[int] = ..., drained: bool = ..., serving: _Optional[_Iterable[_Union[ServingTnShard, _Mapping]]] = ..., takes_tn_shards: bool = ...) -> None: ...

class ServingTnShard(_message.Message):
    __slots__ = ("tn_shard_id", "replica")
    TN_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    tn_shard_id: int
    replica: int
    def __init__(self, tn_shard_id: _Optional[int] = ..., replica: _Optional[int] = ...) -> None: ...

class ReplayedLsn(_message.Message):
    __slots__ = ("shard_id", "lsn")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lsn: int
    def __init__(self, shard_id: _Optional[int] = ..., lsn: _Optional[int] = ...) -> None: ...

class ReplayedHold(_message.Message):
    __slots__ = ("shard_id", "lsn", "held_lsn", "first_lsn", "gone", "behind_ticks", "hold")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    HELD_LSN_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    BEHIND_TICKS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lsn: int
    held_lsn: int
    first_lsn: int
    gone: bool
    behind_ticks: int
    hold: str
    def __init__(self, shard_id: _Optional[int] = ..., lsn: _Optional[int] = ..., held_lsn: _Optional[int] = ..., first_lsn: _Optional[int] = ..., gone: bool = ..., behind_ticks: _Optional[int] = ..., hold: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("commands", "replayed", "work_state", "serve", "tn_stop_ms")
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    WORK_STATE_FIELD_NUMBER: _ClassVar[int]
    SERVE_FIELD_NUMBER: _ClassVar[int]
    TN_STOP_MS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedCompositeFieldContainer[ServiceCommand]
    replayed: _containers.RepeatedCompositeFieldContainer[ReplayedHold]
    work_state: str
    serve: _containers.RepeatedCompositeFieldContainer[ServedTnShard]
    tn_stop_ms: int
    def __init__(self, commands: _Optional[_Iterable[_Union[ServiceCommand, _Mapping]]] = ..., replayed: _Optional[_Iterable[_Union[ReplayedHold, _Mapping]]] = ..., work_state: _Optional[str] = ..., serve: _Optional[_Iterable[_Union[ServedTnShard, _Mapping]]] = ..., tn_stop_ms: _Optional[int] = ...) -> None: ...

class ServedTnShard(_message.Message):
    __slots__ = ("tn_shard_id", "shard_id", "replica")
    TN_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    tn_shard_id: int
    shard_id: int
    replica: int
    def __init__(self, tn_shard_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., replica: _Optional[int] = ...) -> None: ...

class GetClusterStateRequest(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: bool
    def __init__(self, stale: bool = ...) -> None: ...

class DirectoryInfo(_message.Message):
    __slots__ = ("path", "incarnation", "used_bytes", "free_bytes", "replicas", "failed", "full", "draining", "members_left", "leaders_left", "leftovers", "empty")
    PATH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    LEADERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    path: str
    incarnation: int
    used_bytes: int
    free_bytes: int
    replicas: int
    failed: str
    full: bool
    draining: bool
    members_left: int
    leaders_left: int
    leftovers: int
    empty: bool
    def __init__(self, path: _Optional[str] = ..., incarnation: _Optional[int] = ..., used_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., replicas: _Optional[int] = ..., failed: _Optional[str] = ..., full: bool = ..., draining: bool = ..., members_left: _Optional[int] = ..., leaders_left: _Optional[int] = ..., leftovers: _Optional[int] = ..., empty: bool = ...) -> None: ...

class StoreInfo(_message.Message):
    __slots__ = ("store_id", "host", "peer_address", "client_address", "expired", "ticks_since_heartbeat", "disk_used_bytes", "disk_free_bytes", "replicas", "labels", "directories", "mode", "mode_reason", "members_left", "leaders_left", "leftovers", "empty", "repair_off_ticks", "repair_off_reason", "highest_version", "used_version", "zone")
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
    MODE_FIELD_NUMBER: _ClassVar[int]
    MODE_REASON_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    LEADERS_LEFT_FIELD_NUMBER: _ClassVar[int]
    LEFTOVERS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    REPAIR_OFF_TICKS_FIELD_NUMBER: _ClassVar[int]
    REPAIR_OFF_REASON_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    USED_VERSION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
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
    mode: str
    mode_reason: str
    members_left: int
    leaders_left: int
    leftovers: int
    empty: bool
    repair_off_ticks: int
    repair_off_reason: str
    highest_version: int
    used_version: int
    zone: str
    def __init__(self, store_id: _Optional[str] = ..., host: _Optional[str] = ..., peer_address: _Optional[str] = ..., client_address: _Optional[str] = ..., expired: bool = ..., ticks_since_heartbeat: _Optional[int] = ..., disk_used_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., replicas: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., directories: _Optional[_Iterable[_Union[DirectoryInfo, _Mapping]]] = ..., mode: _Optional[str] = ..., mode_reason: _Optional[str] = ..., members_left: _Optional[int] = ..., leaders_left: _Optional[int] = ..., leftovers: _Optional[int] = ..., empty: bool = ..., repair_off_ticks: _Optional[int] = ..., repair_off_reason: _Optional[str] = ..., highest_version: _Optional[int] = ..., used_version: _Optional[int] = ..., zone: _Optional[str] = ...) -> None: ...

class ReplicaInfo(_message.Message):
    __slots__ = ("replica_id", "store_id", "role", "reported", "leader", "applied_index", "first_lsn", "applied_lsn", "incarnation", "zone", "client_address")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_LSN_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    store_id: str
    role: str
    reported: bool
    leader: bool
    applied_index: int
    first_lsn: int
    applied_lsn: int
    incarnation: int
    zone: str
    client_address: str
    def __init__(self, replica_id: _Optional[int] = ..., store_id: _Optional[str] = ..., role: _Optional[str] = ..., reported: bool = ..., leader: bool = ..., applied_index: _Optional[int] = ..., first_lsn: _Optional[int] = ..., applied_lsn: _Optional[int] = ..., incarnation: _Optional[int] = ..., zone: _Optional[str] = ..., client_address: _Optional[str] = ...) -> None: ...

class ShardInfo(_message.Message):
    __slots__ = ("shard_id", "name", "wanted_replicas", "replicas", "leader_store", "leader_address", "term", "membership_epoch", "joint", "client_addresses", "state", "labels", "policy", "revision", "closed_index", "end_lsn", "holds", "held_by", "leader_wish_store", "leader_wish_ticks", "leader_wish_reason", "directory_index", "directory_age_ms", "witnesses")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
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
    STATE_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CLOSED_INDEX_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    LEADER_WISH_STORE_FIELD_NUMBER: _ClassVar[int]
    LEADER_WISH_TICKS_FIELD_NUMBER: _ClassVar[int]
    LEADER_WISH_REASON_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_INDEX_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    WITNESSES_FIELD_NUMBER: _ClassVar[int]
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
    state: str
    labels: _containers.ScalarMap[str, str]
    policy: ShardPolicy
    revision: int
    closed_index: int
    end_lsn: int
    holds: int
    held_by: _containers.RepeatedScalarFieldContainer[str]
    leader_wish_store: str
    leader_wish_ticks: int
    leader_wish_reason: str
    directory_index: int
    directory_age_ms: int
    witnesses: int
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., wanted_replicas: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaInfo, _Mapping]]] = ..., leader_store: _Optional[str] = ..., leader_address: _Optional[str] = ..., term: _Optional[int] = ..., membership_epoch: _Optional[int] = ..., joint: bool = ..., client_addresses: _Optional[_Iterable[str]] = ..., state: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., policy: _Optional[_Union[ShardPolicy, _Mapping]] = ..., revision: _Optional[int] = ..., closed_index: _Optional[int] = ..., end_lsn: _Optional[int] = ..., holds: _Optional[int] = ..., held_by: _Optional[_Iterable[str]] = ..., leader_wish_store: _Optional[str] = ..., leader_wish_ticks: _Optional[int] = ..., leader_wish_reason: _Optional[str] = ..., directory_index: _Optional[int] = ..., directory_age_ms: _Optional[int] = ..., witnesses: _Optional[int] = ...) -> None: ...

class ShardPolicy(_message.Message):
    __slots__ = ("zone_rule", "leader_zone", "protected", "learners", "max_bytes_per_s", "max_records_per_s", "weight", "retention_age_s", "retention_bytes", "retention_records")
    class LearnersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ZONE_RULE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ZONE_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RETENTION_AGE_S_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_RECORDS_FIELD_NUMBER: _ClassVar[int]
    zone_rule: str
    leader_zone: str
    protected: bool
    learners: _containers.ScalarMap[str, int]
    max_bytes_per_s: int
    max_records_per_s: int
    weight: int
    retention_age_s: int
    retention_bytes: int
    retention_records: int
    def __init__(self, zone_rule: _Optional[str] = ..., leader_zone: _Optional[str] = ..., protected: bool = ..., learners: _Optional[_Mapping[str, int]] = ..., max_bytes_per_s: _Optional[int] = ..., max_records_per_s: _Optional[int] = ..., weight: _Optional[int] = ..., retention_age_s: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_records: _Optional[int] = ...) -> None: ...

class OperatorInfo(_message.Message):
    __slots__ = ("operator_id", "shard_id", "kind", "step", "age_ticks", "replica_id", "store_id", "from_store", "cause", "wish_id", "entries_to_go", "error", "cancelled")
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_TICKS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STORE_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    WISH_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_TO_GO_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    operator_id: int
    shard_id: int
    kind: str
    step: str
    age_ticks: int
    replica_id: int
    store_id: str
    from_store: str
    cause: str
    wish_id: int
    entries_to_go: int
    error: str
    cancelled: bool
    def __init__(self, operator_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., kind: _Optional[str] = ..., step: _Optional[str] = ..., age_ticks: _Optional[int] = ..., replica_id: _Optional[int] = ..., store_id: _Optional[str] = ..., from_store: _Optional[str] = ..., cause: _Optional[str] = ..., wish_id: _Optional[int] = ..., entries_to_go: _Optional[int] = ..., error: _Optional[str] = ..., cancelled: bool = ...) -> None: ...

class WishInfo(_message.Message):
    __slots__ = ("wish_id", "errand", "shard_id", "from_store", "to_store", "reason", "forced", "age_ticks", "step", "result")
    WISH_ID_FIELD_NUMBER: _ClassVar[int]
    ERRAND_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STORE_FIELD_NUMBER: _ClassVar[int]
    TO_STORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORCED_FIELD_NUMBER: _ClassVar[int]
    AGE_TICKS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    wish_id: int
    errand: str
    shard_id: int
    from_store: str
    to_store: str
    reason: str
    forced: bool
    age_ticks: int
    step: str
    result: str
    def __init__(self, wish_id: _Optional[int] = ..., errand: _Optional[str] = ..., shard_id: _Optional[int] = ..., from_store: _Optional[str] = ..., to_store: _Optional[str] = ..., reason: _Optional[str] = ..., forced: bool = ..., age_ticks: _Optional[int] = ..., step: _Optional[str] = ..., result: _Optional[str] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("store_timeout_ms", "default_replicas", "joining", "replica_balance", "leader_balance", "replace_stuck", "catch_up_bytes_per_s", "tail_read_bytes_per_s", "catch_up_read_bytes_per_s")
    STORE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    REPLICA_BALANCE_FIELD_NUMBER: _ClassVar[int]
    LEADER_BALANCE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_STUCK_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    TAIL_READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    store_timeout_ms: int
    default_replicas: int
    joining: str
    replica_balance: str
    leader_balance: str
    replace_stuck: str
    catch_up_bytes_per_s: int
    tail_read_bytes_per_s: int
    catch_up_read_bytes_per_s: int
    def __init__(self, store_timeout_ms: _Optional[int] = ..., default_replicas: _Optional[int] = ..., joining: _Optional[str] = ..., replica_balance: _Optional[str] = ..., leader_balance: _Optional[str] = ..., replace_stuck: _Optional[str] = ..., catch_up_bytes_per_s: _Optional[int] = ..., tail_read_bytes_per_s: _Optional[int] = ..., catch_up_read_bytes_per_s: _Optional[int] = ...) -> None: ...

class GoneStore(_message.Message):
    __slots__ = ("store_id", "lost", "age_ticks")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    AGE_TICKS_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    lost: bool
    age_ticks: int
    def __init__(self, store_id: _Optional[str] = ..., lost: bool = ..., age_ticks: _Optional[int] = ...) -> None: ...

class ClusterState(_message.Message):
    __slots__ = ("cluster_id", "state", "tick", "term", "stores", "shards", "operators", "flags", "wishes", "settings", "gone_stores", "repair_off_ticks", "repair_off_reason", "cluster_version", "next_version", "holding_back", "services", "tn_shards", "revision")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    GONE_STORES_FIELD_NUMBER: _ClassVar[int]
    REPAIR_OFF_TICKS_FIELD_NUMBER: _ClassVar[int]
    REPAIR_OFF_REASON_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOLDING_BACK_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    TN_SHARDS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    state: str
    tick: int
    term: int
    stores: _containers.RepeatedCompositeFieldContainer[StoreInfo]
    shards: _containers.RepeatedCompositeFieldContainer[ShardInfo]
    operators: _containers.RepeatedCompositeFieldContainer[OperatorInfo]
    flags: _containers.RepeatedScalarFieldContainer[str]
    wishes: _containers.RepeatedCompositeFieldContainer[WishInfo]
    settings: Settings
    gone_stores: _containers.RepeatedCompositeFieldContainer[GoneStore]
    repair_off_ticks: int
    repair_off_reason: str
    cluster_version: int
    next_version: int
    holding_back: _containers.RepeatedScalarFieldContainer[str]
    services: _containers.RepeatedCompositeFieldContainer[ServiceInfo]
    tn_shards: _containers.RepeatedCompositeFieldContainer[TnShardInfo]
    revision: int
    def __init__(self, cluster_id: _Optional[str] = ..., state: _Optional[str] = ..., tick: _Optional[int] = ..., term: _Optional[int] = ..., stores: _Optional[_Iterable[_Union[StoreInfo, _Mapping]]] = ..., shards: _Optional[_Iterable[_Union[ShardInfo, _Mapping]]] = ..., operators: _Optional[_Iterable[_Union[OperatorInfo, _Mapping]]] = ..., flags: _Optional[_Iterable[str]] = ..., wishes: _Optional[_Iterable[_Union[WishInfo, _Mapping]]] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., gone_stores: _Optional[_Iterable[_Union[GoneStore, _Mapping]]] = ..., repair_off_ticks: _Optional[int] = ..., repair_off_reason: _Optional[str] = ..., cluster_version: _Optional[int] = ..., next_version: _Optional[int] = ..., holding_back: _Optional[_Iterable[str]] = ..., services: _Optional[_Iterable[_Union[ServiceInfo, _Mapping]]] = ..., tn_shards: _Optional[_Iterable[_Union[TnShardInfo, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class ServiceInfo(_message.Message):
    __slots__ = ("service_id", "kind", "address", "labels", "owner", "ticks_since_heartbeat", "expires_in_ticks", "waiting", "replayed", "work_state")
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
    OWNER_FIELD_NUMBER: _ClassVar[int]
    TICKS_SINCE_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_TICKS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    WORK_STATE_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    kind: str
    address: str
    labels: _containers.ScalarMap[str, str]
    owner: str
    ticks_since_heartbeat: int
    expires_in_ticks: int
    waiting: _containers.RepeatedScalarFieldContainer[int]
    replayed: _containers.RepeatedCompositeFieldContainer[ReplayedHold]
    work_state: str
    def __init__(self, service_id: _Optional[str] = ..., kind: _Optional[str] = ..., address: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., owner: _Optional[str] = ..., ticks_since_heartbeat: _Optional[int] = ..., expires_in_ticks: _Optional[int] = ..., waiting: _Optional[_Iterable[int]] = ..., replayed: _Optional[_Iterable[_Union[ReplayedHold, _Mapping]]] = ..., work_state: _Optional[str] = ...) -> None: ...

class TnShardInfo(_message.Message):
    __slots__ = ("tn_shard_id", "shard_id", "identity", "service_id", "replica", "standing", "standing_ticks")
    TN_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    STANDING_TICKS_FIELD_NUMBER: _ClassVar[int]
    tn_shard_id: int
    shard_id: int
    identity: str
    service_id: str
    replica: int
    standing: str
    standing_ticks: int
    def __init__(self, tn_shard_id: _Optional[int] = ..., shard_id: _Optional[int] = ..., identity: _Optional[str] = ..., service_id: _Optional[str] = ..., replica: _Optional[int] = ..., standing: _Optional[str] = ..., standing_ticks: _Optional[int] = ...) -> None: ...

class CreateTnShardRequest(_message.Message):
    __slots__ = ("shard_id", "identity")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    identity: str
    def __init__(self, shard_id: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class CreateTnShardResponse(_message.Message):
    __slots__ = ("tn_shard_id",)
    TN_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    tn_shard_id: int
    def __init__(self, tn_shard_id: _Optional[int] = ...) -> None: ...

class DeleteTnShardRequest(_message.Message):
    __slots__ = ("tn_shard_id",)
    TN_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    tn_shard_id: int
    def __init__(self, tn_shard_id: _Optional[int] = ...) -> None: ...

class DeleteTnShardResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetServiceStateRequest(_message.Message):
    __slots__ = ("service_id", "work_state")
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    WORK_STATE_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    work_state: str
    def __init__(self, service_id: _Optional[str] = ..., work_state: _Optional[str] = ...) -> None: ...

class SetServiceStateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SendServiceCommandRequest(_message.Message):
    __slots__ = ("service_id", "kind", "payload", "request_id")
    SERVICE_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    service_id: str
    kind: str
    payload: bytes
    request_id: str
    def __init__(self, service_id: _Optional[str] = ..., kind: _Optional[str] = ..., payload: _Optional[bytes] = ..., request_id: _Optional[str] = ...) -> None: ...

class SendServiceCommandResponse(_message.Message):
    __slots__ = ("command_id",)
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    def __init__(self, command_id: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("after", "kinds", "shard")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    after: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    shard: int
    def __init__(self, after: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., shard: _Optional[int] = ...) -> None: ...

class ClusterEvent(_message.Message):
    __slots__ = ("revision", "tick", "kind", "shard_id", "replica_id", "store", "text")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    revision: int
    tick: int
    kind: str
    shard_id: int
    replica_id: int
    store: str
    text: str
    def __init__(self, revision: _Optional[int] = ..., tick: _Optional[int] = ..., kind: _Optional[str] = ..., shard_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., store: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events", "revision")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[ClusterEvent]
    revision: int
    def __init__(self, events: _Optional[_Iterable[_Union[ClusterEvent, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class GetShardInfoRequest(_message.Message):
    __slots__ = ("shard_id", "fresh")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    fresh: bool
    def __init__(self, shard_id: _Optional[int] = ..., fresh: bool = ...) -> None: ...

class GetGivenOutRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GivenOut(_message.Message):
    __slots__ = ("next_shard_id", "next_replica_id", "next_operator_id", "next_command_id", "next_wish_id", "next_tn_shard", "next_id", "access_version", "limits_version", "quotas_version", "revision", "deleted")
    NEXT_SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_WISH_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TN_SHARD_FIELD_NUMBER: _ClassVar[int]
    NEXT_ID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    LIMITS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    next_shard_id: int
    next_replica_id: int
    next_operator_id: int
    next_command_id: int
    next_wish_id: int
    next_tn_shard: int
    next_id: int
    access_version: int
    limits_version: int
    quotas_version: int
    revision: int
    deleted: _containers.RepeatedCompositeFieldContainer[IdRange]
    def __init__(self, next_shard_id: _Optional[int] = ..., next_replica_id: _Optional[int] = ..., next_operator_id: _Optional[int] = ..., next_command_id: _Optional[int] = ..., next_wish_id: _Optional[int] = ..., next_tn_shard: _Optional[int] = ..., next_id: _Optional[int] = ..., access_version: _Optional[int] = ..., limits_version: _Optional[int] = ..., quotas_version: _Optional[int] = ..., revision: _Optional[int] = ..., deleted: _Optional[_Iterable[_Union[IdRange, _Mapping]]] = ...) -> None: ...

class IdRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class SkipNumbersRequest(_message.Message):
    __slots__ = ("given_out",)
    GIVEN_OUT_FIELD_NUMBER: _ClassVar[int]
    given_out: GivenOut
    def __init__(self, given_out: _Optional[_Union[GivenOut, _Mapping]] = ...) -> None: ...

class SkipNumbersResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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
    __slots__ = ("shard_id", "name", "replicas", "request_id", "policy", "labels", "witnesses", "waive_g1")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WITNESSES_FIELD_NUMBER: _ClassVar[int]
    WAIVE_G1_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    replicas: int
    request_id: str
    policy: ShardPolicy
    labels: _containers.ScalarMap[str, str]
    witnesses: int
    waive_g1: bool
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., replicas: _Optional[int] = ..., request_id: _Optional[str] = ..., policy: _Optional[_Union[ShardPolicy, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., witnesses: _Optional[int] = ..., waive_g1: bool = ...) -> None: ...

class CreateShardResponse(_message.Message):
    __slots__ = ("shard_id",)
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    def __init__(self, shard_id: _Optional[int] = ...) -> None: ...

class ChangeShardRequest(_message.Message):
    __slots__ = ("shard_id", "name", "replicas", "policy", "labels", "revision")
    class Labels(_message.Message):
        __slots__ = ("labels",)
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        LABELS_FIELD_NUMBER: _ClassVar[int]
        labels: _containers.ScalarMap[str, str]
        def __init__(self, labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    replicas: int
    policy: ShardPolicy
    labels: ChangeShardRequest.Labels
    revision: int
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., replicas: _Optional[int] = ..., policy: _Optional[_Union[ShardPolicy, _Mapping]] = ..., labels: _Optional[_Union[ChangeShardRequest.Labels, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class ChangeShardResponse(_message.Message):
    __slots__ = ("revision",)
    REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    def __init__(self, revision: _Optional[int] = ...) -> None: ...

class DeleteShardRequest(_message.Message):
    __slots__ = ("shard_id", "name", "closed_index", "force")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CLOSED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    closed_index: int
    force: bool
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., closed_index: _Optional[int] = ..., force: bool = ...) -> None: ...

class DeleteShardResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListShardsRequest(_message.Message):
    __slots__ = ("after", "limit", "states", "labels", "name_prefix")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    states: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    name_prefix: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., states: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., name_prefix: _Optional[str] = ...) -> None: ...

class ListShardsResponse(_message.Message):
    __slots__ = ("shards", "after")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    shards: _containers.RepeatedCompositeFieldContainer[ShardInfo]
    after: int
    def __init__(self, shards: _Optional[_Iterable[_Union[ShardInfo, _Mapping]]] = ..., after: _Optional[int] = ...) -> None: ...

class ResolveShardRequest(_message.Message):
    __slots__ = ("name", "fresh")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    name: str
    fresh: bool
    def __init__(self, name: _Optional[str] = ..., fresh: bool = ...) -> None: ...

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
    __slots__ = ("version", "grants", "version_here", "stores", "age_max_ms", "denials", "admins", "quotas", "quotas_version", "quotas_version_here", "quotas_configured")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_HERE_FIELD_NUMBER: _ClassVar[int]
    STORES_FIELD_NUMBER: _ClassVar[int]
    AGE_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    DENIALS_FIELD_NUMBER: _ClassVar[int]
    ADMINS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_VERSION_HERE_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    version: int
    grants: _containers.RepeatedCompositeFieldContainer[AccessGrant]
    version_here: int
    stores: _containers.RepeatedCompositeFieldContainer[StoreAccess]
    age_max_ms: int
    denials: _containers.RepeatedCompositeFieldContainer[AccessGrant]
    admins: _containers.RepeatedScalarFieldContainer[str]
    quotas: _containers.RepeatedCompositeFieldContainer[IdentityQuota]
    quotas_version: int
    quotas_version_here: int
    quotas_configured: IdentityQuota
    def __init__(self, version: _Optional[int] = ..., grants: _Optional[_Iterable[_Union[AccessGrant, _Mapping]]] = ..., version_here: _Optional[int] = ..., stores: _Optional[_Iterable[_Union[StoreAccess, _Mapping]]] = ..., age_max_ms: _Optional[int] = ..., denials: _Optional[_Iterable[_Union[AccessGrant, _Mapping]]] = ..., admins: _Optional[_Iterable[str]] = ..., quotas: _Optional[_Iterable[_Union[IdentityQuota, _Mapping]]] = ..., quotas_version: _Optional[int] = ..., quotas_version_here: _Optional[int] = ..., quotas_configured: _Optional[_Union[IdentityQuota, _Mapping]] = ...) -> None: ...

class IdentityQuota(_message.Message):
    __slots__ = ("identity", "requests_per_s", "bytes_per_s", "rpcs_max", "streams_max", "connections_max", "address_connections_max")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    RPCS_MAX_FIELD_NUMBER: _ClassVar[int]
    STREAMS_MAX_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    identity: str
    requests_per_s: int
    bytes_per_s: int
    rpcs_max: int
    streams_max: int
    connections_max: int
    address_connections_max: int
    def __init__(self, identity: _Optional[str] = ..., requests_per_s: _Optional[int] = ..., bytes_per_s: _Optional[int] = ..., rpcs_max: _Optional[int] = ..., streams_max: _Optional[int] = ..., connections_max: _Optional[int] = ..., address_connections_max: _Optional[int] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("quota", "clear")
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    quota: IdentityQuota
    clear: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, quota: _Optional[_Union[IdentityQuota, _Mapping]] = ..., clear: _Optional[_Iterable[str]] = ...) -> None: ...

class SetQuotaResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class StoreAccess(_message.Message):
    __slots__ = ("store_id", "version", "heard_ms")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    version: int
    heard_ms: int
    def __init__(self, store_id: _Optional[str] = ..., version: _Optional[int] = ..., heard_ms: _Optional[int] = ...) -> None: ...

class ChangeAccessRequest(_message.Message):
    __slots__ = ("identity", "scope", "grant", "revoke", "deny", "undeny")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REVOKE_FIELD_NUMBER: _ClassVar[int]
    DENY_FIELD_NUMBER: _ClassVar[int]
    UNDENY_FIELD_NUMBER: _ClassVar[int]
    identity: str
    scope: str
    grant: _containers.RepeatedScalarFieldContainer[str]
    revoke: _containers.RepeatedScalarFieldContainer[str]
    deny: _containers.RepeatedScalarFieldContainer[str]
    undeny: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, identity: _Optional[str] = ..., scope: _Optional[str] = ..., grant: _Optional[_Iterable[str]] = ..., revoke: _Optional[_Iterable[str]] = ..., deny: _Optional[_Iterable[str]] = ..., undeny: _Optional[_Iterable[str]] = ...) -> None: ...

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

class SetStoreModeRequest(_message.Message):
    __slots__ = ("store_id", "mode", "reason", "force")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    mode: str
    reason: str
    force: bool
    def __init__(self, store_id: _Optional[str] = ..., mode: _Optional[str] = ..., reason: _Optional[str] = ..., force: bool = ...) -> None: ...

class SetStoreModeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainDirectoryRequest(_message.Message):
    __slots__ = ("store_id", "incarnation", "undo", "force")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    UNDO_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    incarnation: int
    undo: bool
    force: bool
    def __init__(self, store_id: _Optional[str] = ..., incarnation: _Optional[int] = ..., undo: bool = ..., force: bool = ...) -> None: ...

class DrainDirectoryResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetRepairRequest(_message.Message):
    __slots__ = ("store_id", "off_ms", "reason")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    OFF_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    off_ms: int
    reason: str
    def __init__(self, store_id: _Optional[str] = ..., off_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SetRepairResponse(_message.Message):
    __slots__ = ("until_tick",)
    UNTIL_TICK_FIELD_NUMBER: _ClassVar[int]
    until_tick: int
    def __init__(self, until_tick: _Optional[int] = ...) -> None: ...

class ForgetStoreRequest(_message.Message):
    __slots__ = ("store_id", "lost", "force")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    lost: bool
    force: bool
    def __init__(self, store_id: _Optional[str] = ..., lost: bool = ..., force: bool = ...) -> None: ...

class ForgetStoreResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AdoptShardRequest(_message.Message):
    __slots__ = ("shard_id", "membership", "reason")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    membership: bytes
    reason: str
    def __init__(self, shard_id: _Optional[int] = ..., membership: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class AdoptShardResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveReplicaRequest(_message.Message):
    __slots__ = ("shard_id", "from_store", "to_store", "reason", "force")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STORE_FIELD_NUMBER: _ClassVar[int]
    TO_STORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    from_store: str
    to_store: str
    reason: str
    force: bool
    def __init__(self, shard_id: _Optional[int] = ..., from_store: _Optional[str] = ..., to_store: _Optional[str] = ..., reason: _Optional[str] = ..., force: bool = ...) -> None: ...

class MoveReplicaResponse(_message.Message):
    __slots__ = ("wish_id",)
    WISH_ID_FIELD_NUMBER: _ClassVar[int]
    wish_id: int
    def __init__(self, wish_id: _Optional[int] = ...) -> None: ...

class CancelWishRequest(_message.Message):
    __slots__ = ("wish_id",)
    WISH_ID_FIELD_NUMBER: _ClassVar[int]
    wish_id: int
    def __init__(self, wish_id: _Optional[int] = ...) -> None: ...

class CancelWishResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelOperatorRequest(_message.Message):
    __slots__ = ("operator_id",)
    OPERATOR_ID_FIELD_NUMBER: _ClassVar[int]
    operator_id: int
    def __init__(self, operator_id: _Optional[int] = ...) -> None: ...

class CancelOperatorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetLeaderRequest(_message.Message):
    __slots__ = ("shard_id", "store_id", "for_ms", "reason")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    store_id: str
    for_ms: int
    reason: str
    def __init__(self, shard_id: _Optional[int] = ..., store_id: _Optional[str] = ..., for_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class SetLeaderResponse(_message.Message):
    __slots__ = ("until_tick",)
    UNTIL_TICK_FIELD_NUMBER: _ClassVar[int]
    until_tick: int
    def __init__(self, until_tick: _Optional[int] = ...) -> None: ...

class CheckImpactRequest(_message.Message):
    __slots__ = ("store_ids",)
    STORE_IDS_FIELD_NUMBER: _ClassVar[int]
    store_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, store_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ImpactFinding(_message.Message):
    __slots__ = ("kind", "shard_id", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    shard_id: int
    text: str
    def __init__(self, kind: _Optional[str] = ..., shard_id: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Impact(_message.Message):
    __slots__ = ("shards", "replicas", "leaders", "findings")
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    shards: int
    replicas: int
    leaders: int
    findings: _containers.RepeatedCompositeFieldContainer[ImpactFinding]
    def __init__(self, shards: _Optional[int] = ..., replicas: _Optional[int] = ..., leaders: _Optional[int] = ..., findings: _Optional[_Iterable[_Union[ImpactFinding, _Mapping]]] = ...) -> None: ...

class ChangeSettingsRequest(_message.Message):
    __slots__ = ("store_timeout_ms", "default_replicas", "joining", "force", "replica_balance", "leader_balance", "replace_stuck", "catch_up_bytes_per_s", "tail_read_bytes_per_s", "catch_up_read_bytes_per_s")
    STORE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    REPLICA_BALANCE_FIELD_NUMBER: _ClassVar[int]
    LEADER_BALANCE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_STUCK_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    TAIL_READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_READ_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    store_timeout_ms: int
    default_replicas: int
    joining: str
    force: bool
    replica_balance: str
    leader_balance: str
    replace_stuck: str
    catch_up_bytes_per_s: int
    tail_read_bytes_per_s: int
    catch_up_read_bytes_per_s: int
    def __init__(self, store_timeout_ms: _Optional[int] = ..., default_replicas: _Optional[int] = ..., joining: _Optional[str] = ..., force: bool = ..., replica_balance: _Optional[str] = ..., leader_balance: _Optional[str] = ..., replace_stuck: _Optional[str] = ..., catch_up_bytes_per_s: _Optional[int] = ..., tail_read_bytes_per_s: _Optional[int] = ..., catch_up_read_bytes_per_s: _Optional[int] = ...) -> None: ...

class ChangeSettingsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetPhaseRequest(_message.Message):
    __slots__ = ("phase",)
    PHASE_FIELD_NUMBER: _ClassVar[int]
    phase: str
    def __init__(self, phase: _Optional[str] = ...) -> None: ...

class SetPhaseResponse(_message.Message):
    __slots__ = ("phase",)
    PHASE_FIELD_NUMBER: _ClassVar[int]
    phase: str
    def __init__(self, phase: _Optional[str] = ...) -> None: ...

class RaiseClusterVersionRequest(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class RaiseClusterVersionResponse(_message.Message):
    __slots__ = ("cluster_version",)
    CLUSTER_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_version: int
    def __init__(self, cluster_version: _Optional[int] = ...) -> None: ...

class RebalanceRequest(_message.Message):
    __slots__ = ("replicas", "leaders", "stop")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    replicas: bool
    leaders: bool
    stop: bool
    def __init__(self, replicas: bool = ..., leaders: bool = ..., stop: bool = ...) -> None: ...

class RebalanceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PlanBalanceRequest(_message.Message):
    __slots__ = ("replicas", "leaders")
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    replicas: bool
    leaders: bool
    def __init__(self, replicas: bool = ..., leaders: bool = ...) -> None: ...

class BalanceMove(_message.Message):
    __slots__ = ("shard_id", "replica_id", "from_store", "to_store", "why")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_STORE_FIELD_NUMBER: _ClassVar[int]
    TO_STORE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    replica_id: int
    from_store: str
    to_store: str
    why: str
    def __init__(self, shard_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., from_store: _Optional[str] = ..., to_store: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class BalancePlan(_message.Message):
    __slots__ = ("moves", "hand_overs", "more", "waits", "replicas_wished", "leaders_wished")
    MOVES_FIELD_NUMBER: _ClassVar[int]
    HAND_OVERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_WISHED_FIELD_NUMBER: _ClassVar[int]
    LEADERS_WISHED_FIELD_NUMBER: _ClassVar[int]
    moves: _containers.RepeatedCompositeFieldContainer[BalanceMove]
    hand_overs: _containers.RepeatedCompositeFieldContainer[BalanceMove]
    more: bool
    waits: str
    replicas_wished: bool
    leaders_wished: bool
    def __init__(self, moves: _Optional[_Iterable[_Union[BalanceMove, _Mapping]]] = ..., hand_overs: _Optional[_Iterable[_Union[BalanceMove, _Mapping]]] = ..., more: bool = ..., waits: _Optional[str] = ..., replicas_wished: bool = ..., leaders_wished: bool = ...) -> None: ...
