"""reading: Read, Follow, and the LSN at a time.

Theory of operation. Both return applied entries only, as runs of LSNs: blocks byte for byte as they
were appended, or typed gaps, so that a reader is told about every LSN (G3). A linearizable call
first asks for a read index, which is at or above every append acked before the call began, waits
until this replica has applied it, and then reads locally. A stale call reads what is applied here.

Follow goes on until a stop condition. Blocks are opaque and never cut, so a stop condition that
lies inside a block lets that block through; `next_lsn` of the last message says where to go on. A
Follow ends at the end of a closed log; its last message names that end.

A reader that wants no values gets each block's size and its client's clock in place of its bytes,
but for wide blocks, which come whole.
What that saves is the answer: the store reads the blocks all the same, because an entry counts only
with its checksum, and the caller pays for their memory until they are let go.

Readers at the tail and readers of old entries have limits of their own (`reading_turns`).

A Follow that begins at an append time finds the LSN first, as LsnAtTime does, and passes over what
was appended earlier. If records that were truncated may have been meant, and the request's own LSN
does not exclude them, it is refused with TRUNCATED (G4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from logservice_wire.block import HEADER_BYTES, is_wide
from logservice_wire.errors import InvalidArgument, Reason, Truncated
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.ids import Lsn, ShardId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica.log_reading import LogRun, LogSlice
from logservice.nodehost.replica.read_limits import ReadClass
from logservice.nodehost.replica.time_search import FoundTime
from logservice.server.edge.answers import ANYBODY, until_gone
from logservice.server.edge.call import Context, in_time, timeout_s
from logservice.server.edge.gate import calling
from logservice.server.services.answer_bytes import AnswerBytes
from logservice.server.services.context import StoreContext, log_shard, readable_lsn
from logservice.server.services.lineage_check import check_confirmed, check_lineage
from logservice.server.services.reading_turns import read_in_turn, take_answer

_WAIT_S: Final = 5.0
"""How long Follow waits at the tail before it looks again whether the shard still runs here."""

_NO_VALUES: Final = 2
"""The cluster version from which on blocks come without their bytes where that is asked for."""

_TIMESTAMP: Final = struct.Struct("<q")
"""The last field of a block's header."""

GAP_REASONS: Final = {
    Reason.FENCED: log_pb2.GAP_REASON_FENCED,
    Reason.WRONG_EXPECTED_LSN: log_pb2.GAP_REASON_WRONG_EXPECTED_LSN,
    Reason.SEQUENCE_GAP: log_pb2.GAP_REASON_SEQUENCE,
    Reason.SEQUENCE_REUSED: log_pb2.GAP_REASON_SEQUENCE,
    Reason.SESSION_EXPIRED: log_pb2.GAP_REASON_SEQUENCE,
    Reason.CORRUPT_BLOCK: log_pb2.GAP_REASON_CORRUPT,
}


async def read(store: StoreContext, request: log_pb2.ReadRequest, context: Context) -> AnswerBytes:
    """One Read. Raises Truncated, BeyondTail, InvalidArgument, Busy (`answers`), and what
    `read_index` raises.
    """
    shard = log_shard(request.shard_id)
    lsn = readable_lsn(request.lsn)
    if request.stale:
        await check_lineage(store, shard, request.lineage, context, stale=True)
    else:
        with in_time(context, store.limits, store.host.expire, shard) as limit_s:
            await store.host.read_index(shard, limit_s)
        check_confirmed(store, shard, request.lineage)
    max_bytes = min(
        request.max_bytes or store.limits.read_bytes_default, store.limits.read_bytes_max
    )
    wait_s = min(timeout_s(context, store.limits), bounds.ANSWER_WAIT_S)
    read_class = store.host.read_class(shard, lsn)
    taken = await take_answer(store, read_class, at_most(max_bytes), wait_s)
    try:
        found = await read_in_turn(store, read_class, shard, lsn, max_bytes, wait_s)
        values = not request.no_values or store.host.cluster_version.value < _NO_VALUES
        response = _response(store, shard, found, found.runs, values=values)
        until_gone(context, taken, response.ByteSize())
    except BaseException:
        taken.give_back()
        raise
    return response


