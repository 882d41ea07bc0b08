"""Ample: logs that certainly find another place, told without choosing one.

Theory of operation. To choose a store for each replica of a store that is drained takes 36 µs, and
a store may have ten thousand. Nearly all of them are of one kind: a log with its voters and nothing
else, and with the usual rule for zones. Such a log blocks the hosts of its members, and the stores
that it avoids. If the zone of the store that goes has more other hosts that take replicas than the
log avoids stores, one of them is free. The choice would be that one, or one that leaves the voters
at least as far apart, because the order of placement asks for the zone before the load. So the log
loses neither a replica nor a zone (INV-HK-AMPLE), and what is placed for other logs changes nothing
in it: no load ever forbids a place. A log without a rule for zones goes where the load is least, so
it is not told here.

INV-HK-AMPLE: a choice would find nothing to say of a log that is told to have room.
"""

from __future__ import annotations

from logservice.hakeeper.commands.policy import ZoneRule
from logservice.hakeeper.repair.placement import Placement, is_full
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.health import settled
from logservice.hakeeper.stores.standing import takes_replicas
from logservice.hakeeper.stores.zones import NO_ZONE, zone_of
from logservice.ids import HAKEEPER_SHARD
from logservice.membership import Member


class Ample:
    """The hosts of each zone that take replicas and have room, in a state without some stores."""

    def __init__(self, after: State, placement: Placement) -> None:
        """`after`: the state in which the stores are silent. `placement`: the choices there."""
        self._state = after
        self._changing = {operator.shard for operator in after.operators.values()}
        hosts: dict[str, set[str]] = {}
        for store in placement.stores:
            open_ = takes_replicas(after, store.store) and settled(after, store)
            if open_ and not is_full(store):
                hosts.setdefault(zone_of(store), set()).add(store.host_label)
        self._hosts = hosts
        self._host = {store.store: store.host_label for store in after.stores.values()}

    def has_room(self, shard: ShardState, leaving: Member) -> bool:
        """Whether the log certainly has a place as good as the one it leaves."""
        members = shard.members
        if (
            shard.shard == HAKEEPER_SHARD
            or shard.shard in self._changing
            or shard.leader_wish is not None
            or shard.policy.zone_rule is not ZoneRule.BEST_EFFORT
            or shard.policy.learners
            or members.learners
            or members.joint
            or len(members.voters) != shard.wanted
        ):
            return False
        store = self._state.stores.get(leaving.store_id)
        zone = zone_of(store) if store is not None else NO_ZONE
        taken = {
            self._host.get(one.store_id, one.store_id)
            for one in members.members
            if one.replica_id != leaving.replica_id
        }
        return len(self._hosts.get(zone, set()) - taken) > len(shard.avoid)
