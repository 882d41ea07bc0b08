"""Balancing: what people wish of the spreading of replicas and leaders over the stores.

It is part of the replicated state. `repair/rebalance.py` compares it with what is reported.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from logservice.ids import ShardId, StoreId


class BalanceMode(enum.StrEnum):
    """Who begins to balance."""

    ON = "on"
    """HAKeeper, whenever it pays."""
    MANUAL = "manual"
    """A person, by the verb."""
    OFF = "off"
    """Nobody: the verb is refused, too."""


class Balancing(Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """`replicas`, `leaders`: who begins. `..._wished_tick`: when a person began it and it has not
    ended since, else 0. `due_tick`: when to look again. `leaders_turn`: that look is at the
    leaders, not at the replicas. `waits`: why no replica moves now. `flags`: for people, as of the
    last look at the replicas. `shards_from`: the shard at which the next one of those goes on; 0
    when it begins a round of them all. `shards_moved`: whether the present round, or the last one
    when it has ended, moved a replica for the zone.
    `looks_owed`: so many looks are taken, each when it is due, although nothing else asks for a
    pass. `replicas_walk`: what the present round has passed
    (`balance`), empty at its beginning. `leaders_after`: how many leaders its own round has passed
    (`leadership`). `..._moved`: whether the round has moved one. `breaches`: the shards whose zones
    break their rule, and how.
    """

    replicas: BalanceMode = BalanceMode.MANUAL
    leaders: BalanceMode = BalanceMode.ON
    replicas_wished_tick: int = 0
    leaders_wished_tick: int = 0
    due_tick: int = 0
    leaders_turn: bool = False
    waits: str = ""
    flags: tuple[str, ...] = ()
    shards_from: int = 0
    looks_owed: int = 0
    replicas_walk: tuple[tuple[StoreId, bool, ShardId], ...] = ()
    replicas_moved: bool = False
    leaders_after: int = 0
    leaders_moved: bool = False
    breaches: tuple[tuple[int, str], ...] = ()
    shards_moved: bool = False
