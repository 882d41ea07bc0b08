from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetStoreStatusRequest(_message.Message):
    __slots__ = ("only_shard",)
    ONLY_SHARD_FIELD_NUMBER: _ClassVar[int]
    only_shard: int
    def __init__(self, only_shard: _Optional[int] = ...) -> None: ...

class FollowerProgress(_message.Message):
    __slots__ = ("replica_id", "store_id", "lag_entries", "lag_bytes", "to_go_s", "active")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    LAG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    TO_GO_S_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    replica_id: int
    store_id: str
    lag_entries: int
    lag_bytes: int
    to_go_s: float
    active: bool
    def __init__(self, replica_id: _Optional[int] = ..., store_id: _Optional[str] = ..., lag_entries: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., to_go_s: _Optional[float] = ..., active: bool = ...) -> None: ...

class StoreReplica(_message.Message):
    __slots__ = ("shard_id", "replica_id", "role", "term", "leader_replica", "committed_index", "applied_index", "first_index", "last_index", "first_lsn", "applied_lsn", "truncated_lsn", "exported_snapshots", "membership_epoch", "incarnation", "halted", "followers")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_REPLICA_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_LSN_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERSHIP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HALTED_FIELD_NUMBER: _ClassVar[int]
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    replica_id: int
    role: str
    term: int
    leader_replica: int
    committed_index: int
    applied_index: int
    first_index: int
    last_index: int
    first_lsn: int
    applied_lsn: int
    truncated_lsn: int
    exported_snapshots: int
    membership_epoch: int
    incarnation: int
    halted: str
    followers: _containers.RepeatedCompositeFieldContainer[FollowerProgress]
    def __init__(self, shard_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., role: _Optional[str] = ..., term: _Optional[int] = ..., leader_replica: _Optional[int] = ..., committed_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., first_index: _Optional[int] = ..., last_index: _Optional[int] = ..., first_lsn: _Optional[int] = ..., applied_lsn: _Optional[int] = ..., truncated_lsn: _Optional[int] = ..., exported_snapshots: _Optional[int] = ..., membership_epoch: _Optional[int] = ..., incarnation: _Optional[int] = ..., halted: _Optional[str] = ..., followers: _Optional[_Iterable[_Union[FollowerProgress, _Mapping]]] = ...) -> None: ...

class StoreDirectory(_message.Message):
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

class StoreMemory(_message.Message):
    __slots__ = ("part", "used_bytes", "limit_bytes", "refused", "key")
    PART_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    part: str
    used_bytes: int
    limit_bytes: int
    refused: int
    key: str
    def __init__(self, part: _Optional[str] = ..., used_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., refused: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class StoreStatus(_message.Message):
    __slots__ = ("store_id", "cluster_id", "version", "uptime_ms", "segment_bytes", "segment_files", "durable_writes", "entries_written", "bytes_written", "durable_write_p50_us", "durable_write_p99_us", "replicas", "truncation_counts", "directories", "memory", "log_level", "config")
    class TruncationCountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FILES_FIELD_NUMBER: _ClassVar[int]
    DURABLE_WRITES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    DURABLE_WRITE_P50_US_FIELD_NUMBER: _ClassVar[int]
    DURABLE_WRITE_P99_US_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    cluster_id: str
    version: str
    uptime_ms: int
    segment_bytes: int
    segment_files: int
    durable_writes: int
    entries_written: int
    bytes_written: int
    durable_write_p50_us: int
    durable_write_p99_us: int
    replicas: _containers.RepeatedCompositeFieldContainer[StoreReplica]
    truncation_counts: _containers.ScalarMap[str, int]
    directories: _containers.RepeatedCompositeFieldContainer[StoreDirectory]
    memory: _containers.RepeatedCompositeFieldContainer[StoreMemory]
    log_level: LogLevel
    config: ConfigInEffect
    def __init__(self, store_id: _Optional[str] = ..., cluster_id: _Optional[str] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., segment_files: _Optional[int] = ..., durable_writes: _Optional[int] = ..., entries_written: _Optional[int] = ..., bytes_written: _Optional[int] = ..., durable_write_p50_us: _Optional[int] = ..., durable_write_p99_us: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[StoreReplica, _Mapping]]] = ..., truncation_counts: _Optional[_Mapping[str, int]] = ..., directories: _Optional[_Iterable[_Union[StoreDirectory, _Mapping]]] = ..., memory: _Optional[_Iterable[_Union[StoreMemory, _Mapping]]] = ..., log_level: _Optional[_Union[LogLevel, _Mapping]] = ..., config: _Optional[_Union[ConfigInEffect, _Mapping]] = ...) -> None: ...

