"""status: what one store tells about itself, as frozen data.

Theory of operation. A `StoreStatus` is made on the event loop in one go (`reporter`) and is
immutable afterwards, so any thread may read it. The same value is what the admin port shows as
JSON, what the metrics are made of, and what other stores get when they ask for it, so that any
store can show the whole cluster. It travels as MessagePack maps. Every field has a default and
unknown fields are ignored, because during a rolling upgrade stores of two versions ask each other.
"""

from __future__ import annotations

import asyncio

from logservice_wire.errors import NotReady
from msgspec import Struct, ValidationError, json, msgpack

from logservice.bounds import REPORT_ROWS_PER_SLICE


class Reason(Struct, frozen=True, kw_only=True):
    """A reason not to be ready. code: one of `readiness.Code`; shard: -1 for the whole store."""

    code: str = ""
    detail: str = ""
    shard: int = -1


class EventLine(Struct, frozen=True, kw_only=True):
    """One event of the log (`logservice.events`). `number` grows by one per event."""

    number: int = 0
    time_us: int = 0
    level: str = ""
    event: str = ""
    message: str = ""


class FollowerStatus(Struct, frozen=True, kw_only=True):
    """What the leader knows of one other member. `lag_entries`: how many entries are not yet
    durable there; lag_bytes: about how many bytes they take on the leader's disk; to_go_s: how long
    that will take as it goes now, -1 when that is not known (`own.catching_up`).
    """

    replica: int = 0
    store: str = ""
    lag_entries: int = 0
    active: bool = False
    lag_bytes: int = 0
    to_go_s: float = -1.0


class ReplicaStatus(Struct, frozen=True, kw_only=True):
    """One replica on this store.

    incarnation: that of the data directory it is in. role: that of the Raft core, or ``halted``.
    leader: the leader's replica id, 0 when none is known. hold_lsn: the lowest held LSN, 0 without
    holds. hold_age_s: of the holds that keep back a truncation, for how long one was neither set
    nor renewed, as far as this store knows. stalled: why truncation makes no progress, empty while
    it does. stuck: it has entries to apply and applies none. appends_delayed: those that waited, or
    were refused, for the limits of the log. The LSN fields are 0 for shard 0.
    """

    shard: int = 0
    replica: int = 0
    incarnation: int = 0
    role: str = ""
    term: int = 0
    leader: int = 0
    leader_store: str = ""
    membership_epoch: int = 0
    voters: int = 0
    learners: int = 0
    first_index: int = 0
    last_index: int = 0
    committed_index: int = 0
    applied_index: int = 0
    first_lsn: int = 0
    applied_lsn: int = 0
    truncated_lsn: int = 0
    requested_truncation_lsn: int = 0
    writer_holder: str = ""
    writer_epoch: int = 0
    holds: int = 0
    hold_lsn: int = 0
    hold_name: str = ""
    hold_age_s: float = 0.0
    sessions: int = 0
    exports: int = 0
    followers: tuple[FollowerStatus, ...] = ()
    halted: str = ""
    stalled: str = ""
    stalled_bytes: int = 0
    stuck: bool = False
    max_bytes_per_s: int = 0
    max_records_per_s: int = 0
    appends_delayed: int = 0