async def lsn_at_time(
    store: StoreContext, request: log_pb2.LsnAtTimeRequest, context: Context
) -> log_pb2.LsnAtTimeResponse:
    """One LsnAtTime. Raises InvalidArgument, Busy (`answers`), and what `read_index` raises."""
    shard = log_shard(request.shard_id)
    if request.stale:
        await check_lineage(store, shard, request.lineage, context, stale=True)
    else:
        with in_time(context, store.limits, store.host.expire, shard) as limit_s:
            await store.host.read_index(shard, limit_s)
        check_confirmed(store, shard, request.lineage)
    wait_s = min(timeout_s(context, store.limits), bounds.ANSWER_WAIT_S)
    found = await search(store, shard, request.append_time_us, wait_s)
    position = store.position(shard)
    position.first_lsn, position.applied_lsn = found.first_lsn, found.applied_lsn
    return log_pb2.LsnAtTimeResponse(position=position, lsn=found.lsn, truncated=found.truncated)


async def search(
    store: StoreContext, shard: ShardId, append_time_us: int, wait_s: float
) -> FoundTime:
    """Where the records at a time begin. Raises Busy.

    Entries are read one at a time, some on the disk, and count as answers do. What a search pays
    for is its place among the catch-up reads.
    """
    kind = ReadClass.CATCH_UP
    taken = await take_answer(store, kind, bounds.ENTRY_PAYLOAD_BYTES_MAX, wait_s)
    try:
        turn = await store.host.reads.of[kind].begin(calling.get(ANYBODY), 0, wait_s)
        try:
            return await store.host.lsn_at_time(shard, append_time_us)
        finally:
            turn.end(0)
    finally:
        taken.give_back()


async def follow(store: StoreContext, request: log_pb2.FollowRequest, context: Context) -> None:
    """One Follow: writes messages until a stop condition holds or the caller goes away."""
    await _Follow(store, request, context).run()


