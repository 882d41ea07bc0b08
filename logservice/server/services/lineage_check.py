"""lineage_check: a request that names another lineage than the log's is refused.

Theory of operation. What a store has applied may be old: a replica that has just been started may
not have come to the fork yet, and one of the old lineage may have come back and not know that it is
none of the log's any more. So a store asks the others first, unless it knows:

INV-LINEAGE-5: a request that names a lineage is carried out only if the log had that one when the
request was judged, and is refused only if it had another one then. A leader that has applied the
first entry of its term knows; any other replica asks for a read index. A stale read is served by
what is applied here, and is refused only after that question.

A fork needs that no replica of the log runs (docs/operations/lost-quorum.md), so none lies between
the judgement and the effect, but for a block that is on its way to another store. That one is of a
session, which ends with its lineage (INV-LINEAGE-3), or comes from a store that is no member any
more and is not heard (INV-FORWARD-1). A restore makes a log another lineage while it runs; nothing
ever happened in that log before, and until it is open it takes nothing else (`rsm.restoring`).
"""

from __future__ import annotations

from logservice_wire.errors import InvalidArgument, LineageChanged

from logservice.ids import ShardId
from logservice.lineage import LINEAGE_BYTES
from logservice.rsm.state import lineage_metadata
from logservice.server.edge.call import Context, in_time
from logservice.server.services.context import StoreContext


async def check_lineage(
    store: StoreContext, shard: ShardId, named: bytes, context: Context, *, stale: bool = False
) -> None:
    """Raises LineageChanged, InvalidArgument, and what `read_index` raises. `named`: what the
    request says, b"" for nothing.
    """
    if not named:
        return
    replica = store.host.replicas.running[shard]
    if replica.lineage.id == named and (stale or replica.ready_to_lead):
        return
    with in_time(context, store.limits, store.host.expire, shard) as limit_s:
        await store.host.read_index(shard, limit_s)
    check_confirmed(store, shard, named)


def check_confirmed(store: StoreContext, shard: ShardId, named: bytes) -> None:
    """The same behind a read index that the caller has asked for. Raises LineageChanged,
    InvalidArgument.
    """
    if not named:
        return
    if len(named) != LINEAGE_BYTES:
        raise InvalidArgument(f"a lineage has {LINEAGE_BYTES} bytes", field="lineage")
    lineage = store.host.replicas.running[shard].lineage
    if lineage.id != named:
        raise LineageChanged(
            "the log was continued by force: it is another history than the caller's",
            **lineage_metadata(lineage, named),
        )
