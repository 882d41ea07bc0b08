"""Creations: a request that made a log makes no second one.

Theory of operation. Whoever asks for a log and does not learn the outcome asks again, under the
same request id. The newest HAKEEPER_CREATIONS_REMEMBERED requests are remembered with what they
asked for and the log they made. A repetition is answered with that log, also when it has another
name by now. A repetition that comes after the log was deleted makes no new one.
"""

from __future__ import annotations

import hashlib

import msgspec
from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.proposals import CreateShard
from logservice.hakeeper.state import Creation, State
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import ShardId
from logservice.outcome import Applied, Outcome, Rejected

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_WISH_BYTES = 16


def repeated(state: State, proposal: CreateShard) -> Outcome | None:
    """The answer to a request that was carried out before; None for a new one.

    Rejected: SHARD_DELETED{shard}; INVALID_ARGUMENT{field} when it asks for something else now.
    """
    known = state.creations.get(_key(proposal)) if proposal.request_id else None
    if known is None:
        return None
    if known.wish != _wish(proposal):
        why = "an earlier request of this id asked for something else"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "request_id", "why": why})
    if is_deleted(state, known.shard):
        return Rejected(Reason.SHARD_DELETED, {"shard": str(known.shard)})
    return Applied(value=known.shard, duplicate=True)


def remember(state: State, proposal: CreateShard, shard: ShardId) -> None:
    """The request made that log."""
    if not proposal.request_id:
        return
    state.creations[_key(proposal)] = Creation(state.index, shard, _wish(proposal))
    if len(state.creations) > bounds.HAKEEPER_CREATIONS_REMEMBERED:
        oldest = min(state.creations, key=lambda key: (state.creations[key].index, key))
        del state.creations[oldest]


def _key(proposal: CreateShard) -> str:
    return f"{proposal.owner}\0{proposal.request_id}"


def _wish(proposal: CreateShard) -> bytes:
    wish = (
        proposal.shard,
        proposal.name,
        proposal.replicas,
        proposal.policy,
        proposal.labels,
        proposal.witnesses,
    )
    return hashlib.blake2b(_encoder.encode(wish), digest_size=_WISH_BYTES).digest()
