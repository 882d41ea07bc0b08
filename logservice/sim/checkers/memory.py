"""Memory: what waits for the disks of a store stays within its part, and leaves nothing behind.

It is counted here anew, from the logs themselves: the payloads of entries that a core knows and
that are not durable. The store counts somewhat more (`nodehost.replica.unwritten`), so this never
exceeds the part; an entry that a new leader begins its term with is not counted there and has no
payload. That a log gets everything in the end is judged at the end of a run (`world`, convergence).
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
        found: list[int] = []
        for replica in store.replicas():
            tail = replica.raft._state.log.tail  # noqa: SLF001
            first = max(0, tail.stable_next - tail.offset)
            found += [len(entry.payload) for entry in tail.entries[first:]]
        size = sum(found)
        if size > part.limit and len([one for one in found if one]) > _ALONE:
            self.wrong(f"{store.store_id}: {size} bytes wait for the disk, of {part.limit}")
        if part.used and not size and _at_rest(parts):
            self.wrong(f"{store.store_id}: {part.used} bytes are held, and nothing waits")


_ALONE = 16
"""Entries of one message, or one drain, that was larger than the part and came when nothing
waited."""


def _at_rest(parts: StoreParts) -> bool:
    """Nothing is to be gathered, and nothing is at a disk or waits for it."""
    return not any(
        engine._active or engine._writes or engine._under_way  # noqa: SLF001
        for engine in [one.engine for one in parts.host.directories.working]
    )
