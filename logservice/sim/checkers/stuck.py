"""Stuck: a replica that applies nothing is noticed, and leads no longer than it takes to notice.

In a world with other faults neither has a time: the answers of the other voters may be lost, and
HAKeeper may be away. There the log has to go on once the faults are over (`world`, liveness).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from logservice import bounds
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import HAKEEPER_SHARD, ReplicaId, ShardId
from logservice.nodehost.replica.replica import Replica
from logservice.raft.messages import Message, TimeoutNow
from logservice.raft.ready import Role
from logservice.sim.checkers.checker import Checker, Violate
from logservice.sim.faults.standing import stands
from logservice.sim.interfaces import ObservedStore
from logservice.sim.oracle import Oracle

_NOTICE_S = 4.0
"""For heartbeats, a pass of HAKeeper and elections, beyond what the bounds say."""

_KNOWN_S = 3.0
"""A replica that has been stuck for so long has said so to whoever asked."""

_TEXT = "applies nothing"

Key = tuple[ShardId, ReplicaId]


class GivesWay(Checker):
    """In a world without other faults, a leader that applies nothing gives way in time, to a voter
    that applies, and HAKeeper flags whoever applies nothing.
    """

    name = "gives-way"
    messages = (TimeoutNow,)

    def __init__(self, oracle: Oracle, violate: Violate) -> None:
        super().__init__(oracle, violate)
        self._leads: dict[Key, float] = {}
        self._stands: dict[Key, float] = {}
        self._stuck: dict[Key, float] = {}

    def sample(self, stores: Sequence[ObservedStore]) -> None:
        world = stores[0].world
        if not (world.config.calm and world.config.stands):
            return
        found = [replica for store in stores for replica in store.replicas()]
        idle = [one for one in found if stands(one) and _has_work(one)]
        leads = [one for one in idle if one.raft.role is Role.LEADER]
        self._leads = _since(self._leads, leads, world.now_s)
        self._stands = _since(self._stands, idle, world.now_s)
        self._stuck = _since(self._stuck, [r for r in found if r.applying.stuck], world.now_s)
        config = world.config
        own_s = config.apply_stuck_s + 2 * config.election_timeout_s + _NOTICE_S
        for (shard, replica), since_s in self._leads.items():
            if world.now_s - since_s > own_s + bounds.APPLY_ASK_TIMEOUT_S:
                self.wrong(f"shard {shard}: replica {replica} leads and applies nothing")
        flags = _flags(found)
        if flags is None:
            self._stands = {}
        for (shard, replica), since_s in self._stands.items():
            start = f"shard {shard}: replica {replica} on "
            told = any(one.startswith(start) and one.endswith(_TEXT) for one in flags or ())
            if not told and world.now_s - since_s > own_s + 2 * config.heartbeat_interval_s:
                self.wrong(f"{start}some store applies nothing, and no flag says so")

    def sent(self, store: ObservedStore, replica: Replica, message: Message) -> None:
        config = store.world.config
        since_s = self._stuck.get((replica.shard, message.to))
        if since_s is None or not config.calm or not replica.applying.stuck:
            return
        if store.world.now_s - since_s > _KNOWN_S:
            self.wrong(
                f"shard {replica.shard}: replica {replica.replica_id} gives way to {message.to},"
                " which applies nothing either"
            )


def _has_work(replica: Replica) -> bool:
    """Something waits to be applied, and the replica is awake, so that it can notice."""
    return replica.raft.appliable > replica.applied and not replica.raft.quiesced


def _since(before: Mapping[Key, float], now: Iterable[Replica], now_s: float) -> dict[Key, float]:
    keys = [(one.shard, one.replica_id) for one in now]
    return {key: before.get(key, now_s) for key in keys}


def _flags(found: Iterable[Replica]) -> Mapping[str, int] | None:
    """What HAKeeper has to tell people; None when nobody leads it who applies."""
    for replica in found:
        machine = replica.state_machine
        leads = replica.shard == HAKEEPER_SHARD and replica.raft.role is Role.LEADER
        if leads and not stands(replica) and isinstance(machine, HAKeeperRsm):
            return machine.state.flags
    return None
