"""Queries: what can be looked up in shard 0, and how question and answer travel between stores.

Theory of operation. A query is a small tagged struct; its answer's type follows from it. The state
machine answers with views, never with its own state. An answer of None means "no such shard".
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from logservice.hakeeper.answers.views import AccessView, ClusterView, ShardView
from logservice.hakeeper.commands.wire_types import Shard

_VERSION = b"\x03"


class QueryCorrupt(ValueError):
    """The bytes are not a query, or not its answer, of a version this code knows."""


class GetCluster(Struct, tag="cluster", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Asks for everything; the answer is a `ClusterView`."""


class GetShard(Struct, tag="shard", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Asks for one shard; the answer is a `ShardView`, or None."""

    shard: Shard


class GetPhase(Struct, tag="phase", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Asks for the cluster's phase; the answer is a `str`."""


class GetAccess(Struct, tag="access", array_like=True, frozen=True, forbid_unknown_fields=True):
    """Asks for the access list; the answer is an `AccessView`."""


Query = GetAccess | GetCluster | GetShard | GetPhase
Answer = AccessView | ClusterView | ShardView | str | None

_encoder = msgspec.msgpack.Encoder()
_queries: msgspec.msgpack.Decoder[Query] = msgspec.msgpack.Decoder(Query)
_clusters = msgspec.msgpack.Decoder(ClusterView)
_shards: msgspec.msgpack.Decoder[ShardView | None] = msgspec.msgpack.Decoder(ShardView | None)
_access = msgspec.msgpack.Decoder(AccessView)
_phases = msgspec.msgpack.Decoder(str)


def encode_query(query: Query) -> bytes:
    """The byte form."""
    return _VERSION + _encoder.encode(query)


def decode_query(data: bytes) -> Query:
    """Inverse of `encode_query`; raises QueryCorrupt for anything else."""
    if data[:1] != _VERSION:
        raise QueryCorrupt(f"query version {data[:1].hex()}")
    try:
        return _queries.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, ValueError) as error:
        raise QueryCorrupt(str(error)) from error


def encode_answer(answer: Answer) -> bytes:
    """The byte form."""
    return _VERSION + _encoder.encode(answer)


def decode_answer(query: Query, data: bytes) -> Answer:
    """The answer to `query`; raises QueryCorrupt for anything else."""
    if data[:1] != _VERSION:
        raise QueryCorrupt(f"answer version {data[:1].hex()}")
    body = memoryview(data)[1:]
    try:
        if isinstance(query, GetCluster):
            return _clusters.decode(body)
        if isinstance(query, GetShard):
            return _shards.decode(body)
        if isinstance(query, GetAccess):
            return _access.decode(body)
        return _phases.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise QueryCorrupt(str(error)) from error
