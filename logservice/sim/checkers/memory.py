"""Memory: what waits for the disks of a store stays within its part, and leaves nothing behind.

It is counted here anew, from the logs themselves: the blocks that a core knows and whose Ready is
not durable, or not taken yet. (The mark `stable_next` may stand behind that for a while, because
the news of a write under an older term is ignored.) The store counts more for each of them
(`nodehost.replica.unwritten`). Commands are left out: those that a leader proposes itself are not
counted, and among them are HAKeeper's heartbeats, which are large. So whatever waits beyond what
the store counts was not counted. That the store's own count stays within the part is INV-MEM-1,
which the product checks; that a log gets everything in the end is judged at the end of a run
(`world`, convergence).
"""

from __future__ import annotations

from collections.abc import Sequence

from logservice.entry import EntryKind
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.sim.checkers.checker import Checker
from logservice.sim.interfaces import ObservedStore


class UnwrittenBytes(Checker):
    """INV-MEM-1 and INV-UNWRITTEN-2, seen from outside."""

    name = "unwritten-bytes"

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        for store in stores:
            if store.parts is not None and store.up:
                self._look(store, store.parts)

    def _look(self, store: ObservedStore, parts: StoreParts) -> None:
        part = parts.host.unwritten
        blocks, nothing = 0, True
        for replica in store.replicas():
            tail = replica.raft._state.log.tail
            written = [
                one.ready.entries[0].index for one in replica.raft._writes if one.ready.entries
            ]
            waiting = tail.entries[max(0, min([tail.taken_next, *written]) - tail.offset) :]
            nothing = nothing and not waiting
            blocks += sum(len(one.payload) for one in waiting if one.kind is EntryKind.BLOCK)
        if blocks > part.used:
            self.wrong(f"{store.store_id}: {blocks} bytes wait for the disk, {part.used} are held")
        if part.used and nothing and _at_rest(parts):
            self.wrong(f"{store.store_id}: {part.used} bytes are held, and nothing waits")


def _at_rest(parts: StoreParts) -> bool:
    """Nothing is to be gathered, and nothing is at a disk or waits for it."""
    return not any(
        engine._active or engine._writes or engine._under_way
        for engine in [one.engine for one in parts.host.directories.working]
    )
