"""Proposals: what can be proposed to shard 0, and its byte form.

Theory of operation. One version byte, then a MessagePack array whose first element is the tag. A
proposal has a form in each cluster version that has its kind (`versioned`). `decode` is the only
door into the state machine: it either gives a well-formed value or raises ProposalCorrupt, which
the machine answers with INVALID_ARGUMENT. Bounds sit on the field types (`wire_types`).

A heartbeat reports replicas as a difference to an earlier one (`base`), because a store with a
thousand idle replicas should cost one small entry a second and not a thousand reports.

Reference: the update types of MatrixOne's HAKeeper, without its panics.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

from msgspec import Meta, Struct

from logservice import bounds, versions
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.recovery import RecoverCluster
from logservice.hakeeper.commands.store_commands import AnyCommand, CommandResult
from logservice.hakeeper.commands.verbs import Verb
from logservice.hakeeper.commands.versioned import Versioned
from logservice.hakeeper.commands.wire_types import (
    AccessText,
    Detail,
    Labels,
    LogIndex,
    LogLsn,
    MaybeReplica,
    MembershipBytes,
    Name,
    Natural,
    Owner,
    Path,
    Positive,
    RaftTerm,
    Replica,
    RoleNames,
    Shard,
    Store,
    StoreIncarnation,
    Text,
)
from logservice.ids import NO_REPLICA, Index, Lsn

Wanted = Annotated[int, Meta(ge=0, le=bounds.HAKEEPER_REPLICAS_MAX)]


class ProposalCorrupt(ValueError):
    """The bytes are not a proposal of a version this code knows."""


class Tick(Struct, tag="tick", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """Time goes on by `count` ticks, one after the other, but only if `term` is the term of the
    entry that carries this. More than one needs cluster version 2.
    """

    term: RaftTerm
    count: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_TICKS_PER_ENTRY_MAX)] = 1


class ShardSpec(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A log shard to create at the first start."""

    name: Name
    replicas: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_REPLICAS_MAX)]


class Joining(enum.StrEnum):
    """How a store that HAKeeper never heard from becomes part of the cluster."""

    AUTOMATIC = "automatic"
    """It joins by its first heartbeat."""
    BY_VERB = "by-verb"
    """It joins by its first heartbeat after a person admitted it."""


class InitialCluster(
    Struct, tag="initial", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """The first configuration. It takes effect once; a repetition is answered with the present
    phase and changes nothing.

    `membership` is shard 0's own initial membership. `replicas` is the default for later
    CreateShard calls.
    """

    cluster_id: Name
    membership: MembershipBytes
    log_shards: Annotated[
        tuple[ShardSpec, ...], Meta(max_length=bounds.HAKEEPER_OPERATORS_MAX * 256)
    ]
    replicas: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_REPLICAS_MAX)]
    store_timeout_ticks: Positive
    joining: Joining = Joining.AUTOMATIC


