"""Limits: what logs may take of their stores, what is kept of them, and how the stores know.

Theory of operation. The limits and the retention of a log are part of its policy. The stores need
those of all logs that have any, because any store may come to lead. They are few, so an answer to a
heartbeat carries all of them, and only when the heartbeat names another version of them than this
one. A log that is deleted takes its limits with it: nobody asks for them any more.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.policy import UNLIMITED, Policy
from logservice.hakeeper.commands.replies import ShardLimits
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.holdings import holdings
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.outcome import Rejected


def refusal(state: State, shard: ShardId, policy: Policy) -> Rejected | None:
    """Why a log cannot have that policy's limits; None when it can."""
    if policy.limits == UNLIMITED:
        return None
    if shard == HAKEEPER_SHARD:
        return Rejected(
            Reason.INVALID_ARGUMENT, {"field": "shard_id", "why": "shard 0 has no limits"}
        )
    for field, wanted, least in (
        ("max_bytes_per_s", policy.max_bytes_per_s, bounds.SHARD_BYTES_PER_S_MIN),
        ("retention_age_s", policy.retention_age_s, bounds.RETENTION_AGE_S_MIN),
        ("retention_bytes", policy.retention_bytes, bounds.RETENTION_BYTES_MIN),
        ("retention_records", policy.retention_records, bounds.RETENTION_RECORDS_MIN),
    ):
        if 0 < wanted < least:
            why = f"at least {least}, or 0 for no limit"
            return Rejected(Reason.INVALID_ARGUMENT, {"field": field, "why": why})
    if policy.retention_age_s > bounds.RETENTION_AGE_S_MAX:
        why = f"at most {bounds.RETENTION_AGE_S_MAX}, or 0 for no limit"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "retention_age_s", "why": why})
    limited = holdings(state).limited
    if shard not in limited and len(limited) >= bounds.HAKEEPER_LIMITED_SHARDS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_LIMITED_SHARDS_MAX)})
    return None


def changed(state: State, before: Policy, shard: ShardState) -> None:
    """The log's policy was another one before; tell the stores if that matters to them."""
    if before.limits != shard.policy.limits:
        state.limits_version += 1


def news(state: State, known_version: int) -> tuple[ShardLimits, ...] | None:
    """All limits, for a store that knows another version of them; None for one that is current."""
    if known_version == state.limits_version:
        return None
    return tuple(
        ShardLimits(shard, *state.shards[shard].policy.limits)
        for shard in sorted(holdings(state).limited)
    )