class ConfigInEffect(_message.Message):
    __slots__ = ("digest", "since_us", "waiting")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    digest: str
    since_us: int
    waiting: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digest: _Optional[str] = ..., since_us: _Optional[int] = ..., waiting: _Optional[_Iterable[str]] = ...) -> None: ...

class ReloadConfigRequest(_message.Message):
    __slots__ = ("dry_run",)
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    def __init__(self, dry_run: bool = ...) -> None: ...

class ReloadConfigResponse(_message.Message):
    __slots__ = ("taken_up", "needs_restart", "first_start", "config")
    TAKEN_UP_FIELD_NUMBER: _ClassVar[int]
    NEEDS_RESTART_FIELD_NUMBER: _ClassVar[int]
    FIRST_START_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    taken_up: _containers.RepeatedScalarFieldContainer[str]
    needs_restart: _containers.RepeatedScalarFieldContainer[str]
    first_start: _containers.RepeatedScalarFieldContainer[str]
    config: ConfigInEffect
    def __init__(self, taken_up: _Optional[_Iterable[str]] = ..., needs_restart: _Optional[_Iterable[str]] = ..., first_start: _Optional[_Iterable[str]] = ..., config: _Optional[_Union[ConfigInEffect, _Mapping]] = ...) -> None: ...

class LogLevel(_message.Message):
    __slots__ = ("level", "configured", "ends_in_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONFIGURED_FIELD_NUMBER: _ClassVar[int]
    ENDS_IN_MS_FIELD_NUMBER: _ClassVar[int]
    level: str
    configured: str
    ends_in_ms: int
    def __init__(self, level: _Optional[str] = ..., configured: _Optional[str] = ..., ends_in_ms: _Optional[int] = ...) -> None: ...

class ListIdentitiesRequest(_message.Message):
    __slots__ = ("after", "limit", "identity")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    identity: str
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ..., identity: _Optional[str] = ...) -> None: ...

class SeenIdentity(_message.Message):
    __slots__ = ("identity", "first_us", "last_us", "peer", "serial", "not_after_us", "calls", "streams", "busy", "denials", "denied_us", "denied_what", "denied_shard", "denied_why")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FIRST_US_FIELD_NUMBER: _ClassVar[int]
    LAST_US_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    DENIALS_FIELD_NUMBER: _ClassVar[int]
    DENIED_US_FIELD_NUMBER: _ClassVar[int]
    DENIED_WHAT_FIELD_NUMBER: _ClassVar[int]
    DENIED_SHARD_FIELD_NUMBER: _ClassVar[int]
    DENIED_WHY_FIELD_NUMBER: _ClassVar[int]
    identity: str
    first_us: int
    last_us: int
    peer: str
    serial: str
    not_after_us: int
    calls: int
    streams: int
    busy: int
    denials: int
    denied_us: int
    denied_what: str
    denied_shard: int
    denied_why: str
    def __init__(self, identity: _Optional[str] = ..., first_us: _Optional[int] = ..., last_us: _Optional[int] = ..., peer: _Optional[str] = ..., serial: _Optional[str] = ..., not_after_us: _Optional[int] = ..., calls: _Optional[int] = ..., streams: _Optional[int] = ..., busy: _Optional[int] = ..., denials: _Optional[int] = ..., denied_us: _Optional[int] = ..., denied_what: _Optional[str] = ..., denied_shard: _Optional[int] = ..., denied_why: _Optional[str] = ...) -> None: ...

class ListIdentitiesResponse(_message.Message):
    __slots__ = ("store_id", "since_us", "forgotten", "identities", "after")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SINCE_US_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    since_us: int
    forgotten: int
    identities: _containers.RepeatedCompositeFieldContainer[SeenIdentity]
    after: str
    def __init__(self, store_id: _Optional[str] = ..., since_us: _Optional[int] = ..., forgotten: _Optional[int] = ..., identities: _Optional[_Iterable[_Union[SeenIdentity, _Mapping]]] = ..., after: _Optional[str] = ...) -> None: ...

