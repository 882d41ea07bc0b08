"""ReceiveBudget: what all connections together hold of frames and snapshots that are not whole.

Theory of operation. A large frame's buffer and a snapshot's chunks are memory that a peer fills as
slowly as it likes. Whoever holds some says how much it will be before it grows (`Share.take`). A
store above its own bound loses a connection. When all stores together would be above the common
bound, the store that holds the most loses its largest connection, never a store that holds little.
The common bound is more than twice that of a store, so one store that hoards is cut before an
honest one that is just receiving something of the largest size.

- INV-BUDGET-1: what is held is at most PEER_PARTIAL_BYTES_MAX in all, and of one store
  PEER_PARTIAL_STORE_BYTES_MAX.
"""

from __future__ import annotations

from collections.abc import Callable

from logservice.bounds import PEER_PARTIAL_BYTES_MAX, PEER_PARTIAL_STORE_BYTES_MAX
from logservice.ids import StoreId
from logservice.invariants import invariant
from logservice.nodehost.transport.wire.frame import FrameError


class ReceiveBudget:
    """One per transport."""

    def __init__(self) -> None:
        """Nothing is held."""
        self.bytes = 0
        self.cuts = 0
        """Connections that were cut for what they held."""
        self._holders: dict[Share, None] = {}
        self._stores: dict[StoreId, int] = {}

    def share(self, store: StoreId, cut: Callable[[str], None]) -> Share:
        """For one connection of `store`; `cut` ends it, upon which it gives back what it holds."""
        return Share(self, store, cut)

    def change(self, share: Share, size: int) -> None:
        """Make `share` hold `size` bytes. Raises FrameError when that is its store's end."""
        store = share.store
        more = size - share.size
        if self._stores.get(store, 0) + more > PEER_PARTIAL_STORE_BYTES_MAX:
            self._refuse(share)
        while self.bytes + more > PEER_PARTIAL_BYTES_MAX:
            held = dict(self._stores)
            held[store] = held.get(store, 0) + more
            most = max(held, key=lambda one: held[one])
            theirs = [one for one in self._holders if one.store == most]
            largest = max(theirs, key=lambda one: size if one is share else one.size, default=share)
            if largest is share:
                self._refuse(share)
            self.cuts += 1
            self._set(largest, 0)
            largest.cut("too much of it is not whole")
        self._set(share, size)
        invariant(self.bytes <= PEER_PARTIAL_BYTES_MAX, "INV-BUDGET-1", bytes=self.bytes)

    def _refuse(self, share: Share) -> None:
        self.cuts += 1
        self._set(share, 0)
        raise FrameError("too many bytes of frames and snapshots that are not whole")

    def _set(self, share: Share, size: int) -> None:
        more = size - share.size
        share.size = size
        self.bytes += more
        left = self._stores.get(share.store, 0) + more
        if left:
            self._stores[share.store] = left
        else:
            self._stores.pop(share.store, None)
        if size:
            self._holders[share] = None
        else:
            self._holders.pop(share, None)


class Share:
    """What one connection holds; 0 when nothing is under way."""

    __slots__ = ("_budget", "cut", "size", "store")

    def __init__(self, budget: ReceiveBudget, store: StoreId, cut: Callable[[str], None]) -> None:
        self._budget = budget
        self.store = store
        self.cut = cut
        self.size = 0

    def take(self, size: int) -> None:
        """Hold `size` bytes from now on instead of `self.size`. Raises FrameError."""
        if size != self.size:
            self._budget.change(self, size)

    def give_back(self) -> None:
        """Hold nothing any more."""
        self.take(0)
