"""MemoryPart: a part of a store's memory budget that several holders share.

Theory of operation. A store has one part for each thing that others can make it keep: entries that
wait for the disk, proposals that wait for their outcome, messages that wait for a socket. Whoever
is about to keep something takes its size first and gives it back once it is gone. A holder is
whoever the bytes are kept for: another store, or a log.

The limit of each holder is not a number but what is still free (dynamic thresholds: Choudhury and
Hahne 1998): after each take it holds no more than nobody holds. One that takes all it can gets half
of the part; n that compete get n/(n+1) together, and the rest stays free for those who hold
nothing. So a holder that never gives anything back starves nobody, and no share is set aside for
holders that need none.

Something that is larger than its share is taken while nobody holds anything. So nothing is refused
for ever because it is large.

INV-MEM-1: what is held is at most the limit, or one thing that was taken while nothing was held.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from logservice.invariants import invariant

UNBOUNDED: Final = 1 << 62
"""What there is room for when nothing is held."""


class MemoryPart:
    """One for each part of a store, on the loop thread."""

    __slots__ = ("_alone", "_held", "limit", "refused", "used")

    def __init__(self, limit: int) -> None:
        """Nothing is held."""
        self.limit = limit
        self.used = 0
        self.refused = 0
        """How often something was not taken."""
        self._held: dict[Hashable, int] = {}
        self._alone = 0

    def room(self, holder: Hashable) -> int:
        """The largest size that `holder` could take now."""
        if not self.used:
            return UNBOUNDED
        return max(0, self.limit - self.used - self._held.get(holder, 0)) // 2

    def take(self, holder: Hashable, size: int) -> bool:
        """Let `holder` hold `size` bytes more; False when there is no room for them."""
        held = self._held.get(holder, 0)
        if not self.used:
            self._alone = size
        elif held + size > self.limit - self.used - size:
            self.refused += 1
            return False
        self.used += size
        self._held[holder] = held + size
        if self.used > self.limit and self.used > self._alone:
            invariant(False, "INV-MEM-1", used=self.used, limit=self.limit, alone=self._alone)
        return True

    def give_back(self, holder: Hashable, size: int) -> None:
        """`size` bytes that `holder` took are gone."""
        left = self._held.pop(holder, 0) - size
        invariant(left >= 0, "INV-MEM-1", left=left)
        self.used -= size
        if left:
            self._held[holder] = left

    def held(self, holder: Hashable) -> int:
        """What `holder` holds."""
        return self._held.get(holder, 0)
