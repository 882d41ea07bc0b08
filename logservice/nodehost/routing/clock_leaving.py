"""Clock leaving: a store whose clock is wrong gives its leaderships away.

Theory of operation. After each look (`clocks.clock_watch`) a store whose clock is far hands every
log that it leads to another voter, the one that has most of the log, by the same transfer that an
operator would ask for. What is left, because the heir was behind or the transfer was lost, is
handed over after the next look. A look hands over at most CLOCK_HAND_OVERS_PER_LOOK, so
that thousands of elections do not come at once. Shard 0 has no append times, and stays.

INV-CLOCK-HEIR: leadership goes only to a store whose clock was near at the newest look. Without
one the leader stays: its stamps are bounded all the same, and the log goes on.

HAKeeper hands no leadership back meanwhile: the store's heartbeats say that its clock is far.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import islice

from logservice import bounds
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, Index, ReplicaId, StoreId
from logservice.nodehost.replica.replica import Replica


def leave(replicas: Iterable[Replica], near: Set[StoreId]) -> None:
    """Hand over what is led here to voters on `near` stores."""
    led = (replica for replica in replicas if replica.shard != HAKEEPER_SHARD)
    leaving = ((replica, heir_of(replica, near)) for replica in led if replica.ready_to_lead)
    found = ((replica, heir) for replica, heir in leaving if heir != NO_REPLICA)
    for replica, heir in islice(found, bounds.CLOCK_HAND_OVERS_PER_LOOK):
        with replica.contained():
            replica.raft.transfer_leader(heir)
            replica.activate()


def heir_of(leader: Replica, near: Set[StoreId]) -> ReplicaId:
    """The voter on a `near` store that has most of the log; NO_REPLICA without one."""
    info = leader.info()
    match = dict(info.match)
    return max(
        (one for one in info.membership.full_voters if leader.store_of(one) in near),
        key=lambda one: (match.get(one, Index(0)), -one),
        default=NO_REPLICA,
    )
