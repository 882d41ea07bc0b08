"""Replies: what the outcome of a heartbeat carries back, and its byte form.

The answer to a store's heartbeat holds its commands, the store directory (which store is where) and
shard 0's membership. Every store persists that membership, so that it finds HAKeeper again after
everything was down.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from logservice import bounds, versions
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.commands.quotas import IdentityQuota
from logservice.hakeeper.commands.store_commands import QueuedCommand
from logservice.hakeeper.commands.versioned import Versioned
from logservice.hakeeper.commands.wire_types import (
    LogIndex,
    LogLsn,
    MembershipBytes,
    Name,
    Natural,
    Owner,
    Positive,
    Replica,
    Shard,
    Store,
    StoreIncarnation,
    Text,
    Weight,
)
from logservice.ids import Lsn


class ReplyCorrupt(ValueError):
    """The bytes are not a reply of a version this code knows."""


class DirectoryEntry(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A store that belongs to the cluster: where it is, and which data directories are its own."""

    store: Store
    peer_address: Text
    client_address: Text
    incarnations: Annotated[
        tuple[StoreIncarnation, ...], Meta(max_length=bounds.DATA_DIRECTORIES_MAX)
    ] = ()


class Forgotten(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A replica of the receiver that once reported entries through that index as durable there."""

    shard: Shard
    replica: Replica
    through: LogIndex


class ShardLimits(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """The limits of one log, and what is kept of it; see `policy.Policy`."""

    shard: Shard
    max_bytes_per_s: Natural = 0
    max_records_per_s: Natural = 0
    weight: Weight = bounds.SHARD_WEIGHT_DEFAULT
    retention_age_s: Natural = 0
    retention_bytes: Natural = 0
    retention_records: Natural = 0


class HoldOrder(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """The receiver leads the shard, and sets or moves the hold of that name for the identity
    `owner`, or releases it when `lsn` is 0.
    """

    shard: Shard
    name: Name
    lsn: LogLsn = Lsn(0)
    owner: Owner = ""


class ReplayedHold(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a service has replayed of a log, and what that holds.

    `lsn`: as the service said it. `held_lsn`: records from there on stay; 0 when no leader has
    reported the hold. `first_lsn`: the oldest that is left, as far as reported. `gone`: there is no
    such log, so nothing is held. `behind_ticks`: for so long the log has had more, and `lsn` did
    not move. `hold`: its name.
    """

    shard: Shard
    lsn: LogLsn
    held_lsn: LogLsn = Lsn(0)
    first_lsn: LogLsn = Lsn(0)
    gone: bool = False
    behind_ticks: Natural = 0
    hold: Text = ""


class ServedTnShard(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """A TN shard that the receiver shall serve: of which log, and as which replica."""

    tn_shard: Positive
    shard: Shard
    replica: Positive


class HeartbeatReply(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """The answer to one heartbeat.

    `need_full`: the report was a difference to something unknown, so the store must send a full
    report next. `hakeeper`: shard 0's membership, empty before the first InitialCluster.
    """

    phase: Phase
    tick: Natural
    need_full: bool = False
    commands: tuple[QueuedCommand, ...] = ()
    directory: Annotated[
        tuple[DirectoryEntry, ...], Meta(max_length=bounds.HAKEEPER_STORES_MAX)
    ] = ()
    hakeeper: MembershipBytes = b""
    access_version: Natural = 0
    access: tuple[AccessGrant, ...] | None = None
    """The whole access list; None when the sender has it."""
    forgotten: tuple[Forgotten, ...] = ()
    cluster_version: Natural = versions.FIRST
    deleted: Annotated[
        tuple[Shard, ...], Meta(max_length=bounds.HAKEEPER_DELETED_PER_REPLY_MAX)
    ] = ()
    """Deleted logs that the receiver says it has a replica of."""
    index: Natural = 0
    """Of the entry that this answers; the three indices are 0 before cluster version 2."""
    directory_index: Natural = 0
    """The newest mark of the directory (`marks`)."""
    stores_index: Natural = 0
    """When `directory` last changed. It is empty here when the receiver named this index."""
    limits_version: Natural = 0
    limits: (
        Annotated[tuple[ShardLimits, ...], Meta(max_length=bounds.HAKEEPER_LIMITED_SHARDS_MAX)]
        | None
    ) = None
    """The limits of all logs that have any; None when the sender has them."""
    holds: Annotated[tuple[HoldOrder, ...], Meta(max_length=bounds.HAKEEPER_HOLD_ORDERS_MAX)] = ()
    """For a store: holds of services to set, move and release in the logs that it leads."""
    replayed: Annotated[
        tuple[ReplayedHold, ...], Meta(max_length=bounds.HAKEEPER_REPLAYED_PER_SERVICE_MAX)
    ] = ()
    """For a service: what became of each LSN that its heartbeat named."""
    work_state: Text = ""
    """For a service: what it shall do; empty before cluster version 2."""
    serve: Annotated[tuple[ServedTnShard, ...], Meta(max_length=bounds.HAKEEPER_TN_SHARDS_MAX)] = ()
    """For a service: all TN shards that the process shall serve."""
    catch_up_bytes_per_s: Natural = 0
    """For a store: what it may send to members that are far behind; 0: what it is configured to."""
    tail_read_bytes_per_s: Natural = 0
    """For a store: what it may read for clients whose entries are in memory, and the same of the
    disk; 0: what it is configured to."""
    catch_up_read_bytes_per_s: Natural = 0
    denials: tuple[AccessGrant, ...] = ()
    """The denials that belong to `access`; empty without it."""
    quotas_version: Natural = 0
    quotas: (
        Annotated[tuple[IdentityQuota, ...], Meta(max_length=bounds.QUOTA_IDENTITIES_MAX + 1)]
        | None
    ) = None
    """What identities may use of a store; None when the sender has it."""


_VERSIONS: Final = {1: b"\x04", 2: b"\x05"}
_form: Final[Versioned[HeartbeatReply]] = Versioned(HeartbeatReply, _VERSIONS, ReplyCorrupt)


def encode(reply: HeartbeatReply) -> bytes:
    """The byte form in the cluster version that the reply names."""
    return _form.encode(reply, reply.cluster_version)


def decode(data: bytes) -> HeartbeatReply:
    """Inverse of `encode`; raises ReplyCorrupt for anything else."""
    return _form.decode(data)[0]
