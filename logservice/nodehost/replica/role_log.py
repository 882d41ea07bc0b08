"""RoleLog: logs one line when a replica here begins or ends to lead, or its membership changes.

The core reports every change of role; most of them interest nobody (a follower that asks for
pre-votes). Only the store that leads, or led until now, writes a line, so a cluster logs one line
per change and not one per replica. No term and no membership is logged twice.
"""

from __future__ import annotations

import logging

from logservice.events import Event, emit
from logservice.ids import Index, ReplicaId, ShardId, Term
from logservice.nodehost.replica.replica import Replica
from logservice.raft.ready import Role

logger = logging.getLogger(__name__)


class RoleLog:
    """What was logged last; one per NodeHost."""

    def __init__(self) -> None:
        """No replica leads here yet."""
        self._leading: dict[ShardId, tuple[ReplicaId, Term]] = {}
        self._epochs: dict[ShardId, Index] = {}

    def role_changed(self, replica: Replica) -> None:
        """The role of `replica` may have changed: log it if it leads, or led until now."""
        shard, raft = replica.shard, replica.raft
        term = raft.term
        if raft.role is Role.LEADER:
            now = (replica.replica_id, term)
            if self._leading.get(shard) != now:
                self._leading[shard] = now
                self._epochs.setdefault(shard, raft.membership.change_epoch)
                emit(logger, Event.LEADER_HERE, shard=shard, replica=replica.replica_id, term=term)
        elif self._leading.pop(shard, None) is not None:
            emit(
                logger,
                Event.LEADER_GONE,
                shard=shard,
                replica=replica.replica_id,
                term=term,
                leader=raft.leader,
            )

    def membership_changed(self, replica: Replica) -> None:
        """The membership of `replica` has changed: log it if it leads."""
        shard, members = replica.shard, replica.raft.membership
        known = self._epochs.get(shard)
        self._epochs[shard] = members.change_epoch
        if replica.raft.role is Role.LEADER and known not in (None, members.change_epoch):
            emit(
                logger,
                Event.MEMBERSHIP_CHANGED,
                shard=shard,
                epoch=members.change_epoch,
                voters=members.voters,
                learners=members.learners,
            )
