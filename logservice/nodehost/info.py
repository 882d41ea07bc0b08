"""What a NodeHost tells about a replica: for heartbeats, status calls and operators."""

from __future__ import annotations

from logservice_wire.value import value

from logservice.ids import Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.membership import Membership
from logservice.raft.ready import Role


@value
class HaltedReplica:
    """A replica that does not run because its data, or its disk, cannot be trusted, and why."""

    replica: ReplicaId
    incarnation: Incarnation
    reason: str


@value
class ReplicaInfo:
    """A consistent picture of one local replica at one moment.

    `match` is empty but on the leader, where it has the last index known to be durable on each
    follower. The `lsn` fields are 0 for shard 0. `recently_active` has, on the leader, the
    followers that it heard from within two election timeouts. `quiesced` says that the shard is
    idle and nobody counts ticks (see `raft.quiesce`). `closed_index`: of the Close of the log, 0
    while it is open; `closed_lsn`: the LSN behind its last record then. `holds`: how many it has.
    `stuck`: it has entries to apply and applies none (`replica.applying`). `max_bytes_per_s`,
    `max_records_per_s`: the limits of the log, 0 for none; `appends_delayed`: the appends that
    waited, or were refused, for them (`replica.pace`). `requested_lsn`: how far truncation was
    asked for. `service_holds`: on the leader, the holds for services (`service_hold`) with LSNs.
    `witness`: it holds no records (`rsm.witness`), and the `lsn` fields are 0.
    """

    shard: ShardId
    replica: ReplicaId
    store_id: StoreId
    incarnation: Incarnation
    membership: Membership
    role: Role
    term: Term
    leader: ReplicaId
    first_index: Index
    last_index: Index
    committed_index: Index
    applied_index: Index
    first_lsn: Lsn
    applied_lsn: Lsn
    truncated_lsn: Lsn
    match: tuple[tuple[ReplicaId, Index], ...]
    recently_active: tuple[ReplicaId, ...]
    halted: str
    quiesced: bool = False
    closed_index: Index = Index(0)
    closed_lsn: Lsn = Lsn(0)
    holds: int = 0
    stuck: bool = False
    max_bytes_per_s: int = 0
    max_records_per_s: int = 0
    appends_delayed: int = 0
    requested_lsn: Lsn = Lsn(0)
    service_holds: tuple[tuple[str, Lsn], ...] = ()
    witness: bool = False
