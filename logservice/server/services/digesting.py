"""digesting: the digest of a range of a log, as this replica has it.

Theory of operation. What is digested, and how, is `logservice_wire.digest`'s alone; here the runs
of LSNs that a reader would be sent are fed to it. A call reads a slice of the log at a time, off
the event loop, checks each block as a reader would, and digests it in the directory's read
executor, so that other readers get their turns between two slices. After DIGEST_CALL_S it answers
at the next end of a piece; the caller goes on from there, here or elsewhere. So a call's time and
memory do not grow with the range, a caller who leaves ends the work behind the slice that is under
way, and nothing about it is kept between two calls.

All of it counts as catch-up reads (`nodehost.replica.read_limits`): whoever digests old and new
entries alike is no reader at the tail. A call that gets no turn for its next slice answers with
what it has.

A linearizable call asks for a read index first. So two replicas that are asked for a range that was
acked have it, even if one of them was behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logservice_wire.block import Block, validate_block
from logservice_wire.digest import START, Digester
from logservice_wire.errors import BeyondTail, Busy, InvalidArgument, NotReady
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.checksum import crc32
from logservice.ids import Lsn, ShardId
from logservice.nodehost.replica.log_reading import LogRun, LogSlice
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.server.edge.call import Context, in_time
from logservice.server.services.context import StoreContext, log_shard
from logservice.server.services.lineage_check import check_confirmed, check_lineage
from logservice.server.services.reading import GAP_REASONS, at_most
from logservice.server.services.reading_turns import read_in_turn, take_answer


async def digest(
    store: StoreContext, request: log_pb2.DigestRequest, context: Context
) -> log_pb2.DigestResponse:
    """One Digest. Raises InvalidArgument, Truncated, BeyondTail, CorruptBlock (damage here), Busy,
    NotReady (no time for a single piece), and what `read_index` raises.
    """
    shard = log_shard(request.shard_id)
    digester = _begun(request)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    if request.stale:
        await check_lineage(store, shard, request.lineage, context, stale=True)
    with in_time(context, store.limits, store.host.expire, shard) as limit_s:
        if not request.stale:
            await store.host.read_index(shard, limit_s)
            check_confirmed(store, shard, request.lineage)
    goal = min(bounds.STREAM_MESSAGE_BYTES_GOAL, store.limits.read_bytes_max)
    wait_s = min(limit_s, bounds.ANSWER_WAIT_S)
    taken = await take_answer(store, ReadClass.CATCH_UP, at_most(goal), wait_s)
    try:
        while not digester.done:
            spent_s = loop.time() - began_s
            moved = digester.chain_lsn > (request.at_lsn or request.from_lsn)
            if moved and spent_s >= bounds.DIGEST_CALL_S:
                break
            if spent_s >= limit_s:
                raise NotReady("no time for a piece of the digest")
            try:
                found = await read_in_turn(
                    store, ReadClass.CATCH_UP, shard, Lsn(digester.next_lsn), goal, wait_s
                )
            except Busy:
                if not moved:
                    raise
                break
            await feed(store, shard, digester, found)
    finally:
        taken.give_back()
    # What lies behind the last whole piece is fed again by the next call.
    records, gap_lsns, value_bytes = digester.chain_counts
    return log_pb2.DigestResponse(
        position=store.position(shard),
        digest=digester.digest() if digester.done else b"",
        at_lsn=digester.chain_lsn,
        chain=digester.chain,
        records=records,
        gap_lsns=gap_lsns,
        value_bytes=value_bytes,
    )


def _begun(request: log_pb2.DigestRequest) -> Digester:
    if request.covers != log_pb2.DIGEST_COVERS_RECORDS:
        raise InvalidArgument(f"no digest covers {request.covers}", field="covers")
    try:
        return Digester(
            request.from_lsn,
            request.to_lsn,
            at_lsn=request.at_lsn,
            chain=request.chain or START,
        )
    except ValueError as error:
        raise InvalidArgument(str(error), field="from_lsn") from error


async def feed(store: StoreContext, shard: ShardId, digester: Digester, found: LogSlice) -> None:
    """Digest the next slice of the log, which was read."""
    if not found.runs:
        raise BeyondTail(
            f"the log ends before LSN {digester.to_lsn}", next_lsn=found.applied_lsn + 1
        )
    executor = store.host.replicas.running[shard].directory.read_executor
    work = executor.submit(lambda: _take(digester, found.runs))
    await asyncio.wrap_future(work)


def _take(digester: Digester, runs: Sequence[LogRun]) -> None:
    for run in runs:
        if digester.done:
            return
        if run.gap is not None:
            digester.add_gap(run.first_lsn, run.record_count, GAP_REASONS[run.gap])
        else:
            count = validate_block(run.block, crc32=crc32)
            digester.add_block(run.first_lsn, Block(run.block, count, 0))
