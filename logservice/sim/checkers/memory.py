"""Memory: what waits for the disks of a store stays within its part, and leaves nothing behind.

It is counted here anew, from the logs themselves: the payloads of entries that a core knows and
that are not durable. The store counts more for each of them (`nodehost.replica.unwritten`) but for
the few that a leader makes by itself, which are small. So whatever waits beyond what it counts, and
beyond a little for each replica, was not counted. That the store's own count stays within the part
is INV-MEM-1, which the product checks; that a log gets everything in the end is judged at the end
of a run (`world`, convergence).
"""

from __future__ import annotations

from collections.abc import Sequence

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
        size = spare = 0
        for replica in store.replicas():
            tail = replica.raft._state.log.tail
            first = max(0, tail.stable_next - tail.offset)
            size += sum(len(entry.payload) for entry in tail.entries[first:])
            spare += _OWN_BYTES
        if size > part.used + spare:
            self.wrong(f"{store.store_id}: {size} bytes wait for the disk, {part.used} are held")
        if part.used and not size and _at_rest(parts):
            self.wrong(f"{store.store_id}: {part.used} bytes are held, and nothing waits")


_OWN_BYTES = 512
"""Of what a leader makes by itself: the first entry of its term, a change of the membership."""


def _at_rest(parts: StoreParts) -> bool:
    """Nothing is to be gathered, and nothing is at a disk or waits for it."""
    return not any(
        engine._active or engine._writes or engine._under_way
        for engine in [one.engine for one in parts.host.directories.working]
    )
