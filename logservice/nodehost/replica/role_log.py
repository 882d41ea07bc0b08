"""RoleLog: logs one line when a replica here begins or ends to lead, when its membership changes,
and when it gets stuck or goes on.

It is the host's own listener (`nodehost.listeners`). Every change of role is told; most of them
interest nobody who reads the log (a follower that asks for pre-votes). Only the store that leads,
or led until now, writes a line, so a cluster logs one line per change and not one per replica. No
term and no membership is logged twice.
"""

from __future__ import annotations

import logging

from logservice.events import Event, emit
from logservice.ids import Index, ReplicaId, ShardId, Term
from logservice.nodehost.listeners import (
    ApplyingChanged,
    HostEvent,
    MembershipChanged,
    RoleChanged,
)
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)


class RoleLog:
    """What was logged last; one per NodeHost."""

    def __init__(self) -> None:
        """No replica leads here yet."""
        self._leading: dict[ShardId, tuple[ReplicaId, Term]] = {}
        self._epochs: dict[ShardId, Index] = {}

    def told(self, event: HostEvent) -> None:
        """See `nodehost.listeners.Listener`."""
        if isinstance(event, RoleChanged):
            self._role(event)
        elif isinstance(event, MembershipChanged):
            self._membership(event)
        elif isinstance(event, ApplyingChanged):
            emit(
                logger,
                Event.REPLICA_STUCK if event.stuck else Event.REPLICA_GOES_ON,
                shard=event.shard,
                replica=event.replica,
                applied=event.applied,
                committed=event.committed,
            )

    def _role(self, event: RoleChanged) -> None:
        shard, replica, term = event.shard, event.replica, event.term
        if event.role is Role.LEADER:
            if self._leading.get(shard) != (replica, term):
                self._leading[shard] = (replica, term)
                self._epochs.setdefault(shard, event.epoch)
                emit(logger, Event.LEADER_HERE, shard=shard, replica=replica, term=term)
        elif self._leading.pop(shard, None) is not None:
            emit(
                logger,
                Event.LEADER_GONE,
                shard=shard,
                replica=replica,
                term=term,
                leader=event.leader,
            )

    def _membership(self, event: MembershipChanged) -> None:
        known = self._epochs.get(event.shard)
        self._epochs[event.shard] = event.epoch
        if event.role is Role.LEADER and known not in (None, event.epoch):
            emit(
                logger,
                Event.MEMBERSHIP_CHANGED,
                shard=event.shard,
                epoch=event.epoch,
                voters=event.voters,
                learners=event.learners,
            )
