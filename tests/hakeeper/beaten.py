"""beaten: heartbeats of a store that HAKeeper's state hears, for tests of what they bring."""

from __future__ import annotations

from typing import Any

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


def next_beat(store: state.StoreState, **more: Any) -> proposals.StoreHeartbeat:
    """What the store, as the state knows it, would say next. `more`: what is new in that."""
    return proposals.StoreHeartbeat(
        store.store,
        store.host,
        store.peer_address,
        store.client_address,
        store.directories,
        store.boot_id,
        store.sequence + 1,
        store.sequence,
        dict(store.labels),
        **more,
    )
