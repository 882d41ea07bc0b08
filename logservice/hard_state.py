"""HardState: what a replica must have on disk before it may speak (Raft paper, figure 2)."""

from __future__ import annotations

from logservice_wire.value import value

from logservice.ids import NO_REPLICA, Index, ReplicaId, Term


@value
class HardState:
    """Term and vote must be durable before any message of that term leaves.

    `commit` travels in the same commit group as entries but forces no fsync of its own.
    """

    term: Term = Term(0)
    vote: ReplicaId = NO_REPLICA
    commit: Index = Index(0)
