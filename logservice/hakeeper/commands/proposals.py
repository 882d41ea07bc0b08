"""Proposals: what can be proposed to shard 0, and its byte form.

Theory of operation. One version byte, then a MessagePack array whose first element is the tag.
`decode` is the only door into the state machine: it either gives a well-formed value or raises
ProposalCorrupt, which the machine answers with INVALID_ARGUMENT. Bounds sit on the field types
(`wire_types`).

A heartbeat reports replicas as a difference to an earlier one (`base`), because a store with a
thousand idle replicas should cost one small entry a second and not a thousand reports.

Reference: the update types of MatrixOne's HAKeeper, without its panics.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.store_commands import AnyCommand, CommandResult
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

_VERSION = b"\x04"

Wanted = Annotated[int, Meta(ge=0, le=bounds.HAKEEPER_REPLICAS_MAX)]


class ProposalCorrupt(ValueError):
    """The bytes are not a proposal of a version this code knows."""


class Tick(Struct, tag="tick", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Time goes on by one tick, but only if `term` is the term of the entry that carries this."""

    term: RaftTerm


class ShardSpec(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
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
    Struct, tag="initial", array_like=True, frozen=True, forbid_unknown_fields=True
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


class AdmitStore(Struct, tag="admit", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A person admits this store to the cluster. `hakeeper`: the store may also run shard 0."""

    store: Store
    hakeeper: bool = False


class SetJoining(Struct, tag="joining", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A person decides how stores join from now on."""

    joining: Joining


class DirectoryReport(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
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


class ReplicaReport(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
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


class StoreHeartbeat(Struct, tag="store", array_like=True, frozen=True, forbid_unknown_fields=True):
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


class ServiceHeartbeat(
    Struct, tag="service", array_like=True, frozen=True, forbid_unknown_fields=True
):
    """One of the database's own services (TN, CN, proxy). `owner`: the identity it belongs to."""

    service: Name
    kind: Name
    address: Text
    labels: Labels = {}
    acked: tuple[Natural, ...] = ()
    owner: Owner = ""


class CreateShard(Struct, tag="create", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A new log shard. With `shard` 0 HAKeeper chooses the id, with an empty `name` it is called
    ``shard-<id>``, and with `replicas` 0 it gets the default number.
    """

    shard: Shard
    name: Text
    replicas: Wanted


class SetPhase(Struct, tag="phase", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A person sets the cluster's phase; only the transitions in `phase.BY_PERSON` take effect."""

    phase: Phase


class Order(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A command and the store or service it is for."""

    target: Name
    command: AnyCommand


class ScheduleCommands(
    Struct, tag="schedule", array_like=True, frozen=True, forbid_unknown_fields=True
):
    """Queue commands that a person or the database asks for.

    It is fenced: `term` must be the entry's. Only what cannot lower a shard's fault tolerance is
    accepted: orders for services, and leadership transfers. Only the checkers change a membership
    (G8).
    """

    term: RaftTerm
    orders: Annotated[tuple[Order, ...], Meta(min_length=1, max_length=bounds.HAKEEPER_QUEUE_MAX)]


class AllocateIds(Struct, tag="ids", array_like=True, frozen=True, forbid_unknown_fields=True):
    """A range of unique ids of `key`. When the same `owner` repeats a non-empty `request_id`, it
    gets the same range.
    """

    key: Text
    count: Annotated[int, Meta(ge=1, le=bounds.ALLOCATE_IDS_MAX)]
    request_id: Text = ""
    owner: Owner = ""


class AccessGrant(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """`access.Grant`, as it is stored and sent."""

    identity: AccessText
    scope: AccessText
    roles: RoleNames


class ChangeAccess(Struct, tag="access", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Give `identity` the roles in `grant` over `scope`, and take the roles in `revoke` from it."""

    identity: AccessText
    scope: AccessText
    grant: RoleNames = ()
    revoke: RoleNames = ()


class AckCommands(Struct, tag="ack", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Acknowledge commands outside of a heartbeat. `target` is a store or a service."""

    target: Name
    results: tuple[CommandResult, ...]


Proposal = (
    Tick
    | InitialCluster
    | StoreHeartbeat
    | ServiceHeartbeat
    | CreateShard
    | SetPhase
    | ScheduleCommands
    | AllocateIds
    | AckCommands
    | ChangeAccess
    | AdmitStore
    | SetJoining
)

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder: msgspec.msgpack.Decoder[Proposal] = msgspec.msgpack.Decoder(Proposal)


def encode(proposal: Proposal) -> bytes:
    """The byte form; equal proposals give equal bytes."""
    return _VERSION + _encoder.encode(proposal)


def decode(data: bytes) -> Proposal:
    """Inverse of `encode`; raises ProposalCorrupt for anything else."""
    if len(data) > bounds.COMMAND_BYTES_MAX:
        raise ProposalCorrupt(f"{len(data)} bytes")
    if data[:1] != _VERSION:
        raise ProposalCorrupt(f"proposal version {data[:1].hex()}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise ProposalCorrupt(str(error)) from error
