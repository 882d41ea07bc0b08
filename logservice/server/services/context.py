"""StoreContext: what every service of a store needs, put together once by `server.store`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logservice_wire.errors import Halted, InvalidArgument, ShardNotFound
from logservice_wire.v1 import log_pb2

from logservice.config import LimitsSection
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.nodehost.node_host import NodeHost
from logservice.owner import Author
from logservice.server.edge.answers import AnswerBudget


@dataclass(frozen=True, slots=True)
class StoreContext:
    """What a handler needs of its store.

    client_address: finds where clients reach another store; "" when that is not known yet. caller:
    the identity whose call is being served. answers: the budget for what is read for answers.
    """

    host: NodeHost
    limits: LimitsSection
    client_address: Callable[[StoreId], str]
    caller: Callable[[], str]
    answers: AnswerBudget = field(default_factory=AnswerBudget)

    def author(self) -> Author:
        """The identity in whose name this call proposes, and this store, which vouches for it."""
        return Author(self.caller(), self.host.identity.store_id)

    def position(self, shard: ShardId) -> log_pb2.LogPosition:
        """What every response says about the log; empty when the replica is gone or has halted.

        Raises nothing: the answer that carries it is often that of a call that took effect.
        """
        try:
            replica = self.host.replicas.running[shard]
        except (Halted, ShardNotFound):
            return log_pb2.LogPosition()
        first_lsn, applied_lsn = replica.log_bounds
        leader = replica.leader_store
        return log_pb2.LogPosition(
            first_lsn=first_lsn,
            applied_lsn=applied_lsn,
            leader_store=leader or "",
            leader_address=self.client_address(leader) if leader else "",
        )


def at_least(position: log_pb2.LogPosition, lsn: int) -> log_pb2.LogPosition:
    """`position`, with `lsn` among the readable LSNs: the answer that carries it acknowledges
    `lsn`.

    A store that forwarded the append may not have applied it yet; its linearizable reads wait until
    it has.
    it has.
    """
    position.applied_lsn = max(position.applied_lsn, lsn)
    return position


def log_shard(shard_id: int) -> ShardId:
    """The shard of a Log request. Raises InvalidArgument for HAKeeper's: it is not a log."""
    shard = ShardId(shard_id)
    if shard == HAKEEPER_SHARD:
        raise InvalidArgument("shard 0 is HAKeeper's; logs start at 1", field="shard_id")
    return shard


def shard_not_found(shard: ShardId) -> ShardNotFound:
    """There is no replica here; another store may have one."""
    return ShardNotFound(f"no replica of shard {shard} on this store", shard=shard)
