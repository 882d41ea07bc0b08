"""How many cases a random test runs: few in the suite, and in a campaign as many as the environment
says. LOGSERVICE_RANDOM_STATES counts states, which cost milliseconds, and
LOGSERVICE_RANDOM_HISTORIES whole lives of a cluster, which cost seconds.
"""

from __future__ import annotations

import os


def cases(few: int) -> range:
    """The seeds of a test of random states that looks at `few` in the suite."""
    return range(int(os.environ.get("LOGSERVICE_RANDOM_STATES", few)))


def histories(few: int) -> range:
    """The seeds of a test of random histories that plays `few` in the suite."""
    return range(int(os.environ.get("LOGSERVICE_RANDOM_HISTORIES", few)))
