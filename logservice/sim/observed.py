"""Where the world looks into a store: at what its state machines apply and its log makes durable.

Observers, not hooks: the product code does not know of them. State machines are made by a factory
that is a seam anyway; log storage is watched from outside of its one instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.entry import Entry
from logservice.envelope import ProposalId
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import ShardId
from logservice.logdb.format.commit_group import Run
from logservice.logdb.format.update import Update
from logservice.logdb.log_db import LogDb
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.outcome import Outcome
from logservice.rsm.log_rsm import LogRsm

if TYPE_CHECKING:
    from logservice.sim.checks import Checks
    from logservice.sim.store import SimStore


class ObservedLogRsm(LogRsm):
    """A log's state machine that tells the world what it applied."""

    def __init__(self, store: SimStore, shard: ShardId, checks: Checks) -> None:
        super().__init__()
        self._observer = (store, shard, checks)

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """See `LogRsm`."""
        outcomes = super().update(entry)
        store, shard, checks = self._observer
        checks.applied(store, shard, entry, self)
        return outcomes

    def recover_from_snapshot(self, state: bytes) -> None:
        """See `LogRsm`."""
        super().recover_from_snapshot(state)
        store, shard, checks = self._observer
        checks.restored(store, shard, self)


class ObservedHAKeeperRsm(HAKeeperRsm):
    """HAKeeper's state machine, watched in the same way."""

    def __init__(self, store: SimStore, shard: ShardId, checks: Checks) -> None:
        super().__init__()
        self._observer = (store, shard, checks)

    def update(self, entry: Entry) -> Sequence[tuple[ProposalId, Outcome]]:
        """See `HAKeeperRsm`."""
        outcomes = super().update(entry)
        store, shard, checks = self._observer
        checks.applied(store, shard, entry, self)
        return outcomes


def observe_logdb(store: SimStore, parts: StoreParts, checks: Checks) -> None:
    """Tell `checks` about every group that log storage calls durable."""
    for directory in parts.directories:
        _observe(directory.logdb, store, parts, checks)


def _observe(logdb: LogDb, store: SimStore, parts: StoreParts, checks: Checks) -> None:
    begin, begin_ahead, finish = logdb.begin, logdb.begin_ahead, logdb.finish
    copies, upkeep, abandon = logdb.begin_copies, logdb.begin_upkeep, logdb.abandon
    damage = store.damage
    updates_of: dict[int, Sequence[Update]] = {}

    def observed_begin(updates: Sequence[Update]) -> CommitGroup:
        group = begin(updates)
        updates_of[id(group)] = updates
        damage.begun(logdb, updates)
        return group

    def observed_begin_ahead(updates: Sequence[Update]) -> CommitGroup | None:
        group = begin_ahead(updates)
        if group is not None:
            store.world.counts["groups begun ahead"] += 1
            updates_of[id(group)] = updates
            damage.comes(logdb, "group ahead")
        return group

    def observed_copies(runs: list[Run]) -> CommitGroup:
        group = copies(runs)
        if runs:
            damage.comes(logdb, "copies", (runs[0].shard, runs[0].replica))
        return group

    def observed_upkeep(
        *, cut: tuple[int, int] | None = None, retired: Sequence[int] = (), checkpoint: bool
    ) -> CommitGroup:
        damage.comes(logdb, "removal of a segment" if retired else "cut of a segment")
        return upkeep(cut=cut, retired=retired, checkpoint=checkpoint)

    def observed_abandon(group: CommitGroup) -> None:
        abandon(group)
        damage.comes(logdb, "no room")

    def observed_finish(group: CommitGroup) -> None:
        finish(group)
        if group.written and group.has_bytes:
            at = group.encoded.position
            damage.durable(logdb, (at.segment, at.offset))
        checks.finished(store, parts, group, updates_of.pop(id(group), ()))

    logdb.begin = observed_begin  # type: ignore[method-assign]
    logdb.begin_ahead = observed_begin_ahead  # type: ignore[method-assign]
    logdb.finish = observed_finish  # type: ignore[method-assign]
    logdb.begin_copies = observed_copies  # type: ignore[method-assign]
    logdb.begin_upkeep = observed_upkeep  # type: ignore[method-assign]
    logdb.abandon = observed_abandon  # type: ignore[method-assign]
