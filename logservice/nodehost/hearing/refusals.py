"""Refusals: what was not heard, by reason. One per NodeHost.

Every refusal is counted. It is said once per shard, store and reason, because a store that sends
one such message may send a thousand a second; those that an honest store causes, too (a message
that was on its way when its sender left the shard), are counted only.
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
    """A type of message that stores do not send each other."""
    OUT_OF_RANGE = "out_of_range"
    """A number that no replica reaches."""
    TERM_STEP = "term_step"
    """A term far beyond the one here; that rose by a step instead."""
    TERM_BUDGET = "term_budget"
    """The sender has raised the term here too often lately."""
    UNPROVEN = "unproven"
    """What a leader says, before a majority of the voters vouched for the sender."""
    NOT_LEADER = "not_leader"
    """What a leader says, from one that is not, or for which nobody vouches for long."""
    TRANSFER = "transfer"
    """A campaign that says that the leader asked for it, and the leader did not; it counts as an
    ordinary one.
    """
    CONTRADICTION = "contradiction"
    """Contradicts what is committed here."""
    SNAPSHOT = "snapshot"
    """A snapshot that is not what it says."""
    CORE = "core"
    """The core refuses it; see `raft.errors.RejectReason`."""


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
        """By reason, those that never happened included."""
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
