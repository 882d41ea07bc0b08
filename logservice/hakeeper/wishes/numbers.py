"""Numbers: a person lets the cluster skip what another one has given out (`hakeeper.given_out`)."""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.verbs import SkipNumbers
from logservice.hakeeper.given_out import go_on_above
from logservice.hakeeper.state import State
from logservice.hakeeper.tombstones import bury_ranges
from logservice.hakeeper.wishes.refusal import wrong
from logservice.outcome import Applied, Outcome, Rejected


def apply_skip(state: State, verb: SkipNumbers) -> Outcome:
    """Ids of logs that live are no tombstones. Rejected: INVALID_ARGUMENT for ranges that are none,
    BUSY when there are too many.
    """
    if any(not 0 < first <= last for first, last in verb.given.deleted):
        return wrong("deleted", "ranges of ids of logs")
    if not bury_ranges(state, verb.given.deleted):
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_DELETED_RANGES_MAX)})
    go_on_above(state, verb.given)
    return Applied()
