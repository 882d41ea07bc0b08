"""Redundancy: how many of a log's voters an append can count on, as the leader's acks tell.

An ack says that a majority has the records on its disks. It does not say how many more failures
the log survives: with one of three voters gone every append is acked as before, and the next
failure stops the log. Whoever writes can see that here, and wait, warn or write elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple


class Redundancy(NamedTuple):
    """Of the newest ack that came from the leader. Both are 0 before the first, and when the store
    that answers forwards to the leader or is of a version that does not say.
    """

    healthy_voters: int = 0
    """Heard of lately, and with everything on their disks that was committed a moment ago."""
    voters: int = 0

    @property
    def known(self) -> bool:
        """Whether a leader has said it yet."""
        return self.voters > 0

    @property
    def degraded(self) -> bool:
        """Known to have a voter that is no help now."""
        return self.healthy_voters < self.voters

    @property
    def more_failures(self) -> int:
        """How many more voters may fail before the log stops taking appends; 0 when not known."""
        return max(0, self.healthy_voters - (self.voters // 2 + 1)) if self.known else 0
