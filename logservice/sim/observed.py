"""Where the world looks into a store: at what its state machines apply and its log makes durable.

State machines are made by a factory, which is a seam anyway. Log storage has a seam for this: its
`CommitObserver`.
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import ShardId
from logservice.logdb.format.update import Update
from logservice.logdb.gc.collection import GarbageCollection
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.outcome import Outcome
from logservice.rsm.log_rsm import LogRsm
from logservice.sim.faults.damage import Damage
from logservice.sim.interfaces import ObservedStore, Observer, Store


class ObservedLogRsm(LogRsm):
    """A log's state machine that tells the world what it applied."""

    def __init__(self, store: ObservedStore, shard: ShardId, checks: Observer) -> None:
        super().__init__()
        self._observer = (store, shard, checks)

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        outcomes = super().update(entry)
        store, shard, checks = self._observer
        checks.applied(store, shard, entry, self)
        return outcomes


class ObservedHAKeeperRsm(HAKeeperRsm):
    """HAKeeper's state machine, watched in the same way."""

    def __init__(self, store: ObservedStore, shard: ShardId, checks: Observer) -> None:
        super().__init__()
        self._observer = (store, shard, checks)

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        outcomes = super().update(entry)
        store, shard, checks = self._observer
        checks.applied(store, shard, entry, self)
        return outcomes


def observe_logdb(store: Store, parts: StoreParts, damage: Damage) -> None:
    """Tell the checks of each group that is durable, and `damage` of each moment on the way."""
    for directory in parts.directories:
        directory.logdb.observer = _ObservedCommits(directory.logdb, store, parts, damage)


class _ObservedCommits:
    """The `CommitObserver` of one data directory."""

    def __init__(self, logdb: LogDb, store: Store, parts: StoreParts, damage: Damage) -> None:
        self._logdb = logdb
        self._store = store
        self._parts = parts
        self._damage = damage
        self._updates_of: dict[int, Sequence[Update]] = {}

    def begun(self, group: CommitGroup, updates: Sequence[Update], *, ahead: bool) -> None:
        self._updates_of[id(group)] = updates
        if ahead:
            self._store.world.counts["groups begun ahead"] += 1
            self._damage.comes(self._logdb, "group ahead")
        else:
            self._damage.begun(self._logdb, updates)

    def copies_begun(self, group: CommitGroup) -> None:
        if group.runs:
            first = group.runs[0]
            self._damage.comes(self._logdb, "copies", (first.shard, first.replica))

    def upkeep_begun(self, group: CommitGroup) -> None:
        moment = "removal of a segment" if group.retired else "cut of a segment"
        self._damage.comes(self._logdb, moment)

    def collecting(self, collection: GarbageCollection) -> None:
        self._store.world.checks.collecting(self._store, collection)

    def collected(self, collection: GarbageCollection) -> None:
        self._store.world.checks.collected(self._store, collection)

    def abandoned(self, group: CommitGroup) -> None:
        self._updates_of.pop(id(group), None)
        self._damage.comes(self._logdb, "no room")

    def finished(self, group: CommitGroup) -> None:
        if group.written and group.has_bytes:
            at = group.encoded.position
            self._damage.durable(self._logdb, (at.segment, at.offset))
        updates = self._updates_of.pop(id(group), ())
        self._store.world.checks.finished(self._store, self._parts, group, updates)
