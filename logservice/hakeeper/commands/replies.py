"""Replies: what the outcome of a heartbeat carries back, and its byte form.

The answer to a store's heartbeat holds its commands, the store directory (which store is where) and
shard 0's membership. Every store persists that membership, so that it finds HAKeeper again after
everything was down.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.commands.store_commands import QueuedCommand
from logservice.hakeeper.commands.wire_types import (
    LogIndex,
    MembershipBytes,
    Natural,
    Replica,
    Shard,
    Store,
    StoreIncarnation,
    Text,
)

_VERSION = b"\x04"


class ReplyCorrupt(ValueError):
    """The bytes are not a reply of a version this code knows."""


class DirectoryEntry(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A store that belongs to the cluster: where it is, and which data directories are its own."""

    store: Store
    peer_address: Text
    client_address: Text
    incarnations: Annotated[
        tuple[StoreIncarnation, ...], Meta(max_length=bounds.DATA_DIRECTORIES_MAX)
    ] = ()


class Forgotten(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A replica of the receiver that once reported entries through that index as durable there."""

    shard: Shard
    replica: Replica
    through: LogIndex


class HeartbeatReply(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
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


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(HeartbeatReply)


def encode(reply: HeartbeatReply) -> bytes:
    """The byte form."""
    return _VERSION + _encoder.encode(reply)


def decode(data: bytes) -> HeartbeatReply:
    """Inverse of `encode`; raises ReplyCorrupt for anything else."""
    if data[:1] != _VERSION:
        raise ReplyCorrupt(f"reply version {data[:1].hex()}")
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise ReplyCorrupt(str(error)) from error
