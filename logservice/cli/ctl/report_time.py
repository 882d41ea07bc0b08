"""report_time: how long a store is given to make its report on the cluster.

It asks HAKeeper, and then all stores at once. For whoever stands still it waits ADMIN_PEER_WAIT_S
each time. Less than that, and there would be no report just when it is needed.
"""

from __future__ import annotations

from typing import Final

from logservice import bounds

_ON_THE_WAY_S: Final = 0.5
"""For the way there and back, and for putting it together."""

REPORT_S: Final = 2 * bounds.ADMIN_PEER_WAIT_S + _ON_THE_WAY_S


def report_limit_s(left_s: float) -> float:
    """What one report may take of the time that is left, so that others come to their turn."""
    return max(left_s / 2, min(left_s, REPORT_S))