class AdmitStore(
    Struct, tag="admit", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A person admits this store to the cluster. `hakeeper`: the store may also run shard 0."""

    store: Store
    hakeeper: bool = False


class SetJoining(
    Struct, tag="joining", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A person decides how stores join from now on."""

    joining: Joining


class DirectoryReport(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One data directory of a store.

    `used_bytes`: what log storage takes. `free_bytes`: what can still be written. `failed`: why the
    store does not use it any more, else empty. `path` is for people. `full`: whether its disk is
    above the high-water mark.
    """

    incarnation: StoreIncarnation
    used_bytes: Natural = 0
    free_bytes: Natural = 0
    failed: Detail = ""
    path: Path = ""
    full: bool = False


class ReplicaReport(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One running replica as its store sees it, and the data directory it is in. `epoch` is the
    membership's change epoch.

    Only a leader fills in `match`, the last durable index of each follower, and `recently_active`,
    the replicas heard from within an election timeout. `halted`: why it stopped serving, else
    empty. `repairing`: whether its store is restoring a halted replica from its peers.
    """

    shard: Shard
    replica: Replica
    incarnation: StoreIncarnation
    epoch: LogIndex
    membership: MembershipBytes
    leads: bool = False
    term: Natural = 0
    leader: MaybeReplica = NO_REPLICA
    first_index: LogIndex = Index(0)
    last_index: LogIndex = Index(0)
    committed_index: LogIndex = Index(0)
    applied_index: LogIndex = Index(0)
    first_lsn: LogLsn = Lsn(0)
    applied_lsn: LogLsn = Lsn(0)
    truncated_lsn: LogLsn = Lsn(0)
    match: tuple[tuple[Replica, LogIndex], ...] = ()
    recently_active: tuple[Replica, ...] = ()
    halted: Detail = ""
    repairing: bool = False
    closed_index: LogIndex = Index(0)
    """Of the log's Close; 0 while the log is open."""
    closed_lsn: LogLsn = Lsn(0)
    """The LSN behind the last record of a closed log."""
    holds: Natural = 0
    """How many holds the log has."""
    requested_lsn: LogLsn = Lsn(0)
    """How far truncation was asked for; above `truncated_lsn` while holds keep it back."""
    service_holds: Annotated[
        tuple[tuple[Text, LogLsn], ...], Meta(max_length=bounds.HOLDS_MAX)
    ] = ()
    """Of a leader: the holds for services (`service_hold`), each with its LSN."""


class StoreHeartbeat(
    Struct, tag="store", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """What a store is and runs. `sequence` grows by one per heartbeat of a process (`boot_id`).

    `base`: 0 for a full report. Else it is the sequence of an earlier heartbeat, and `replicas` and
    `gone` (shards that no longer run) are the difference to that one. `stored`: replicas that have
    data here and do not run, as (shard, replica); None when unchanged. `results` acknowledge
    commands. `unattributed_loss`: data directories that had lost something when this process opened
    them, without a sign of which replica it was.
    """

    store: Store
    host: Text
    peer_address: Text
    client_address: Text
    directories: Annotated[
        tuple[DirectoryReport, ...], Meta(min_length=1, max_length=bounds.DATA_DIRECTORIES_MAX)
    ]
    boot_id: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    sequence: Positive
    base: Natural = 0
    labels: Labels = {}
    replicas: tuple[ReplicaReport, ...] = ()
    gone: tuple[Shard, ...] = ()
    stored: tuple[tuple[Shard, Replica], ...] | None = None
    results: tuple[CommandResult, ...] = ()
    access_version: Natural = 0
    """The version of the access list that the store has."""
    unattributed_loss: Annotated[
        tuple[StoreIncarnation, ...], Meta(max_length=bounds.DATA_DIRECTORIES_MAX)
    ] = ()
    stuck: Annotated[
        tuple[tuple[Shard, Replica], ...], Meta(max_length=bounds.HEARTBEAT_STUCK_MAX)
    ] = ()
    """Replicas that have entries to apply and apply none; of many only the first."""
    stores_index: Natural = 0
    """Which list of stores the store has (`HeartbeatReply.stores_index`)."""
    limits_version: Natural = 0
    """The version of the logs' limits that the store has."""
    quotas_version: Natural = 0
    """The version of the identities' quotas that the store has."""


class ServiceHeartbeat(
    Struct, tag="service", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """One of the database's own services (TN, CN, proxy). `owner`: the identity it belongs to."""

    service: Name
    kind: Name
    address: Text
    labels: Labels = {}
    acked: tuple[Natural, ...] = ()
    owner: Owner = ""
    replayed: Annotated[
        tuple[tuple[Shard, LogLsn], ...], Meta(max_length=bounds.HAKEEPER_REPLAYED_PER_SERVICE_MAX)
    ] = ()
    """The last LSN that it has replayed of each log; see `stores.service_holds`."""
    boot_id: Natural = 0
    """Of the process; 0: it says none."""
    sequence: Natural = 0
    """It grows by one per heartbeat of a process."""
    drained: bool = False
    """It was told to drain, and has nothing left."""
    serving: Annotated[
        tuple[tuple[Positive, Positive], ...], Meta(max_length=bounds.HAKEEPER_TN_SHARDS_MAX)
    ] = ()
    """The TN shards that the process serves, each with its replica; see `stores.tn_shards`."""
    takes_tn_shards: bool = False
    """The process serves TN shards that it is given."""


class CreateShard(
    Struct, tag="create", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A new log shard. With `shard` 0 HAKeeper chooses the id, with an empty `name` it is called
    ``shard-<id>``, and with `replicas` 0 it gets the default number. When the same `owner` repeats
    a non-empty `request_id`, it gets the same log. `witnesses`: so many of the replicas store no
    records (`rsm.witness`).
    """

    shard: Shard
    name: Text
    replicas: Wanted
    request_id: Text = ""
    owner: Owner = ""
    policy: Policy = Policy()
    labels: Labels = {}
    witnesses: Wanted = 0


class ChangeShard(
    Struct, tag="change-shard", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Another name, number of replicas, policy or labels for a log; what is empty, 0 or None stays.
    `revision`: of the log as the caller saw it, None for whichever it is.
    """

    shard: Shard
    name: Text = ""
    replicas: Wanted = 0
    policy: Policy | None = None
    labels: Labels | None = None
    revision: Natural | None = None


class DeleteShard(
    Struct, tag="delete-shard", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """The log of that id and name ends for ever. `closed_index`: of its Close, which the caller has
    seen. `force`: also when it is open or has holds.
    """

    shard: Shard
    name: Name
    closed_index: LogIndex = Index(0)
    force: bool = False


class SetPhase(
    Struct, tag="phase", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A person sets the cluster's phase; only the transitions in `phase.BY_PERSON` take effect."""

    phase: Phase


class RaiseVersion(
    Struct, tag="raise-version", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A person raises the cluster version; see `stores.cluster_version`."""

    version: Positive


class Order(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A command and the store or service it is for."""

    target: Name
    command: AnyCommand


class ScheduleCommands(
    Struct, tag="schedule", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Queue commands that a person or the database asks for.

    It is fenced: `term` must be the entry's. Only what cannot lower a shard's fault tolerance is
    accepted: orders for services, and leadership transfers. Only the checkers change a membership
    (G8).
    """

    term: RaftTerm
    orders: Annotated[tuple[Order, ...], Meta(min_length=1, max_length=bounds.HAKEEPER_QUEUE_MAX)]


class SendOrder(
    Struct, tag="order", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Queue a command for one of the database's own services; `kind` and `payload` are its own.

    When the same `owner` repeats a `request_id`, it is the same command. It exists from cluster
    version 2 on.
    """

    service: Name
    kind: Name
    payload: Annotated[bytes, Meta(max_length=bounds.HAKEEPER_ORDER_BYTES_MAX)]
    request_id: Name
    owner: Owner = ""


class AllocateIds(
    Struct, tag="ids", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """A range of unique ids of `key`. When the same `owner` repeats a non-empty `request_id`, it
    gets the same range.
    """

    key: Text
    count: Annotated[int, Meta(ge=1, le=bounds.ALLOCATE_IDS_MAX)]
    request_id: Text = ""
    owner: Owner = ""


class AccessGrant(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """`access.Grant`, as it is stored and sent."""

    identity: AccessText
    scope: AccessText
    roles: RoleNames


class ChangeAccess(
    Struct, tag="access", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Give `identity` the roles in `grant` over `scope`, and take the roles in `revoke` from it.
    Or, from cluster version 2 on, deny it the roles in `deny` there, and those in `undeny` no more.
    """

    identity: AccessText
    scope: AccessText
    grant: RoleNames = ()
    revoke: RoleNames = ()
    deny: RoleNames = ()
    undeny: RoleNames = ()


class AckCommands(
    Struct, tag="ack", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Acknowledge commands outside of a heartbeat. `target` is a store or a service."""

    target: Name
    results: tuple[CommandResult, ...]


Proposal = (
    Tick
    | InitialCluster
    | StoreHeartbeat
    | ServiceHeartbeat
    | CreateShard
    | ChangeShard
    | DeleteShard
    | SetPhase
    | ScheduleCommands
    | AllocateIds
    | AckCommands
    | ChangeAccess
    | AdmitStore
    | SendOrder
    | SetJoining
    | RaiseVersion
    | RecoverCluster
    | Verb
)

_VERSIONS: Final = {1: b"\x04", 2: b"\x05"}
_RAISES: Final = 2
"""The first cluster version that has RaiseVersion. It keeps that form for ever."""

_form: Final[Versioned[Proposal]] = Versioned(
    Proposal, _VERSIONS, ProposalCorrupt, order="deterministic", whole=True
)


def encode(proposal: Proposal, version: int = versions.FIRST) -> bytes:
    """The byte form in that cluster version; equal proposals give equal bytes.

    Raises NotReady{cluster_version, needed} for a proposal that the version has not.
    """
    if isinstance(proposal, RaiseVersion):
        # It is what makes its version the cluster's, so it comes before.
        version = max(version, _RAISES)
    return _form.encode(proposal, version)


def decode(data: bytes) -> Proposal:
    """Inverse of `encode`; raises ProposalCorrupt for anything else."""
    return decode_versioned(data)[0]


def decode_versioned(data: bytes) -> tuple[Proposal, int]:
    """The proposal, and the cluster version of its form. Raises ProposalCorrupt."""
    if len(data) > bounds.COMMAND_BYTES_MAX:
        raise ProposalCorrupt(f"{len(data)} bytes")
    return _form.decode(data)
