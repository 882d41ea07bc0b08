"""reading_turns: what a client's read needs before it is made: memory for its answer, and a turn.

Theory of operation. First comes a part of the budget of answers, which bounds who is here at all,
for each identity; then the turn in the read's class (`nodehost.replica.read_limits`), which is over
when the entries are in memory. In the other order, readers who wait for memory would hold turns.
A read that either refuses counts as refused in its class. The class is that of the first LSN at the
moment of the question.
"""

from __future__ import annotations

from logservice_wire.errors import Busy

from logservice.ids import Lsn, ShardId
from logservice.nodehost.replica.log_reading import LogSlice
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.server.edge.answers import ANYBODY, Taken
from logservice.server.edge.gate import calling
from logservice.server.services.context import StoreContext


async def take_answer(
    store: StoreContext, read_class: ReadClass, size: int, wait_s: float
) -> Taken:
    """Memory for an answer of `size` bytes. Raises Busy."""
    behind = read_class is ReadClass.CATCH_UP
    try:
        return await store.answers.take(size, wait_s, behind=behind)
    except Busy:
        store.host.reads.of[read_class].refused += 1
        raise


async def read_in_turn(
    store: StoreContext,
    read_class: ReadClass,
    shard: ShardId,
    lsn: Lsn,
    max_bytes: int,
    wait_s: float,
) -> LogSlice:
    """`NodeHost.read_log` when it has its turn. Raises Busy, too."""
    limit = store.host.reads.of[read_class]
    turn = await limit.begin(calling.get(ANYBODY), max_bytes, wait_s)
    size = 0
    try:
        found = await store.host.read_log(shard, lsn, max_bytes)
        size = sum([len(run.block) for run in found.runs])
    finally:
        turn.end(size)
    return found
