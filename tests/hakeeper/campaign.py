"""How many cases a random test runs: few in the suite, and in a campaign as many as
LOGSERVICE_RANDOM_STATES says.
"""

from __future__ import annotations

import os


def cases(few: int) -> range:
    """The seeds of a random test that runs `few` in the suite."""
    return range(int(os.environ.get("LOGSERVICE_RANDOM_STATES", few)))
