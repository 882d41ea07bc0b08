"""boottime: the clock by which rights end.

CLOCK_MONOTONIC stands still while the host is suspended, and CLOCK_REALTIME can be set. Whoever
counts by one of them would keep a lease, a hold or a grant that has ended meanwhile. CLOCK_BOOTTIME
goes on during a suspension, and nothing sets it. Systems other than Linux have no such clock; there
CLOCK_MONOTONIC stands for it.
"""

from __future__ import annotations

import time
from typing import Final

_BOOTTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_s() -> float:
    """Seconds since the host was started, suspended or not (where the system has that clock)."""
    return time.clock_gettime(_BOOTTIME)
