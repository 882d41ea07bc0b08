"""Identifiers: distinct types for the numbers that are easily confused.

A shard, a replica, an index and an LSN are all integers; mixing two of them is the classic bug of
such systems, so each has a `NewType` and mypy keeps them apart at no run-time cost.
"""

from __future__ import annotations

from typing import Final, NewType

ShardId = NewType("ShardId", int)
"""One Raft group, one log. Shard 0 is HAKeeper."""

ReplicaId = NewType("ReplicaId", int)
"""A member of a shard on a store. Never reused, in any circumstance. 0 means "none"."""

StoreId = NewType("StoreId", str)
"""The persistent name of one server process, e.g. ``store-1``."""

ClusterId = NewType("ClusterId", str)
"""Names the cluster; stores of different clusters refuse each other."""

Incarnation = NewType("Incarnation", int)
"""Identity of one data directory: 63 random bits drawn when it was created empty."""

Term = NewType("Term", int)
Index = NewType("Index", int)
"""Position in a Raft log, from 1; every kind of entry counts."""

Lsn = NewType("Lsn", int)
"""1-based dense number of a record in its shard."""

Tick = NewType("Tick", int)
SegmentId = NewType("SegmentId", int)
SessionId = NewType("SessionId", int)
"""Index of the OpenSession entry. 0 means "no session"."""

NUMBER_MAX: Final = 2**62
"""Terms, indexes and LSNs that another store names stay below this number. A larger one is damaged
or forged, and a smaller one stays in 64 bits when something is added to it.
"""

HAKEEPER_SHARD: Final = ShardId(0)
HAKEEPER_NAME: Final = "hakeeper"
FIRST_LOG_SHARD: Final = ShardId(1)
NO_REPLICA: Final = ReplicaId(0)
NO_SESSION: Final = SessionId(0)