class _Follow:
    """One call. `next_lsn`: every LSN before it was sent, or skipped by time. `told_end`: the end
    of the log, once a message has named it.
    """

    def __init__(
        self, store: StoreContext, request: log_pb2.FollowRequest, context: Context
    ) -> None:
        self._store = store
        self._host: NodeHost = store.host
        self._request = request
        self._context = context
        self._shard = log_shard(request.shard_id)
        self._start = readable_lsn(request.lsn)
        self._next_lsn = self._start
        self._told_lsn = self._start
        self._told_end = Lsn(0)
        self._until_lsn: int = request.until_lsn
        self._begun = not request.from_append_time_us
        self._bytes = 0
        self._records = 0

    async def run(self) -> None:
        if 0 < self._until_lsn < self._start:
            raise InvalidArgument("until_lsn is before lsn", field="until_lsn")
        with in_time(self._context, self._store.limits, self._host.expire, self._shard) as limit_s:
            await self._host.read_index(self._shard, limit_s)
        check_confirmed(self._store, self._shard, self._request.lineage)
        if not self._begun:
            await self._begin_at_time()
        if self._request.until_tail:
            tail = (await self._read(1)).applied_lsn
            self._until_lsn = min(self._until_lsn or tail, tail)
            if tail < self._start:
                return
        while True:
            finished = await self._send_next()
            if finished:
                return
            if finished is None:
                await self._host.replicas.running[self._shard].wait_lsn(self._next_lsn, _WAIT_S)

    async def _begin_at_time(self) -> None:
        """Begin at the append time, if that is above the request's LSN."""
        wanted = self._request.from_append_time_us
        found = await search(self._store, self._shard, wanted, bounds.ANSWER_WAIT_S)
        if found.truncated and self._start < found.first_lsn:
            raise Truncated(
                "records at that time may have been truncated", first_lsn=found.first_lsn
            )
        self._next_lsn = self._start = Lsn(max(self._start, found.lsn))

    async def _send_next(self) -> bool | None:
        """Send one message; returns whether a stop condition holds behind it, None at the tail."""
        wanted = self._bytes_wanted()
        read_class = self._host.read_class(self._shard, self._next_lsn)
        taken = await take_answer(
            self._store, read_class, at_most(wanted), bounds.STREAM_WRITE_STALL_S
        )
        try:
            found = await self._read(wanted)
            if not found.runs and not found.end_lsn:
                return None
            runs, finished = self._choose(found.runs)
            finished = finished or self._next_lsn == found.end_lsn
            if runs:
                response = self._response(found, runs)
                taken.shrink(response.ByteSize())
                await self._context.write(response)
            if finished and (self._told_lsn, self._told_end) != (self._next_lsn, found.end_lsn):
                # The LSNs were skipped by time, or the end was reached before the Close came: the
                # caller learns where to go on, and that there is nothing, all the same.
                await self._context.write(self._response(found, ()))
            return finished
        finally:
            taken.give_back()

    async def _read(self, wanted: int) -> LogSlice:
        read_class = self._host.read_class(self._shard, self._next_lsn)
        return await read_in_turn(
            self._store,
            read_class,
            self._shard,
            self._next_lsn,
            wanted,
            bounds.STREAM_WRITE_STALL_S,
        )

    def _bytes_wanted(self) -> int:
        goal = min(bounds.STREAM_MESSAGE_BYTES_GOAL, self._store.limits.read_bytes_max)
        left: int = self._request.max_bytes - self._bytes
        return min(goal, max(left, 1)) if self._request.max_bytes else goal

    def _choose(self, found: Iterable[LogRun]) -> tuple[list[LogRun], bool]:
        """The runs to send, and whether a stop condition holds behind them."""
        request = self._request
        runs: list[LogRun] = []
        for run in found:
            written_us = _written_us(run.block) if run.gap is None else None
            if written_us is not None and 0 < request.until_timestamp_us <= written_us:
                return runs, True
            appended_us = run.append_time_us
            if 0 < request.until_append_time_us <= appended_us:
                return runs, True
            self._begun = self._begun or appended_us >= request.from_append_time_us
            after = run.first_lsn + run.record_count
            late_enough = written_us is None or written_us >= request.from_timestamp_us
            if self._begun and late_enough:
                runs.append(run)
                self._bytes += len(run.block)
                self._records += after - max(run.first_lsn, self._next_lsn)
            self._next_lsn = Lsn(after)
            if (
                0 < self._until_lsn < after
                or 0 < request.max_records <= self._records
                or 0 < request.max_bytes <= self._bytes
            ):
                return runs, True
        return runs, False

    def _response(self, found: LogSlice, runs: Sequence[LogRun]) -> AnswerBytes:
        response = _response(self._store, self._shard, found, runs)
        response.message.next_lsn = self._told_lsn = self._next_lsn
        self._told_end = found.end_lsn
        return response


def at_most(max_bytes: int) -> int:
    """The largest answer to a request for `max_bytes`: its last block may reach beyond that
    size.
    """
    return max_bytes + bounds.BLOCK_BYTES_MAX


def _written_us(block: bytes | memoryview) -> int:
    written_us: int = _TIMESTAMP.unpack_from(block, HEADER_BYTES - _TIMESTAMP.size)[0]
    return written_us


def _response(
    store: StoreContext,
    shard: ShardId,
    found: LogSlice,
    runs: Sequence[LogRun],
    *,
    values: bool = True,
) -> AnswerBytes:
    position = store.position(shard)
    position.first_lsn = found.first_lsn
    position.applied_lsn = found.applied_lsn
    response = AnswerBytes(
        log_pb2.ReadResponse(position=position, next_lsn=found.next_lsn, end_lsn=found.end_lsn),
        runs,
    )
    for run in runs:
        # Most are blocks with their values, and every field costs something.
        block = log_pb2.LogBlock(
            first_lsn=run.first_lsn,
            record_count=run.record_count,
            term=run.term,
            append_time_us=run.append_time_us,
        )
        if run.gap is not None:
            block.gap = GAP_REASONS[run.gap]
            response.add(block, b"")
        elif values or is_wide(run.block):
            # Only readers open a wide block, and its records may have a time each.
            response.add(block, run.block)
        else:
            block.block_bytes = len(run.block)
            block.timestamp_us = _written_us(run.block)
            response.add(block, b"")
    return response
