"""Queries: what can be looked up in shard 0, and how question and answer travel between stores.

Theory of operation. A query is a small tagged struct; its answer's type follows from it. The state
machine answers with views, never with its own state. An answer of None means "no such shard". A
store asks ResolveShard, ListShards, GetEvents and GetDirectory only once it knows that the cluster
is at version 2: a store of 0.1.0 does not know them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from logservice import bounds
from logservice.hakeeper.answers.directory import DirectoryPage
from logservice.hakeeper.answers.views import AccessView, ClusterView, ShardPage, ShardView
from logservice.hakeeper.commands.cluster_events import EventPage
from logservice.hakeeper.commands.given_out import GivenOut
from logservice.hakeeper.commands.wire_types import Labels, Name, Natural, Shard, Store, Text
from logservice.hakeeper.repair.rehearsal import BalancePlan
from logservice.hakeeper.wishes.impact import Impact
from logservice.ids import HAKEEPER_SHARD

_VERSION = b"\x03"


class QueryCorrupt(ValueError):
    """The bytes are not a query, or not its answer, of a version this code knows."""


class GetCluster(
    Struct, tag="cluster", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for everything; the answer is a `ClusterView`."""


class GetSummary(
    Struct, tag="summary", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for everything but the logs, which `ListShards` has in pages; the answer is a
    `ClusterView` with shard 0 alone. It exists from cluster version 2 on.
    """


class GetShard(
    Struct, tag="shard", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for one shard; the answer is a `ShardView`, or None."""

    shard: Shard


class ResolveShard(
    Struct, tag="resolve", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for the living log of that name; the answer is a `ShardView`, or None."""

    name: Name


class ListShards(
    Struct, tag="list", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for logs in the order of their ids, those behind `after`; the answer is a `ShardPage`.

    Only logs in one of `states` (all, when empty), with all of `labels` (an empty value stands for
    any), and with a name that begins with `prefix`.
    """

    after: Shard = HAKEEPER_SHARD
    limit: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_SHARDS_PER_PAGE_MAX)] = (
        bounds.HAKEEPER_SHARDS_PER_PAGE_MAX
    )
    states: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    labels: Labels = {}
    prefix: Text = ""


class GetDirectory(
    Struct, tag="directory", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for the rows of the directory behind mark `since` and log `after`; the answer is a
    `DirectoryPage`. It exists from cluster version 2 on.
    """

    since: Natural
    after: Shard
    limit: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_SHARDS_PER_PAGE_MAX)] = (
        bounds.HAKEEPER_SHARDS_PER_PAGE_MAX
    )


class GetPhase(
    Struct, tag="phase", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for the cluster's phase; the answer is a `str`."""


class GetAccess(
    Struct, tag="access", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for the access list; the answer is an `AccessView`."""


class CheckImpact(
    Struct, tag="impact", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks what it would cost if these stores were away; the answer is an `Impact`. It exists from
    cluster version 2 on.
    """

    stores: Annotated[tuple[Store, ...], Meta(max_length=bounds.HAKEEPER_STORES_MAX)]


class GetGivenOut(
    Struct, tag="given-out", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks what was given out so far; the answer is a `GivenOut`. It exists from cluster version 2
    on.
    """


class PlanBalance(
    Struct, tag="plan-balance", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks what balancing replicas, leaders or both would move; the answer is a `BalancePlan`. It
    exists from cluster version 2 on.
    """

    replicas: bool
    leaders: bool


class GetEvents(
    Struct, tag="events", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks for the events behind revision `after`; the answer is an `EventPage`."""

    after: Natural
    limit: Annotated[int, Meta(ge=1, le=bounds.HAKEEPER_EVENTS_PER_PAGE_MAX)] = (
        bounds.HAKEEPER_EVENTS_PER_PAGE_MAX
    )


class IsQuiet(
    Struct, tag="quiet", array_like=True, frozen=True, forbid_unknown_fields=True, gc=False
):
    """Asks whether nothing waits for the next tick (`check.quiet`). Whoever leads shard 0 asks its
    own replica; no other store is asked.
    """


Query = (
    GetAccess
    | GetCluster
    | GetSummary
    | GetShard
    | GetPhase
    | ResolveShard
    | ListShards
    | CheckImpact
    | PlanBalance
    | GetEvents
    | GetDirectory
    | GetGivenOut
)
Answer = (
    AccessView
    | BalancePlan
    | ClusterView
    | DirectoryPage
    | EventPage
    | GivenOut
    | Impact
    | ShardView
    | ShardPage
    | str
    | None
)

_encoder = msgspec.msgpack.Encoder()
_queries: msgspec.msgpack.Decoder[Query] = msgspec.msgpack.Decoder(Query)
_clusters = msgspec.msgpack.Decoder(ClusterView)
_shards: msgspec.msgpack.Decoder[ShardView | None] = msgspec.msgpack.Decoder(ShardView | None)
_pages = msgspec.msgpack.Decoder(ShardPage)
_directories = msgspec.msgpack.Decoder(DirectoryPage)
_given = msgspec.msgpack.Decoder(GivenOut)
_events = msgspec.msgpack.Decoder(EventPage)
_access = msgspec.msgpack.Decoder(AccessView)
_plans = msgspec.msgpack.Decoder(BalancePlan)
_impacts = msgspec.msgpack.Decoder(Impact)
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
        if isinstance(query, GetCluster | GetSummary):
            return _clusters.decode(body)
        if isinstance(query, GetShard | ResolveShard):
            return _shards.decode(body)
        if isinstance(query, ListShards):
            return _pages.decode(body)
        if isinstance(query, GetDirectory):
            return _directories.decode(body)
        if isinstance(query, GetGivenOut):
            return _given.decode(body)
        if isinstance(query, GetEvents):
            return _events.decode(body)
        if isinstance(query, GetAccess):
            return _access.decode(body)
        if isinstance(query, PlanBalance):
            return _plans.decode(body)
        if isinstance(query, CheckImpact):
            return _impacts.decode(body)
        return _phases.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise QueryCorrupt(str(error)) from error
