"""Describing: the picture of one running replica, for heartbeats, status calls and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from logservice.ids import Lsn
from logservice.nodehost.info import ReplicaInfo

if TYPE_CHECKING:
    from logservice.nodehost.replica import Replica


def describe(replica: Replica) -> ReplicaInfo:
    """Take it now; see `ReplicaInfo`."""
    status = replica.raft.status()
    rsm = replica.log_rsm
    truncated = rsm.truncated_lsn if rsm is not None else Lsn(0)
    return ReplicaInfo(
        shard=replica.shard,
        replica=replica.replica_id,
        store_id=replica.store_id,
        incarnation=replica.incarnation,
        membership=replica.raft.membership,
        role=replica.raft.role,
        term=replica.raft.term,
        leader=replica.raft.leader,
        first_index=replica.reader.first_index(),
        last_index=replica.raft.last_index,
        committed=replica.raft.commit,
        applied=replica.applied,
        first_lsn=replica.first_lsn,
        applied_lsn=Lsn(rsm.next_lsn - 1) if rsm is not None else Lsn(0),
        truncated_lsn=truncated,
        match=tuple(sorted((rid, p.match) for rid, p in status.progress.items())),
        recently_active=tuple(sorted(r for r, p in status.progress.items() if p.active)),
        halted="",
        quiesced=replica.raft.quiesced,
    )
