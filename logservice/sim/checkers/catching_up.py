"""Catching up: no store sends more to members that are far behind than it may (INV-CATCHUP-1).

The bucket is kept here anew, from the messages that leave. What a turn paid for may leave later,
and where messages are lost a member leaves turns behind. So some messages of each member are
allowed beyond it. That members do get everything, in a time, is judged at the end of a run
(`world`, convergence).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logservice.bounds import CATCH_UP_BURST_S
from logservice.ids import HAKEEPER_SHARD, Index, ReplicaId, ShardId, StoreId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.replica import Replica
from logservice.raft.log.log import payload_bytes
from logservice.raft.messages import AppendEntries, Message
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle

Member = tuple[ShardId, ReplicaId]

_TURNS = 3
"""Turns that a member may have been given and not used."""

_FASTEST_CLOCK = 1.15
"""Somewhat faster than any clock that is drawn."""


@dataclass(slots=True)
class _Account:
    """What one life of a store sent."""

    seen_s: float
    level: float
    members: dict[Member, Index] = field(default_factory=dict)
    """Where the log ended when the member last had a turn."""
    largest: int = 0

    def pass_time(self, now_s: float, rate: int) -> None:
        """Fill the bucket, as a fast clock does."""
        earned = (now_s - self.seen_s) * rate * _FASTEST_CLOCK
        self.level = min(rate * CATCH_UP_BURST_S, self.level + earned)
        self.seen_s = now_s


class CatchUpRate(Checker):
    """See the module's text."""

    name = "catch-up-rate"
    messages = (AppendEntries,)

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._accounts: dict[StoreId, tuple[StoreParts | None, _Account]] = {}

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        config = store.world.config
        rate = config.catch_up_bytes_per_s
        if not rate or store.parts is None or replica.shard == HAKEEPER_SHARD:
            return
        assert isinstance(message, AppendEntries)
        log, last = replica.log, replica.log.last_index()
        low = message.entries[0].index if message.entries else Index(0)
        if not log.first_index() <= low <= min(replica.applied, last):
            return
        if log.bytes_between(Index(low - 1), last) <= config.catch_up_behind_bytes:
            return
        if replica.stands_still:
            return  # nothing is more urgent
        account = self._account_of(store, rate)
        # What is not applied yet is in the core's memory, and may share the message.
        size = payload_bytes([one for one in message.entries if one.index <= replica.applied])
        member = (replica.shard, message.to)
        grown = log.bytes_between(account.members.get(member, last), last)
        account.members[member] = last
        account.largest = max(account.largest, size)
        account.pass_time(store.world.now_s, rate)
        account.level -= max(0, size - grown)
        slack = _TURNS * len(account.members) * max(account.largest, config.catch_up_turn_bytes)
        if account.level < -slack:
            self.wrong(
                f"{store.store_id} sends {size} bytes of shard {replica.shard} to {message.to},"
                f" {-account.level:.0f} beyond {rate} bytes per second"
            )

    def _account_of(self, store: ObservedStore, rate: int) -> _Account:
        life, account = self._accounts.get(store.store_id, (None, None))
        if account is None or life is not store.parts:
            account = _Account(store.world.now_s, rate * CATCH_UP_BURST_S)
            self._accounts[store.store_id] = (store.parts, account)
        return account
