"""Checker and Checks: one invariant, and who tells all of them what happens.

A checker overrides the methods of `Checker` that it needs, and is told of these events only. It
calls `wrong` when it sees what must never be. `Checks` is the world's `interfaces.Observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from logservice.entry import Entry
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import Message
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle
from logservice.state_machine import StateMachine

Violate = Callable[[str, str], None]


class Checker:
    """What a checker may look at: each method is told of one kind of event.

    `name` is in reports. `messages` are the types that `sent` wants to see; none means all.
    """

    name = ""
    messages: tuple[type[Message], ...] = ()

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        """`violate(name, detail)`."""
        self.oracle = oracle
        self._violate = violate

    def wrong(self, detail: str) -> None:
        """What was seen must never be: report it."""
        self._violate(self.name, detail)

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        """A replica hands a message to its transport."""

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """Log storage says that a group is durable."""

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        """A state machine has applied an entry."""

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        """A new life has recovered its log storage and will serve next."""

    def collecting(self, store: ObservedStore, collection: GarbageCollection) -> None:
        """A garbage collection is planned, and nothing of it is done."""

    def collected(self, store: ObservedStore, collection: GarbageCollection) -> None:
        """It has ended, and not for lack of room."""

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        """Some virtual time has passed."""


class Checks:
    """The dispatcher."""

    def __init__(self, oracle: Oracle, checkers: Sequence[Checker]) -> None:
        """`checkers` are told in this order."""
        self.oracle = oracle
        self.checkers = checkers
        self._sent: dict[type[Message], list[Callable[..., Any]]] = {}
        self._finished = _overriding(checkers, "finished")
        self._applied = _overriding(checkers, "applied")
        self._started = _overriding(checkers, "started")
        self._collecting = _overriding(checkers, "collecting")
        self._collected = _overriding(checkers, "collected")
        self._sample = _overriding(checkers, "sample")

    def sent(self, store: ObservedStore, shard: ShardId, message: Message) -> None:
        replica = store.running(shard)
        # It may have stopped in the very pass that sent this.
        if replica is not None and replica.replica_id == message.sender:
            calls = self._sent.get(type(message))
            if calls is None:
                wanting = [
                    one
                    for one in self.checkers
                    if type(message) in one.messages or not one.messages
                ]
                calls = self._sent[type(message)] = _overriding(wanting, "sent")
            for call in calls:
                call(store, replica, message)

    def finished(
        self, store: ObservedStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        for call in self._finished:
            call(store, parts, group, updates)

    def applied(
        self, store: ObservedStore, shard: ShardId, entry: Entry, machine: StateMachine
    ) -> None:
        for call in self._applied:
            call(store, shard, entry, machine)

    def started(self, store: ObservedStore, parts: StoreParts) -> None:
        for call in self._started:
            call(store, parts)

    def collecting(self, store: ObservedStore, collection: GarbageCollection) -> None:
        for call in self._collecting:
            call(store, collection)

    def collected(self, store: ObservedStore, collection: GarbageCollection) -> None:
        for call in self._collected:
            call(store, collection)

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for call in self._sample:
            call(stores)


def _overriding(checkers: Sequence[Checker], method: str) -> list[Callable[..., Any]]:
    return [
        getattr(checker, method)
        for checker in checkers
        if getattr(type(checker), method) is not getattr(Checker, method)
    ]


def key_of(shard: int, replica: int) -> tuple[ShardId, ReplicaId]:
    """Numbers of log storage as ids."""
    return ShardId(shard), ReplicaId(replica)
