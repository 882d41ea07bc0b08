"""Soft bounds of `mirror/`."""

from __future__ import annotations

from typing import Final

MIRROR_LOGS_MAX: Final = 1000
"""Pairs of one configuration: each waits for its source with a stream of its own, and an identity
has a bounded number of those."""

MIRROR_LOOK_S: Final = 5.0
"""How long a mirror waits for a quiet source before it asks again what that is: whether it was
closed, truncated or continued by force. So long it takes, too, until such a thing is noticed."""

MIRROR_PASS_S: Final = 5.0
"""A mirror that is far behind moves its hold so often while it catches up."""

MIRROR_HOLD_S: Final = 1.0
"""Between two moves of a hold: each is an entry of the source's log."""

MIRROR_PATIENCE_S: Final = 5.0
"""How long calls may fail, one after another, before the attempt ends, is counted and logged."""

MIRROR_RETRY_S: Final = 1.0
"""From there to the next attempt, for ever: what stops a mirror is cured outside of it."""

MIRROR_PROGRESS_S: Final = 10.0
"""Between two lines about a log that is behind, or fails."""

MIRROR_COMPARED_LSNS: Final = 4096
"""Whoever goes on with a mirror compares so many of its last LSNs with the source first: a source
that is another log, or another history of it, has others there."""

MIRROR_COMPARED_STEP_S: Final = 0.5
"""A promote compares in ranges that take about so long: each can be the last one."""

MIRROR_COMPARED_STEP_LSNS_MAX: Final = 1 << 24
"""LSNs of such a range: gaps cost nothing, so there is no end to what fits into the time."""

MIRROR_ROUNDS_MAX: Final = 10
"""A promote closes its source when the last round, of what came during the one before, took
MIRROR_SHORT_ROUND_S. If that never happens the source is appended to faster than it is compared,
and more rounds shorten nothing."""

MIRROR_SHORT_ROUND_S: Final = 1.0
"""About so long nobody can append."""

MIRROR_FORCED_COMPARE_S: Final = 30.0
"""How long a forced promote compares a source that still answers, unless it is told otherwise."""

MIRROR_ASKED_S: Final = 5.0
"""How long a forced promote waits for a word of the source, and a status for one of either cluster:
who asks suspects that one of them is gone."""

MIRROR_PROMOTE_ATTEMPTS_MAX: Final = 100
"""A promote that finds another range than a moment ago asks again so often: the process that
mirrors has brought something, or let something go, in between."""
