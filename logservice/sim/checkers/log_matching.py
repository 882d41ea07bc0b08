"""Log matching: two logs that hold an entry of the same index and term agree up to it.

By induction it suffices that such entries are equal and that the entries before them have the same
term. Checked for every entry when it becomes durable anywhere (Raft paper, section 5.3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice_wire.errors import Halted

from logservice.ids import Index
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checks import Checker
from logservice.sim.truth import facts_of

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class LogMatching(Checker):
    """Fills the truth about entries, too."""

    name = "log-matching"

    def started(self, store: SimStore, parts: StoreParts) -> None:
        """See `Checker`. What a crash left may never have been called finished."""
        for shard, replica in parts.host.stored_replicas():
            log = parts.log(shard, replica)
            truth = self.truth.shard(shard)
            for index in range(log.first_index(), log.last_index() + 1):
                place = (index, int(log.term(Index(index))))
                truth.holders.setdefault(place, set()).add(replica)
                if place not in truth.entries:
                    # Written everywhere and killed before anybody's fsync returned (seed 60172).
                    with contextlib.suppress(Halted):  # its damage is another checker's business
                        (entry,) = log.entries(Index(index), Index(index + 1), 1)
                        truth.entries[place] = facts_of(entry)

    def finished(
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """See `Checker`."""
        for update in updates:
            if not update.entries:
                continue
            truth = self.truth.shard(update.shard)
            log = parts.log(update.shard, update.replica)
            first = update.entries[0]
            try:
                before = int(log.term(Index(first.index - 1)))
            except KeyError:
                before = -1
            for entry in update.entries:
                place = (int(entry.index), int(entry.term))
                facts = facts_of(entry)
                known = truth.entries.setdefault(place, facts)
                if known != facts:
                    self.wrong(
                        f"shard {update.shard} (index, term) {place}: {known} and, "
                        f"on {store.store_id}, {facts}"
                    )
                if before >= 0:
                    known_before = truth.before.setdefault(place, before)
                    if known_before != before:
                        self.wrong(
                            f"shard {update.shard} {place} on {store.store_id}: the entry before "
                            f"has term {before}, elsewhere {known_before}"
                        )
                truth.holders.setdefault(place, set()).add(update.replica)
                before = int(entry.term)
