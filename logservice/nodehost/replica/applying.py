"""Applying: whether a replica that has committed entries on its disk also applies them.

Theory of operation. A replica may be alive in every other respect, vote, store entries and answer
heartbeats, and never again apply one: a read that never comes back, a fault of ours. Nobody would
notice. A leader in that state acknowledges nothing, for ever, and keeps everybody else from
leading. So the replica itself compares, every few ticks, what it could apply with what it has
applied. Nothing is counted per entry.

INV-APPLYING-1: a replica is *stuck* when there was something to apply for APPLY_STUCK_S without a
break and its applied index did not move in that time. Only what is durable here counts as something
to apply, and no snapshot on its way to the disk does. So a slow disk makes no replica stuck: a
leader on one gives way by `raft.leading.hand_over`. Time is the replica's own ticks, so a stall of
the process makes no replica stuck either (INV-HOST-TICK).
"""

from __future__ import annotations


class Applying:
    """What one replica's watch remembers."""

    __slots__ = ("_applied", "_patience_ticks", "_since", "stuck")

    def __init__(self, patience_ticks: int) -> None:
        """Nothing is waiting."""
        self._patience_ticks = patience_ticks
        self._applied = 0
        self._since = -1
        self.stuck = False

    def look(self, tick: int, appliable: int, applied: int) -> bool:
        """Look once, at the replica's `tick`; True when `stuck` changed.

        `appliable`: the newest index that could be applied.
        """
        before = self.stuck
        if appliable <= applied:
            self._since = -1
        elif self._since < 0 or applied != self._applied:
            self._since = tick
        self._applied = applied
        self.stuck = self._since >= 0 and tick - self._since >= self._patience_ticks
        return self.stuck is not before
