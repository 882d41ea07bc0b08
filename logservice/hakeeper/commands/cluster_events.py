"""Cluster events: what happened in the cluster, for whoever watches it.

An event is a fact that HAKeeper took note of. Its `revision` is its number: the first one of the
cluster is 1, and none is left out. What an event says is a hint to look, and the state is the
truth: `shard`, `replica` and `store` name what it is about (0 and empty for none), `text` is for
people. These are not the events of a store's log file (`logservice.events`), which one process
writes about itself.

All of these exist from cluster version 2 on.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from logservice.ids import Lsn, ShardId


class EventKind(enum.StrEnum):
    """What happened."""

    STORE_JOINED = "store-joined"
    STORE_UP = "store-up"
    """It was silent for longer than the store timeout, and is heard from again."""
    STORE_DOWN = "store-down"
    STORE_RESTARTED = "store-restarted"
    STORE_FORGOTTEN = "store-forgotten"
    LEADER = "leader"
    """`replica` on `store` leads the shard."""
    MEMBERSHIP = "membership"
    REPLICA_HALTED = "replica-halted"
    REPLICA_RECOVERED = "replica-recovered"
    OPERATOR_BEGUN = "operator-begun"
    OPERATOR_ENDED = "operator-ended"
    TRUNCATED = "truncated"
    """Records of the log were truncated. `text` is the newest truncation LSN; several truncations
    of one log may be one event."""
    FLAG_RAISED = "flag-raised"
    FLAG_CLEARED = "flag-cleared"
    PHASE = "phase"
    VERSION = "version"
    SETTINGS = "settings"
    VERB = "verb"
    """A verb changed a wish."""
    LOG_CREATED = "log-created"
    LOG_CHANGED = "log-changed"
    LOG_DELETED = "log-deleted"
    SERVICE_JOINED = "service-joined"
    SERVICE_GONE = "service-gone"
    SERVICE_DRAINED = "service-drained"
    """It was told to drain, and says that it has nothing left."""
    TN_SHARD = "tn-shard"
    """A TN shard was made, given to a service, served, left or deleted. `shard` is its log,
    `replica` its newest number, `store` the service; `text` begins with its id."""


class ClusterEvent(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """One event. `kind` is a value of `EventKind`, or one that a later version has."""

    revision: int
    tick: int
    kind: str
    shard: ShardId = ShardId(0)
    replica: int = 0
    store: str = ""
    text: str = ""


class EventPage(Struct, array_like=True, frozen=True, gc=False):
    """Some events, in order; none when those behind the asked revision are not kept any more.
    `oldest`: the oldest revision that is kept. `last`: the newest one.
    """

    events: tuple[ClusterEvent, ...]
    oldest: int
    last: int


class Feed(Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """The newest events, and what of truncations was not told yet.

    last: the revision of the newest event. truncations: log -> newest truncation LSN, the log that
    waits longest first. The order is part of the state, and snapshots keep it.
    """

    last: int = 0
    ring: list[ClusterEvent] = []
    truncations: dict[ShardId, Lsn] = {}