class Buckets(Struct, frozen=True, kw_only=True):
    """A histogram. `counts`: one per bucket; the last bucket is above all `bounds`. `total`: the
    sum of all figures.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    total: float = 0.0


class OldestPinStatus(Struct, frozen=True, kw_only=True):
    """A replica with live bytes in the oldest segment of a data directory."""

    shard: int
    replica: int
    live_bytes: int


class DirectoryStatus(Struct, frozen=True, kw_only=True):
    """One data directory. failed: why it is not used any more. logdb: `LogDbStats` by field.
    oldest_reason: why its oldest segment is still there. oldest_pins: the replicas that most of
    that segment belongs to. key_bytes: bytes of segments by the key that they are encrypted with,
    or "plain". durable_write_seconds, group_bytes: histograms. scrub: `ScrubPass` by
    field.
    """

    path: str = ""
    incarnation: int = 0
    failed: str = ""
    logdb: dict[str, float] = {}
    oldest_reason: str = ""
    oldest_pins: tuple[OldestPinStatus, ...] = ()
    key_bytes: dict[str, int] = {}
    durable_write_seconds: Buckets = Buckets()
    group_bytes: Buckets = Buckets()
    scrub: dict[str, float] = {}


class StoreStatus(Struct, frozen=True, kw_only=True):
    """One store at one moment.

    phase: starting, serving or stopping. reasons: why it is not ready; empty means ready. alarms:
    what a person must look at although it is ready. certificates: by plane, when the certificate
    expires, in seconds since 1970. tokens: see `Tokens.figures`; empty where none are taken.
    heartbeat_age_s: seconds since HAKeeper last answered, -1 before
    its first answer. logdb: the figures of all data directories, see `reporter.merged`. transport:
    `TransportStats` by field. integrity: what scrub, comparison and repair have done, see
    `StoreParts.integrity_counts`. messages_refused: how many Raft messages of peers were not heard,
    by `hearing.refusals.Refusal`. requests_refused: how many requests of peers a rule refused, by
    method and rule (``hakeeper.propose/enrolled``). compare_shards, compare_shards_done: the shards
    of the comparison that is under way, and those it has done; 0 while none is. loop_turn_seconds:
    see `loop_turns`; longest_loop_turn_us: the longest since the start; loop_stalls: how many were
    longer than a tick. appends_delayed: by the limits of their logs. records_retired: gone by
    the retention of logs, by this store's word. catch_up: see
    `nodehost.replica.catch_up`, by field of `CatchUpBudget`. reads: see `ReadLimits.figures`.
    call_lines: see `CallLines.figures`. append_seconds, append_stage_seconds: see `AppendStages`;
    read_seconds: by class, see `ReadLimit.took`; rpc_seconds, rpcs: see `CallBook`. memory: see
    `server.memory_figures`. client_connections: see `ConnectionCounts`.
    configured: what this store's configuration says about the cluster, which counts at the first
    start only. clock_ahead_us: of what most stores' clocks agree on, 0 when that is not known;
    clock_far: so much that the store gives its leaderships away (`nodehost.clocks.clock_watch`).
    directory_index, directory_age_s: how new this store's copy of the directory of logs is; -1
    before cluster version 2, when there is none. visit_age_s: since the newest visit of the
    truncation worker ended, see `server.schedule`. config_digest, config_since_us, config_waiting:
    the configuration in effect, see `reload.reloads.InEffect`.
    """

    store: str = ""
    cluster: str = ""
    version: str = ""
    phase: str = "starting"
    wall_time_us: int = 0
    uptime_s: float = 0.0
    client_address: str = ""
    peer_address: str = ""
    admin_address: str = ""
    reasons: tuple[Reason, ...] = ()
    heartbeat_age_s: float = -1.0
    configured: dict[str, str] = {}
    alarms: tuple[str, ...] = ()
    certificates: dict[str, float] = {}
    tokens: dict[str, float] = {}
    directories: tuple[DirectoryStatus, ...] = ()
    logdb: dict[str, float] = {}
    transport: dict[str, float] = {}
    truncation: dict[str, int] = {}
    integrity: dict[str, int] = {}
    messages_refused: dict[str, int] = {}
    requests_refused: dict[str, int] = {}
    compare_shards: int = 0
    compare_shards_done: int = 0
    rpc_errors: dict[str, int] = {}
    replicas: tuple[ReplicaStatus, ...] = ()
    events: tuple[EventLine, ...] = ()
    loop_turn_seconds: Buckets = Buckets()
    longest_loop_turn_us: int = 0
    loop_stalls: int = 0
    appends_delayed: int = 0
    records_retired: int = 0
    catch_up: dict[str, int] = {}
    reads: dict[str, int] = {}
    call_lines: dict[str, float] = {}
    directory_index: int = 0
    directory_age_s: float = -1.0
    clock_ahead_us: int = 0
    clock_far: bool = False
    config_digest: str = ""
    config_since_us: int = 0
    config_waiting: tuple[str, ...] = ()
    memory: dict[str, int] = {}
    append_seconds: Buckets = Buckets()
    append_stage_seconds: dict[str, Buckets] = {}
    read_seconds: dict[str, Buckets] = {}
    rpc_seconds: dict[str, Buckets] = {}
    rpcs: dict[str, int] = {}
    client_connections: dict[str, int] = {}
    visit_age_s: float = 0.0


_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(StoreStatus)
_json = json.Encoder()


def encode(status: StoreStatus) -> bytes:
    """The form that travels between stores."""
    return _encoder.encode(status)


def decode(data: bytes) -> StoreStatus:
    """Inverse of `encode`. Raises NotReady for any other bytes: that store cannot say how it is."""
    try:
        return _decoder.decode(data)
    except (ValidationError, ValueError) as error:
        raise NotReady(f"the store answers in another language: {error}") from error


def to_json(value: object) -> bytes:
    """Any of these values, or a container of them, as JSON."""
    return _json.encode(value)


async def to_json_in_slices(value: Struct) -> bytes:
    """The same bytes as `to_json`; other work runs after each REPORT_ROWS_PER_SLICE rows."""
    parts: list[bytes] = []
    for name in value.__struct_fields__:
        field = getattr(value, name)
        parts += (b"," if parts else b"{", _json.encode(name), b":")
        if not isinstance(field, tuple):
            parts.append(_json.encode(field))
            continue
        parts.append(b"[")
        for first in range(0, len(field), REPORT_ROWS_PER_SLICE):
            rows = _json.encode(field[first : first + REPORT_ROWS_PER_SLICE])
            parts += (b"," if first else b"", rows[1:-1])
            await asyncio.sleep(0)
        parts.append(b"]")
    parts.append(b"}")
    return b"".join(parts)
