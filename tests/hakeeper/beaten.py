"""beaten: HAKeeper's state hears a heartbeat of a store, for tests of what its answer brings."""

from __future__ import annotations

from logservice.hakeeper import state
from logservice.hakeeper.commands import proposals, replies
from logservice.hakeeper.stores import heartbeats
from logservice.ids import Incarnation, StoreId
from logservice.outcome import Applied
from logservice.versions import KNOWN


def beaten(held: state.State, sequence: int, **versions: int) -> replies.HeartbeatReply:
    """The answer to a heartbeat of ``s1``. `versions`: of the lists that it has, by field."""
    beat = proposals.StoreHeartbeat(
        StoreId("s1"),
        "",
        "s1:1",
        "s1:2",
        (proposals.DirectoryReport(Incarnation(7)),),
        9,
        sequence,
        labels=KNOWN.labels(),
        **versions,
    )
    outcome = heartbeats.apply_store(held, beat)
    assert isinstance(outcome, Applied)
    return replies.decode(outcome.data)