class SetLogLevelRequest(_message.Message):
    __slots__ = ("level", "for_ms")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    level: str
    for_ms: int
    def __init__(self, level: _Optional[str] = ..., for_ms: _Optional[int] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ("log_level",)
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    log_level: LogLevel
    def __init__(self, log_level: _Optional[_Union[LogLevel, _Mapping]] = ...) -> None: ...

class AddDirectoryRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class AddDirectoryResponse(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class RemoveDirectoryRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class RemoveDirectoryResponse(_message.Message):
    __slots__ = ("incarnation",)
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    def __init__(self, incarnation: _Optional[int] = ...) -> None: ...

class MeasureRequest(_message.Message):
    __slots__ = ("what", "target")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    what: str
    target: str
    def __init__(self, what: _Optional[str] = ..., target: _Optional[str] = ...) -> None: ...

class Figure(_message.Message):
    __slots__ = ("name", "value", "unit", "verdict", "slow", "bad", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    BAD_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    unit: str
    verdict: str
    slow: float
    bad: float
    text: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., unit: _Optional[str] = ..., verdict: _Optional[str] = ..., slow: _Optional[float] = ..., bad: _Optional[float] = ..., text: _Optional[str] = ...) -> None: ...

class MeasureResponse(_message.Message):
    __slots__ = ("figures",)
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    figures: _containers.RepeatedCompositeFieldContainer[Figure]
    def __init__(self, figures: _Optional[_Iterable[_Union[Figure, _Mapping]]] = ...) -> None: ...

class GetClusterReportRequest(_message.Message):
    __slots__ = ("made_now",)
    MADE_NOW_FIELD_NUMBER: _ClassVar[int]
    made_now: bool
    def __init__(self, made_now: bool = ...) -> None: ...

class ClusterReport(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...

class GetTruncationRequest(_message.Message):
    __slots__ = ("from_shard", "limit", "stuck")
    FROM_SHARD_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STUCK_FIELD_NUMBER: _ClassVar[int]
    from_shard: int
    limit: int
    stuck: bool
    def __init__(self, from_shard: _Optional[int] = ..., limit: _Optional[int] = ..., stuck: bool = ...) -> None: ...

class TruncationStanding(_message.Message):
    __slots__ = ("shard_id", "replica_id", "truncated_lsn", "requested_lsn", "hold_name", "hold_owner", "hold_lsn", "installed_index", "installed_lsn", "exports", "newest_export_index", "export_bytes", "retained_bytes", "truncatable_bytes", "freed_bytes", "decision", "export_decision", "error", "decided_ms_ago", "visits_stalled")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_LSN_FIELD_NUMBER: _ClassVar[int]
    HOLD_NAME_FIELD_NUMBER: _ClassVar[int]
    HOLD_OWNER_FIELD_NUMBER: _ClassVar[int]
    HOLD_LSN_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_INDEX_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_LSN_FIELD_NUMBER: _ClassVar[int]
    EXPORTS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_EXPORT_INDEX_FIELD_NUMBER: _ClassVar[int]
    EXPORT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETAINED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    EXPORT_DECISION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    VISITS_STALLED_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    replica_id: int
    truncated_lsn: int
    requested_lsn: int
    hold_name: str
    hold_owner: str
    hold_lsn: int
    installed_index: int
    installed_lsn: int
    exports: int
    newest_export_index: int
    export_bytes: int
    retained_bytes: int
    truncatable_bytes: int
    freed_bytes: int
    decision: str
    export_decision: str
    error: str
    decided_ms_ago: int
    visits_stalled: int
    def __init__(self, shard_id: _Optional[int] = ..., replica_id: _Optional[int] = ..., truncated_lsn: _Optional[int] = ..., requested_lsn: _Optional[int] = ..., hold_name: _Optional[str] = ..., hold_owner: _Optional[str] = ..., hold_lsn: _Optional[int] = ..., installed_index: _Optional[int] = ..., installed_lsn: _Optional[int] = ..., exports: _Optional[int] = ..., newest_export_index: _Optional[int] = ..., export_bytes: _Optional[int] = ..., retained_bytes: _Optional[int] = ..., truncatable_bytes: _Optional[int] = ..., freed_bytes: _Optional[int] = ..., decision: _Optional[str] = ..., export_decision: _Optional[str] = ..., error: _Optional[str] = ..., decided_ms_ago: _Optional[int] = ..., visits_stalled: _Optional[int] = ...) -> None: ...

class GetTruncationResponse(_message.Message):
    __slots__ = ("store_id", "replicas", "next_shard")
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SHARD_FIELD_NUMBER: _ClassVar[int]
    store_id: str
    replicas: _containers.RepeatedCompositeFieldContainer[TruncationStanding]
    next_shard: int
    def __init__(self, store_id: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[TruncationStanding, _Mapping]]] = ..., next_shard: _Optional[int] = ...) -> None: ...

class TransferLeaderRequest(_message.Message):
    __slots__ = ("shard_id", "store_id")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    store_id: str
    def __init__(self, shard_id: _Optional[int] = ..., store_id: _Optional[str] = ...) -> None: ...

class TransferLeaderResponse(_message.Message):
    __slots__ = ("leader_store",)
    LEADER_STORE_FIELD_NUMBER: _ClassVar[int]
    leader_store: str
    def __init__(self, leader_store: _Optional[str] = ...) -> None: ...
