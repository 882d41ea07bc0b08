"""LOG-LSN: the LSNs of consecutive entries are consecutive, in every log, committed or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from logservice.ids import Index
from logservice.logdb.format.update import Update
from logservice.logdb.segment_writer import CommitGroup
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checks import Checker

if TYPE_CHECKING:
    from logservice.sim.store import SimStore


class LogLsn(Checker):
    """Looks at what becomes durable."""

    name = "log-lsn"

    def finished(
        self, store: SimStore, parts: StoreParts, group: CommitGroup, updates: Sequence[Update]
    ) -> None:
        """See `Checker`."""
        for update in updates:
            if not update.entries:
                continue
            first = update.entries[0]
            log = parts.log(update.shard, update.replica)
            try:
                expected = int(log.next_lsn(Index(first.index - 1)))
            except KeyError:
                expected = int(first.lsn)
            for entry in update.entries:
                if entry.lsn != expected:
                    self.wrong(
                        f"shard {update.shard} on {store.store_id}: index {entry.index} has LSN "
                        f"{entry.lsn}, not {expected}"
                    )
                expected = int(entry.next_lsn)
