"""Checks: tells every checker what happens, all the time.

A checker is a class with some of the methods of `Checker`; only those that override a method are
called for it. It calls `violate` when what it sees cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from logservice.entry import Entry
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica import Replica
from logservice.raft.messages import Message
from logservice.sim.truth import Truth
from logservice.state_machine import StateMachine

if TYPE_CHECKING:
    from logservice.sim.store import SimStore

Violate = Callable[[str, str], None]


class Checker:
    """What a checker may look at. `name` is in reports; `messages` are those that `sent` wants to
    see, all when there are none.
    """

    name = ""
    messages: tuple[type[Message], ...] = ()

    def __init__(self, truth: Truth, violate: Violate) -> None:
        """`violate(name, detail)`."""
        self.truth = truth
        self._violate = violate

    def wrong(self, detail: str) -> None:
        """It cannot be."""
        self._violate(self.name, detail)

    def sent(self, store: SimStore, replica: Replica, message: Message) -> None:
        """A replica hands a message to its transport."""

    def finished(
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """Log storage says that a group is durable."""

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """A state machine has applied an entry."""

    def restored(self, store: SimStore, shard: ShardId, machine: StateMachine) -> None:
        """A state machine began anew from a snapshot."""

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """A new life has recovered its log storage and will serve next."""

    def sample(self, stores: Sequence[SimStore]) -> None:
        """Some virtual time has passed."""


class Checks:
    """The dispatcher."""

    def __init__(self, truth: Truth, checkers: Sequence[Checker]) -> None:
        """`checkers` are told in this order."""
        self.truth = truth
        self.checkers = checkers
        self._sent: dict[type[Message], list[Callable[..., Any]]] = {}
        self._finished = _overriding(checkers, "finished")
        self._applied = _overriding(checkers, "applied")
        self._restored = _overriding(checkers, "restored")
        self._started = _overriding(checkers, "started")
        self._sample = _overriding(checkers, "sample")

    def sent(self, store: SimStore, shard: ShardId, message: Message) -> None:
        """See `Checker`."""
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
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """See `Checker`."""
        for call in self._finished:
            call(store, parts, group, updates)

    def applied(self, store: SimStore, shard: ShardId, entry: Entry, machine: StateMachine) -> None:
        """See `Checker`."""
        for call in self._applied:
            call(store, shard, entry, machine)

    def restored(self, store: SimStore, shard: ShardId, machine: StateMachine) -> None:
        """See `Checker`."""
        for call in self._restored:
            call(store, shard, machine)

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """See `Checker`."""
        for call in self._started:
            call(store, parts)

    def sample(self, stores: Sequence[SimStore]) -> None:
        """See `Checker`."""
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
