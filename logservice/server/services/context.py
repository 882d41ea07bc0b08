"""StoreContext: what every service of a store needs, put together once by `server.store`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logservice_wire.errors import InvalidArgument, ShardNotFound
from logservice_wire.v1 import log_pb2

from logservice.config import LimitsSection
from logservice.ids import HAKEEPER_SHARD, Lsn, ShardId, StoreId
from logservice.nodehost.node_host import NodeHost
from logservice.owner import Author
from logservice.server.edge.answers import AnswerBudget


@dataclass(slots=True)
class StoreContext:
    """What a handler needs of its store.

    client_address: finds where clients reach another store; "" when that is not known yet. caller:
    the identity whose call is being served. answers: the budget for what is read for answers.
    `limits` may be replaced while the store runs.
    """

    host: NodeHost
    limits: LimitsSection
    client_address: Callable[[StoreId], str]
    caller: Callable[[], str]
    answers: AnswerBudget = field(default_factory=AnswerBudget)

    def author(self) -> Author:
        """The identity in whose name this call proposes, and this store, which vouches for it."""
        return Author(self.caller(), self.host.identity.store_id)

    def need_version(self, since: int) -> None:
        """Raises NotReady below that cluster version: older replicas do not understand what is
        asked for.
        """
        self.host.cluster_version.need(since)

    def position(self, shard: ShardId, acked_lsn: int = 0) -> log_pb2.LogPosition:
        """What every response says about the log; of a replica that is gone or has halted, only
        `acked_lsn`.

        acked_lsn: what the answer acknowledges is among the readable LSNs. A store that forwarded
        the append may not have applied it yet; its linearizable reads wait until it has.

        Raises nothing: the answer that carries it is often that of a call that took effect.
        """
        replica = self.host.replicas.running.get(shard)
        if replica is None:
            return log_pb2.LogPosition(applied_lsn=acked_lsn)
        first_lsn, applied_lsn = replica.log_bounds
        leader = replica.leader_store
        healthy, voters = replica.redundancy
        position = log_pb2.LogPosition(
            first_lsn=first_lsn,
            applied_lsn=max(applied_lsn, acked_lsn),
            leader_store=leader or "",
            leader_address=self.client_address(leader) if leader else "",
            voters=voters,
            healthy_voters=healthy,
        )
        lineage = replica.lineage
        if lineage.number:
            position.lineage.number = lineage.number
            position.lineage.id = lineage.id
            position.lineage.fork_lsn = lineage.fork_lsn
        return position


def log_shard(shard_id: int) -> ShardId:
    """The shard of a Log request. Raises InvalidArgument for HAKeeper's: it is not a log."""
    shard = ShardId(shard_id)
    if shard == HAKEEPER_SHARD:
        raise InvalidArgument("shard 0 is HAKeeper's; logs start at 1", field="shard_id")
    return shard


def readable_lsn(lsn: int) -> Lsn:
    """`lsn` as one that can be read. Raises InvalidArgument for 0, which no record has."""
    if lsn == 0:
        raise InvalidArgument("LSNs start at 1", field="lsn")
    return Lsn(lsn)


def shard_not_found(shard: ShardId) -> ShardNotFound:
    """There is no replica here; another store may have one."""
    return ShardNotFound(f"no replica of shard {shard} on this store", shard=shard)
