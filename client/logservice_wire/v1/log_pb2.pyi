from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GapReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GAP_REASON_NONE: _ClassVar[GapReason]
    GAP_REASON_FENCED: _ClassVar[GapReason]
    GAP_REASON_WRONG_EXPECTED_LSN: _ClassVar[GapReason]
    GAP_REASON_SEQUENCE: _ClassVar[GapReason]
    GAP_REASON_CORRUPT: _ClassVar[GapReason]

class DigestCovers(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIGEST_COVERS_RECORDS: _ClassVar[DigestCovers]
GAP_REASON_NONE: GapReason
GAP_REASON_FENCED: GapReason
GAP_REASON_WRONG_EXPECTED_LSN: GapReason
GAP_REASON_SEQUENCE: GapReason
GAP_REASON_CORRUPT: GapReason
DIGEST_COVERS_RECORDS: DigestCovers

class LogPosition(_message.Message):
    __slots__ = ("first_lsn", "applied_lsn", "leader_store", "leader_address", "voters", "healthy_voters", "lineage")
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_LSN_FIELD_NUMBER: _ClassVar[int]
    LEADER_STORE_FIELD_NUMBER: _ClassVar[int]
    LEADER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_VOTERS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    first_lsn: int
    applied_lsn: int
    leader_store: str
    leader_address: str
    voters: int
    healthy_voters: int
    lineage: Lineage
    def __init__(self, first_lsn: _Optional[int] = ..., applied_lsn: _Optional[int] = ..., leader_store: _Optional[str] = ..., leader_address: _Optional[str] = ..., voters: _Optional[int] = ..., healthy_voters: _Optional[int] = ..., lineage: _Optional[_Union[Lineage, _Mapping]] = ...) -> None: ...

class Lineage(_message.Message):
    __slots__ = ("number", "id", "fork_lsn")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    FORK_LSN_FIELD_NUMBER: _ClassVar[int]
    number: int
    id: bytes
    fork_lsn: int
    def __init__(self, number: _Optional[int] = ..., id: _Optional[bytes] = ..., fork_lsn: _Optional[int] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("shard_id",)
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    def __init__(self, shard_id: _Optional[int] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("shard_id", "name", "epoch", "content", "stamp_us", "ttl_s", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    STAMP_US_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    epoch: int
    content: bytes
    stamp_us: int
    ttl_s: int
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., epoch: _Optional[int] = ..., content: _Optional[bytes] = ..., stamp_us: _Optional[int] = ..., ttl_s: _Optional[int] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("position", "session_id", "nonce", "appended", "stamp_us", "named")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    STAMP_US_FIELD_NUMBER: _ClassVar[int]
    NAMED_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    session_id: int
    nonce: bytes
    appended: int
    stamp_us: int
    named: bool
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., session_id: _Optional[int] = ..., nonce: _Optional[bytes] = ..., appended: _Optional[int] = ..., stamp_us: _Optional[int] = ..., named: bool = ...) -> None: ...

class NamedSession(_message.Message):
    __slots__ = ("session_id", "name", "owner", "epoch", "appended", "stamp_us", "ttl_s", "last_used", "used_us", "lost", "forgotten")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    STAMP_US_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    USED_US_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    name: str
    owner: str
    epoch: int
    appended: int
    stamp_us: int
    ttl_s: int
    last_used: int
    used_us: int
    lost: bool
    forgotten: bool
    def __init__(self, session_id: _Optional[int] = ..., name: _Optional[str] = ..., owner: _Optional[str] = ..., epoch: _Optional[int] = ..., appended: _Optional[int] = ..., stamp_us: _Optional[int] = ..., ttl_s: _Optional[int] = ..., last_used: _Optional[int] = ..., used_us: _Optional[int] = ..., lost: bool = ..., forgotten: bool = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("shard_id", "after", "stale")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    after: int
    stale: bool
    def __init__(self, shard_id: _Optional[int] = ..., after: _Optional[int] = ..., stale: bool = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("position", "sessions", "more")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    sessions: _containers.RepeatedCompositeFieldContainer[NamedSession]
    more: bool
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., sessions: _Optional[_Iterable[_Union[NamedSession, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ForgetSessionRequest(_message.Message):
    __slots__ = ("shard_id", "session_id", "last_used", "override", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    session_id: int
    last_used: int
    override: bool
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., session_id: _Optional[int] = ..., last_used: _Optional[int] = ..., override: bool = ..., lineage: _Optional[bytes] = ...) -> None: ...

class ForgetSessionResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("shard_id", "block", "writer_epoch", "expected_lsn", "session_id", "sequence", "session_nonce", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_LSN_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SESSION_NONCE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    block: bytes
    writer_epoch: int
    expected_lsn: int
    session_id: int
    sequence: int
    session_nonce: bytes
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., block: _Optional[bytes] = ..., writer_epoch: _Optional[int] = ..., expected_lsn: _Optional[int] = ..., session_id: _Optional[int] = ..., sequence: _Optional[int] = ..., session_nonce: _Optional[bytes] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("position", "lsn", "record_count", "duplicate", "append_time_us")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    lsn: int
    record_count: int
    duplicate: bool
    append_time_us: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., lsn: _Optional[int] = ..., record_count: _Optional[int] = ..., duplicate: bool = ..., append_time_us: _Optional[int] = ...) -> None: ...

class AppendStreamRequest(_message.Message):
    __slots__ = ("open", "blocks")
    class Open(_message.Message):
        __slots__ = ("shard_id", "session_id", "writer_epoch", "session_nonce", "lineage")
        SHARD_ID_FIELD_NUMBER: _ClassVar[int]
        SESSION_ID_FIELD_NUMBER: _ClassVar[int]
        WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        SESSION_NONCE_FIELD_NUMBER: _ClassVar[int]
        LINEAGE_FIELD_NUMBER: _ClassVar[int]
        shard_id: int
        session_id: int
        writer_epoch: int
        session_nonce: bytes
        lineage: bytes
        def __init__(self, shard_id: _Optional[int] = ..., session_id: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., session_nonce: _Optional[bytes] = ..., lineage: _Optional[bytes] = ...) -> None: ...
    class Block(_message.Message):
        __slots__ = ("sequence", "block", "expected_lsn", "traceparent")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        BLOCK_FIELD_NUMBER: _ClassVar[int]
        EXPECTED_LSN_FIELD_NUMBER: _ClassVar[int]
        TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        block: bytes
        expected_lsn: int
        traceparent: str
        def __init__(self, sequence: _Optional[int] = ..., block: _Optional[bytes] = ..., expected_lsn: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...
    OPEN_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    open: AppendStreamRequest.Open
    blocks: _containers.RepeatedCompositeFieldContainer[AppendStreamRequest.Block]
    def __init__(self, open: _Optional[_Union[AppendStreamRequest.Open, _Mapping]] = ..., blocks: _Optional[_Iterable[_Union[AppendStreamRequest.Block, _Mapping]]] = ...) -> None: ...

class AppendStreamResponse(_message.Message):
    __slots__ = ("position", "acks")
    class Ack(_message.Message):
        __slots__ = ("sequence", "lsn", "record_count", "duplicate", "append_time_us")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        LSN_FIELD_NUMBER: _ClassVar[int]
        RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
        DUPLICATE_FIELD_NUMBER: _ClassVar[int]
        APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        lsn: int
        record_count: int
        duplicate: bool
        append_time_us: int
        def __init__(self, sequence: _Optional[int] = ..., lsn: _Optional[int] = ..., record_count: _Optional[int] = ..., duplicate: bool = ..., append_time_us: _Optional[int] = ...) -> None: ...
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    acks: _containers.RepeatedCompositeFieldContainer[AppendStreamResponse.Ack]
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., acks: _Optional[_Iterable[_Union[AppendStreamResponse.Ack, _Mapping]]] = ...) -> None: ...

class AppendShardsRequest(_message.Message):
    __slots__ = ("opens", "blocks", "closes")
    class Open(_message.Message):
        __slots__ = ("shard_id", "session_id", "writer_epoch", "session_nonce", "lane", "lineage")
        SHARD_ID_FIELD_NUMBER: _ClassVar[int]
        SESSION_ID_FIELD_NUMBER: _ClassVar[int]
        WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        SESSION_NONCE_FIELD_NUMBER: _ClassVar[int]
        LANE_FIELD_NUMBER: _ClassVar[int]
        LINEAGE_FIELD_NUMBER: _ClassVar[int]
        shard_id: int
        session_id: int
        writer_epoch: int
        session_nonce: bytes
        lane: int
        lineage: bytes
        def __init__(self, shard_id: _Optional[int] = ..., session_id: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., session_nonce: _Optional[bytes] = ..., lane: _Optional[int] = ..., lineage: _Optional[bytes] = ...) -> None: ...
    class Block(_message.Message):
        __slots__ = ("sequence", "block", "expected_lsn", "traceparent", "lane")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        BLOCK_FIELD_NUMBER: _ClassVar[int]
        EXPECTED_LSN_FIELD_NUMBER: _ClassVar[int]
        TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
        LANE_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        block: bytes
        expected_lsn: int
        traceparent: str
        lane: int
        def __init__(self, sequence: _Optional[int] = ..., block: _Optional[bytes] = ..., expected_lsn: _Optional[int] = ..., traceparent: _Optional[str] = ..., lane: _Optional[int] = ...) -> None: ...
    class Close(_message.Message):
        __slots__ = ("lane",)
        LANE_FIELD_NUMBER: _ClassVar[int]
        lane: int
        def __init__(self, lane: _Optional[int] = ...) -> None: ...
    OPENS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    opens: _containers.RepeatedCompositeFieldContainer[AppendShardsRequest.Open]
    blocks: _containers.RepeatedCompositeFieldContainer[AppendShardsRequest.Block]
    closes: _containers.RepeatedCompositeFieldContainer[AppendShardsRequest.Close]
    def __init__(self, opens: _Optional[_Iterable[_Union[AppendShardsRequest.Open, _Mapping]]] = ..., blocks: _Optional[_Iterable[_Union[AppendShardsRequest.Block, _Mapping]]] = ..., closes: _Optional[_Iterable[_Union[AppendShardsRequest.Close, _Mapping]]] = ...) -> None: ...

class AppendShardsResponse(_message.Message):
    __slots__ = ("lanes",)
    class Lane(_message.Message):
        __slots__ = ("lane", "position", "acks", "ended", "status")
        LANE_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        ACKS_FIELD_NUMBER: _ClassVar[int]
        ENDED_FIELD_NUMBER: _ClassVar[int]
        STATUS_FIELD_NUMBER: _ClassVar[int]
        lane: int
        position: LogPosition
        acks: _containers.RepeatedCompositeFieldContainer[AppendStreamResponse.Ack]
        ended: bool
        status: bytes
        def __init__(self, lane: _Optional[int] = ..., position: _Optional[_Union[LogPosition, _Mapping]] = ..., acks: _Optional[_Iterable[_Union[AppendStreamResponse.Ack, _Mapping]]] = ..., ended: bool = ..., status: _Optional[bytes] = ...) -> None: ...
    LANES_FIELD_NUMBER: _ClassVar[int]
    lanes: _containers.RepeatedCompositeFieldContainer[AppendShardsResponse.Lane]
    def __init__(self, lanes: _Optional[_Iterable[_Union[AppendShardsResponse.Lane, _Mapping]]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("shard_id", "lsn", "max_bytes", "stale", "no_values", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    NO_VALUES_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lsn: int
    max_bytes: int
    stale: bool
    no_values: bool
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., lsn: _Optional[int] = ..., max_bytes: _Optional[int] = ..., stale: bool = ..., no_values: bool = ..., lineage: _Optional[bytes] = ...) -> None: ...

class LogBlock(_message.Message):
    __slots__ = ("first_lsn", "record_count", "block", "gap", "term", "append_time_us", "block_bytes", "timestamp_us")
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    first_lsn: int
    record_count: int
    block: bytes
    gap: GapReason
    term: int
    append_time_us: int
    block_bytes: int
    timestamp_us: int
    def __init__(self, first_lsn: _Optional[int] = ..., record_count: _Optional[int] = ..., block: _Optional[bytes] = ..., gap: _Optional[_Union[GapReason, str]] = ..., term: _Optional[int] = ..., append_time_us: _Optional[int] = ..., block_bytes: _Optional[int] = ..., timestamp_us: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("position", "blocks", "next_lsn", "end_lsn")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_LSN_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    blocks: _containers.RepeatedCompositeFieldContainer[LogBlock]
    next_lsn: int
    end_lsn: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., blocks: _Optional[_Iterable[_Union[LogBlock, _Mapping]]] = ..., next_lsn: _Optional[int] = ..., end_lsn: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("shard_id", "lsn", "until_lsn", "until_tail", "max_records", "max_bytes", "from_timestamp_us", "until_timestamp_us", "from_append_time_us", "until_append_time_us", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_LSN_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TAIL_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FROM_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    FROM_APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    UNTIL_APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lsn: int
    until_lsn: int
    until_tail: bool
    max_records: int
    max_bytes: int
    from_timestamp_us: int
    until_timestamp_us: int
    from_append_time_us: int
    until_append_time_us: int
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., lsn: _Optional[int] = ..., until_lsn: _Optional[int] = ..., until_tail: bool = ..., max_records: _Optional[int] = ..., max_bytes: _Optional[int] = ..., from_timestamp_us: _Optional[int] = ..., until_timestamp_us: _Optional[int] = ..., from_append_time_us: _Optional[int] = ..., until_append_time_us: _Optional[int] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class LsnAtTimeRequest(_message.Message):
    __slots__ = ("shard_id", "append_time_us", "stale", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    append_time_us: int
    stale: bool
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., append_time_us: _Optional[int] = ..., stale: bool = ..., lineage: _Optional[bytes] = ...) -> None: ...

class LsnAtTimeResponse(_message.Message):
    __slots__ = ("position", "lsn", "truncated")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    lsn: int
    truncated: bool
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., lsn: _Optional[int] = ..., truncated: bool = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("shard_id", "from_lsn", "to_lsn", "stale", "covers", "at_lsn", "chain", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_LSN_FIELD_NUMBER: _ClassVar[int]
    TO_LSN_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    COVERS_FIELD_NUMBER: _ClassVar[int]
    AT_LSN_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    from_lsn: int
    to_lsn: int
    stale: bool
    covers: DigestCovers
    at_lsn: int
    chain: bytes
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., from_lsn: _Optional[int] = ..., to_lsn: _Optional[int] = ..., stale: bool = ..., covers: _Optional[_Union[DigestCovers, str]] = ..., at_lsn: _Optional[int] = ..., chain: _Optional[bytes] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class DigestResponse(_message.Message):
    __slots__ = ("position", "digest", "at_lsn", "chain", "records", "gap_lsns", "value_bytes")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    AT_LSN_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    GAP_LSNS_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    digest: bytes
    at_lsn: int
    chain: bytes
    records: int
    gap_lsns: int
    value_bytes: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., digest: _Optional[bytes] = ..., at_lsn: _Optional[int] = ..., chain: _Optional[bytes] = ..., records: _Optional[int] = ..., gap_lsns: _Optional[int] = ..., value_bytes: _Optional[int] = ...) -> None: ...

class TruncateRequest(_message.Message):
    __slots__ = ("shard_id", "lsn", "writer_epoch", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lsn: int
    writer_epoch: int
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., lsn: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class TruncateResponse(_message.Message):
    __slots__ = ("position", "truncated_lsn")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    truncated_lsn: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., truncated_lsn: _Optional[int] = ...) -> None: ...

class GetShardStatusRequest(_message.Message):
    __slots__ = ("shard_id", "stale")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    stale: bool
    def __init__(self, shard_id: _Optional[int] = ..., stale: bool = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("name", "lsn", "owner", "revision", "ttl_s", "age_s", "expires_in_s")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_S_FIELD_NUMBER: _ClassVar[int]
    name: str
    lsn: int
    owner: str
    revision: int
    ttl_s: int
    age_s: float
    expires_in_s: float
    def __init__(self, name: _Optional[str] = ..., lsn: _Optional[int] = ..., owner: _Optional[str] = ..., revision: _Optional[int] = ..., ttl_s: _Optional[int] = ..., age_s: _Optional[float] = ..., expires_in_s: _Optional[float] = ...) -> None: ...

class GetShardStatusResponse(_message.Message):
    __slots__ = ("position", "truncated_lsn", "committed_index", "applied_index", "term", "writer_holder", "writer_epoch", "holds", "next_timestamp", "requested_truncation_lsn", "sessions", "replica_id", "store_id", "writer_owner", "closed_index", "end_lsn", "max_bytes_per_s", "max_records_per_s", "appends_delayed", "restoring", "lineage_parent", "gaps")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    WRITER_HOLDER_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_TRUNCATION_LSN_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    WRITER_OWNER_FIELD_NUMBER: _ClassVar[int]
    CLOSED_INDEX_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_PER_S_FIELD_NUMBER: _ClassVar[int]
    APPENDS_DELAYED_FIELD_NUMBER: _ClassVar[int]
    RESTORING_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_PARENT_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    truncated_lsn: int
    committed_index: int
    applied_index: int
    term: int
    writer_holder: str
    writer_epoch: int
    holds: _containers.RepeatedCompositeFieldContainer[Hold]
    next_timestamp: int
    requested_truncation_lsn: int
    sessions: int
    replica_id: int
    store_id: str
    writer_owner: str
    closed_index: int
    end_lsn: int
    max_bytes_per_s: int
    max_records_per_s: int
    appends_delayed: int
    restoring: Restoring
    lineage_parent: bytes
    gaps: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., truncated_lsn: _Optional[int] = ..., committed_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., term: _Optional[int] = ..., writer_holder: _Optional[str] = ..., writer_epoch: _Optional[int] = ..., holds: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ..., next_timestamp: _Optional[int] = ..., requested_truncation_lsn: _Optional[int] = ..., sessions: _Optional[int] = ..., replica_id: _Optional[int] = ..., store_id: _Optional[str] = ..., writer_owner: _Optional[str] = ..., closed_index: _Optional[int] = ..., end_lsn: _Optional[int] = ..., max_bytes_per_s: _Optional[int] = ..., max_records_per_s: _Optional[int] = ..., appends_delayed: _Optional[int] = ..., restoring: _Optional[_Union[Restoring, _Mapping]] = ..., lineage_parent: _Optional[bytes] = ..., gaps: _Optional[int] = ...) -> None: ...

class AcquireWriterRequest(_message.Message):
    __slots__ = ("shard_id", "holder", "expected_epoch", "takeover", "override", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    holder: str
    expected_epoch: int
    takeover: bool
    override: bool
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., holder: _Optional[str] = ..., expected_epoch: _Optional[int] = ..., takeover: bool = ..., override: bool = ..., lineage: _Optional[bytes] = ...) -> None: ...

class AcquireWriterResponse(_message.Message):
    __slots__ = ("position", "epoch")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    epoch: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class ReleaseWriterRequest(_message.Message):
    __slots__ = ("shard_id", "epoch", "override")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    epoch: int
    override: bool
    def __init__(self, shard_id: _Optional[int] = ..., epoch: _Optional[int] = ..., override: bool = ...) -> None: ...

class ReleaseWriterResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ...) -> None: ...

class SetHoldRequest(_message.Message):
    __slots__ = ("shard_id", "name", "lsn", "override", "ttl_s", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    lsn: int
    override: bool
    ttl_s: int
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., lsn: _Optional[int] = ..., override: bool = ..., ttl_s: _Optional[int] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class SetHoldResponse(_message.Message):
    __slots__ = ("position", "ttl_s")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    ttl_s: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., ttl_s: _Optional[int] = ...) -> None: ...

class RenewHoldRequest(_message.Message):
    __slots__ = ("shard_id", "name", "lineage")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    lineage: bytes
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., lineage: _Optional[bytes] = ...) -> None: ...

class RenewHoldResponse(_message.Message):
    __slots__ = ("position", "lsn")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LSN_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    lsn: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., lsn: _Optional[int] = ...) -> None: ...

class ReleaseHoldRequest(_message.Message):
    __slots__ = ("shard_id", "name", "override")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    name: str
    override: bool
    def __init__(self, shard_id: _Optional[int] = ..., name: _Optional[str] = ..., override: bool = ...) -> None: ...

class ReleaseHoldResponse(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ...) -> None: ...

class CloseShardRequest(_message.Message):
    __slots__ = ("shard_id",)
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    def __init__(self, shard_id: _Optional[int] = ...) -> None: ...

class CloseShardResponse(_message.Message):
    __slots__ = ("position", "end_lsn", "closed_index", "duplicate")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    CLOSED_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    end_lsn: int
    closed_index: int
    duplicate: bool
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., end_lsn: _Optional[int] = ..., closed_index: _Optional[int] = ..., duplicate: bool = ...) -> None: ...

class BeginRestoreRequest(_message.Message):
    __slots__ = ("shard_id", "lineage", "parent", "base_lsn", "end_lsn", "writer_epoch", "next_timestamp", "digest", "mirror")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BASE_LSN_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    WRITER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lineage: Lineage
    parent: bytes
    base_lsn: int
    end_lsn: int
    writer_epoch: int
    next_timestamp: int
    digest: bytes
    mirror: bool
    def __init__(self, shard_id: _Optional[int] = ..., lineage: _Optional[_Union[Lineage, _Mapping]] = ..., parent: _Optional[bytes] = ..., base_lsn: _Optional[int] = ..., end_lsn: _Optional[int] = ..., writer_epoch: _Optional[int] = ..., next_timestamp: _Optional[int] = ..., digest: _Optional[bytes] = ..., mirror: bool = ...) -> None: ...

class BeginRestoreResponse(_message.Message):
    __slots__ = ("position", "next_lsn", "duplicate")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_LSN_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    next_lsn: int
    duplicate: bool
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., next_lsn: _Optional[int] = ..., duplicate: bool = ...) -> None: ...

class RestoredBlock(_message.Message):
    __slots__ = ("block", "gap", "record_count", "append_time_us")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    APPEND_TIME_US_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    gap: GapReason
    record_count: int
    append_time_us: int
    def __init__(self, block: _Optional[bytes] = ..., gap: _Optional[_Union[GapReason, str]] = ..., record_count: _Optional[int] = ..., append_time_us: _Optional[int] = ...) -> None: ...

class RestoreBlocksRequest(_message.Message):
    __slots__ = ("shard_id", "lineage", "first_lsn", "blocks", "truncated_lsn")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_LSN_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lineage: bytes
    first_lsn: int
    blocks: _containers.RepeatedCompositeFieldContainer[RestoredBlock]
    truncated_lsn: int
    def __init__(self, shard_id: _Optional[int] = ..., lineage: _Optional[bytes] = ..., first_lsn: _Optional[int] = ..., blocks: _Optional[_Iterable[_Union[RestoredBlock, _Mapping]]] = ..., truncated_lsn: _Optional[int] = ...) -> None: ...

class RestoreBlocksResponse(_message.Message):
    __slots__ = ("position", "next_lsn", "truncated_lsn")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    NEXT_LSN_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_LSN_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    next_lsn: int
    truncated_lsn: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., next_lsn: _Optional[int] = ..., truncated_lsn: _Optional[int] = ...) -> None: ...

class FinishRestoreRequest(_message.Message):
    __slots__ = ("shard_id", "lineage", "end_lsn", "digest", "next_timestamp", "base_lsn", "digest_lsn")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NEXT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    BASE_LSN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_LSN_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    lineage: bytes
    end_lsn: int
    digest: bytes
    next_timestamp: int
    base_lsn: int
    digest_lsn: int
    def __init__(self, shard_id: _Optional[int] = ..., lineage: _Optional[bytes] = ..., end_lsn: _Optional[int] = ..., digest: _Optional[bytes] = ..., next_timestamp: _Optional[int] = ..., base_lsn: _Optional[int] = ..., digest_lsn: _Optional[int] = ...) -> None: ...

class FinishRestoreResponse(_message.Message):
    __slots__ = ("position", "open", "verified_lsn")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_LSN_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    open: bool
    verified_lsn: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., open: bool = ..., verified_lsn: _Optional[int] = ...) -> None: ...

class Restoring(_message.Message):
    __slots__ = ("base_lsn", "end_lsn", "next_lsn", "digest", "mirror")
    BASE_LSN_FIELD_NUMBER: _ClassVar[int]
    END_LSN_FIELD_NUMBER: _ClassVar[int]
    NEXT_LSN_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    base_lsn: int
    end_lsn: int
    next_lsn: int
    digest: bytes
    mirror: bool
    def __init__(self, base_lsn: _Optional[int] = ..., end_lsn: _Optional[int] = ..., next_lsn: _Optional[int] = ..., digest: _Optional[bytes] = ..., mirror: bool = ...) -> None: ...

class AllocateTimestampsRequest(_message.Message):
    __slots__ = ("shard_id", "count")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    shard_id: int
    count: int
    def __init__(self, shard_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class AllocateTimestampsResponse(_message.Message):
    __slots__ = ("position", "first")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    first: int
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., first: _Optional[int] = ...) -> None: ...
