"""Refusals: how many messages were not heard, by reason. There is one object per NodeHost.

Every refusal is counted. It is logged once per shard, store and reason, because a store that sends
one such message may send a thousand a second. Refusals that an honest store causes, too (a message
was on its way when its sender left the shard), are only counted.
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from logservice import bounds
from logservice.events import Event, emit
from logservice.ids import ShardId, StoreId

logger = logging.getLogger(__name__)


class Refusal(enum.Enum):
    """Why a message was not heard; the values are the metric's labels."""

    STRANGER = "stranger"
    """The sender is no member of the shard, as far as is known here."""
    ANOTHERS_NAME = "anothers_name"
    """The store speaks for a replica that is bound to another store or data directory."""
    NOT_FOR_PEERS = "not_for_peers"
    """Stores do not send each other messages of this type."""
    OUT_OF_RANGE = "out_of_range"
    """The message has a number that no replica reaches."""
    TERM_STEP = "term_step"
    """The message has a term far beyond the one here, which rose by a step instead."""
    TERM_BUDGET = "term_budget"
    """The sender has raised the term here too often lately."""
    UNPROVEN = "unproven"
    """Only a leader sends this, and no majority of the voters has vouched for the sender yet."""
    NOT_LEADER = "not_leader"
    """Only a leader sends this, and the sender is none, or nobody has vouched for it for long."""
    TRANSFER = "transfer"
    """A campaign that says that the leader asked for it, and the leader did not; it counts as an
    ordinary one.
    """
    CONTRADICTION = "contradiction"
    """The message contradicts what is committed here."""
    SNAPSHOT = "snapshot"
    """The snapshot is not what it says."""
    CORE = "core"
    """The core refuses the message; see `raft.errors.RejectReason`."""


_COUNTED_ONLY: Final = frozenset(
    {Refusal.STRANGER, Refusal.UNPROVEN, Refusal.TRANSFER, Refusal.TERM_STEP, Refusal.CORE}
)


class Refusals:
    """See the module's text."""

    def __init__(self) -> None:
        """Nothing was refused yet."""
        self._counts: Counter[str] = Counter()
        self._said: set[tuple[ShardId, StoreId, Refusal]] = set()

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts by reason, with those that are still 0."""
        return {one.value: self._counts[one.value] for one in Refusal}

    def note(self, shard: ShardId, store: StoreId, why: Refusal, detail: str) -> None:
        """One message of `store` was not heard."""
        self._counts[why.value] += 1
        key = (shard, store, why)
        if why in _COUNTED_ONLY or key in self._said or len(self._said) >= bounds.REFUSALS_SAID_MAX:
            return
        self._said.add(key)
        emit(
            logger,
            Event.MESSAGE_REFUSED,
            shard=shard,
            store=store,
            reason=why.value,
            detail=detail,
        )
