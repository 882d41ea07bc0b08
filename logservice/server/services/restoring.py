"""restoring: a store's part in the restore of a log.

Theory of operation. What may get into a restored log is `rsm.restoring`'s to decide. Here the
blocks of a call are checked as those of an append are, and proposed in their order; each expects
the LSN behind the one before it, so behind the first one that is refused no other one is taken. The
caller is told how far it got. Nothing is passed on to another store: the leader's takes them
itself.

At the end the leader's store computes the digest of the range from its own log, and states it in
the entry that opens the log (INV-RESTORE-3). A long range takes more time than a call has. So a
call answers after DIGEST_CALL_S, and the store remembers the digest so far; another leader, or a
store that was started again, begins anew. What is remembered is small, and of few logs
(RESTORE_VERIFICATIONS_MAX).

A mirror has promised nothing, so the call that promotes it names the range and the source's digest.
They are compared here, before anything is proposed; a call that names no digest takes the log as it
is. The range is in the entry, and the state machine looks at it once more (INV-MIRROR-2). A call
may name the LSN from which on it wants them compared; then only that is read.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice_wire.block import validate_block
from logservice_wire.digest import DIGEST_BYTES, Digester
from logservice_wire.errors import (
    BeyondTail,
    CorruptBlock,
    InvalidArgument,
    LogServiceError,
    TooLarge,
    Truncated,
    VerbRefused,
    too_new,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.checksum import crc32
from logservice.ids import NO_SESSION, Lsn, ShardId
from logservice.lineage import LINEAGE_BYTES, NO_LINEAGE
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.queries import LogStatus, LogStatusQuery
from logservice.rsm.restoring import RESTORED_GAPS, Restoring
from logservice.rsm.state import TIMESTAMP_MAX
from logservice.server.edge.call import Context, effect, in_time
from logservice.server.services.context import StoreContext, log_shard
from logservice.server.services.digesting import feed
from logservice.server.services.reading import at_most

_SINCE: Final = 2
"""The first cluster version that restores: an older replica does not understand the commands."""


def standing(status: LogStatus) -> log_pb2.Restoring | None:
    """How far the restore is, for GetShardStatus."""
    restoring = status.restoring
    if restoring is None:
        return None
    return log_pb2.Restoring(
        base_lsn=restoring.base_lsn,
        end_lsn=restoring.end_lsn,
        next_lsn=status.next_lsn,
        digest=b"" if restoring.mirror else restoring.digest,
        mirror=restoring.mirror,
    )


def begin(store: StoreContext, request: log_pb2.BeginRestoreRequest) -> commands.BeginRestore:
    """The command of a BeginRestore. Raises InvalidArgument, and NotReady below cluster version
    2.
    """
    store.need_version(_SINCE)
    if request.mirror and (request.end_lsn or request.digest):
        raise InvalidArgument("the end of a mirror is open: it has no digest", field="mirror")
    if not (request.mirror or request.end_lsn):
        raise InvalidArgument("a restore has an end", field="restore")
    return commands.BeginRestore(
        store.author(),
        request.lineage.number,
        request.lineage.id,
        request.parent or NO_LINEAGE,
        Lsn(request.base_lsn),
        Lsn(request.end_lsn),
        request.writer_epoch,
        request.next_timestamp,
        bytes(DIGEST_BYTES) if request.mirror else request.digest,
    )


async def take(
    store: StoreContext, request: log_pb2.RestoreBlocksRequest, context: Context
) -> log_pb2.RestoreBlocksResponse:
    """One RestoreBlocks. Raises what an append raises, and InvalidArgument, TooLarge,
    ShardRestoring (another restore), VerbRefused (none); then nothing was taken.
    """
    store.need_version(_SINCE)
    shard, lineage = log_shard(request.shard_id), _lineage(request.lineage)
    truncate = None
    if request.truncated_lsn:
        command = commands.TruncateMirror(store.author(), lineage, Lsn(request.truncated_lsn))
        truncate = commands.encode(command)
    appends = [] if truncate and not request.blocks else _appends(request, store.author(), lineage)
    end_lsn = appends[-1].expected_lsn + appends[-1].record_count if appends else 0
    if truncate and appends:
        # Once the blocks are taken a refusal could not be told any more (INV-EFFECT-1).
        _check_truncation(store, shard, request.truncated_lsn, Lsn(end_lsn))
    with in_time(context, store.limits, store.host.expire, shard) as limit_s:
        waiting: list[asyncio.Future[Applied]] = []
        error: LogServiceError | None = None
        for append in appends:
            try:
                submitted = store.host.submit_append(shard, append, limit_s, local_only=True)
                waiting.append(submitted)
            except LogServiceError as refused:
                error = refused
                break
        next_lsn = await effect(_taken(waiting, error)) if appends else 0
        response = log_pb2.RestoreBlocksResponse(next_lsn=next_lsn)
        # Behind a block that was not taken nothing is truncated either: the caller goes on there.
        if truncate and next_lsn == end_lsn:
            applied = await effect(store.host.propose(shard, truncate, limit_s))
            response.next_lsn, response.truncated_lsn = applied.lsn, applied.value
    response.position.CopyFrom(store.position(shard))
    return response


def _check_truncation(store: StoreContext, shard: ShardId, lsn: int, end_lsn: Lsn) -> None:
    """Raises BeyondTail when the mirror will not have that LSN, and VerbRefused for a log that is
    none.
    """
    if lsn >= end_lsn:
        raise BeyondTail("a mirror truncates only what it has", next_lsn=end_lsn)
    status = store.host.stale_lookup(shard, LogStatusQuery())
    assert isinstance(status, LogStatus)
    if status.restoring is not None and not status.restoring.mirror:
        raise VerbRefused("the log is no mirror", why="restored")


async def _taken(waiting: list[asyncio.Future[Applied]], refused: LogServiceError | None) -> int:
    """The LSN behind the last block that was taken; raises why none was."""
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    next_lsn = 0
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            if next_lsn:
                break
            raise outcome
        next_lsn = outcome.lsn + outcome.count
    if not next_lsn:
        assert refused is not None
        raise refused
    return next_lsn


def _appends(
    request: log_pb2.RestoreBlocksRequest, author: Author, lineage: bytes
) -> list[AppendRequest]:
    if not 0 < len(request.blocks) <= bounds.RESTORE_CALL_ITEMS_MAX:
        raise TooLarge(
            "a call restores at least one block",
            name="blocks",
            value=len(request.blocks),
            limit=bounds.RESTORE_CALL_ITEMS_MAX,
        )
    if request.first_lsn == 0:
        raise InvalidArgument("LSNs start at 1", field="first_lsn")
    lsn, found, claim = request.first_lsn, [], author.claim(lineage)
    for item in request.blocks:
        if item.append_time_us < 0:
            raise InvalidArgument("append times begin at 1", field="append_time_us")
        if not item.gap:
            count = validate_block(item.block, crc32=crc32)
        elif item.block or not 0 < item.record_count <= bounds.RESTORED_GAP_LSNS_MAX:
            raise InvalidArgument("a gap has LSNs, and no block", field="blocks")
        elif item.gap not in RESTORED_GAPS:
            raise too_new(f"reason {item.gap}", f"the gap at LSN {lsn}")
        else:
            count = item.record_count
        append = AppendRequest(
            NO_SESSION,
            item.gap,
            0,
            Lsn(lsn),
            count,
            item.block,
            claim,
            restored=True,
            append_time_us=item.append_time_us,
        )
        found.append(append)
        lsn += count
    return found


_Key = tuple[ShardId, bytes, Lsn, Lsn]
"""The log, its lineage, the range."""


class Verifications:
    """The ends of restores on one store."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store
        self._begun: dict[_Key, Digester] = {}

    async def finish(
        self, request: log_pb2.FinishRestoreRequest, context: Context
    ) -> log_pb2.FinishRestoreResponse:
        """One FinishRestore. Raises ShardRestoring (LSNs are missing, or a mirror has another
        range), CorruptBlock (the digest is another one; the log stays shut), LineageChanged,
        VerbRefused, InvalidArgument, and what a command raises.
        """
        store = self._store
        store.need_version(_SINCE)
        shard, lineage = log_shard(request.shard_id), _lineage(request.lineage)
        with in_time(context, store.limits, store.host.expire, shard) as limit_s:
            status = await store.host.lookup(shard, LogStatusQuery(), limit_s)
            assert isinstance(status, LogStatus)
            promised = status.restoring
            if promised is None:
                if status.lineage.id != lineage:
                    raise VerbRefused("the log is not being restored", why="open")
                if request.end_lsn and request.end_lsn != status.lineage.fork_lsn + 1:
                    raise VerbRefused("the mirror was promoted at another LSN", why="open")
                return log_pb2.FinishRestoreResponse(position=store.position(shard), open=True)
            check_range(request, promised, status.next_lsn)
            base_lsn, end_lsn = promised.base_lsn, status.next_lsn
            digest, from_lsn = bytes(DIGEST_BYTES), Lsn(request.digest_lsn or base_lsn)
            if from_lsn < end_lsn:  # A mirror may have nothing left.
                key = (shard, lineage, from_lsn, end_lsn)
                # One of two calls for the same log at a time has what is remembered.
                digester = self._begun.pop(key, None) or Digester(from_lsn, end_lsn)
                try:
                    done = await self._digest(shard, digester, limit_s)
                except Truncated as moved:
                    raise promised.refusal(end_lsn).error() from moved
                if not done:
                    self._remember(key, digester)
                    return log_pb2.FinishRestoreResponse(
                        position=store.position(shard), verified_lsn=digester.next_lsn
                    )
                digest = digester.digest()
            if request.digest and digest != request.digest:
                raise CorruptBlock("the mirror's digest is not the source's")
            command = commands.EndRestore(
                store.author(),
                lineage,
                digest,
                base_lsn,
                end_lsn,
                request.next_timestamp,
                Lsn(request.digest_lsn),
            )
            await effect(store.host.propose(shard, commands.encode(command), limit_s))
        return log_pb2.FinishRestoreResponse(
            position=store.position(shard), open=True, verified_lsn=end_lsn
        )

    async def _digest(self, shard: ShardId, digester: Digester, limit_s: float) -> bool:
        """Go on for as long as a call may; returns whether the digest is there."""
        store, loop = self._store, asyncio.get_running_loop()
        goal = min(bounds.STREAM_MESSAGE_BYTES_GOAL, store.limits.read_bytes_max)
        until_s = loop.time() + min(bounds.DIGEST_CALL_S, limit_s / 2)
        taken = await store.answers.take(at_most(goal), min(limit_s, bounds.ANSWER_WAIT_S))
        try:
            while not digester.done and loop.time() < until_s:
                found = await store.host.read_log(
                    shard, Lsn(digester.next_lsn), goal, restoring=True
                )
                await feed(store, shard, digester, found)
        finally:
            taken.give_back()
        return digester.done

    def _remember(self, key: _Key, digester: Digester) -> None:
        while len(self._begun) >= bounds.RESTORE_VERIFICATIONS_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[key] = digester


def check_range(request: log_pb2.FinishRestoreRequest, promised: Restoring, next_lsn: Lsn) -> None:
    """Raises ShardRestoring unless the log has the whole range, a mirror that of the request; and
    InvalidArgument for a request that no mirror, or no other restore, is ended by.
    """
    named = request.base_lsn or request.end_lsn or request.digest or request.next_timestamp
    if not promised.mirror:
        if named or request.digest_lsn:
            raise InvalidArgument("the log is no mirror: its end was promised", field="end_lsn")
        if next_lsn != promised.end_lsn:
            raise promised.refusal(next_lsn).error()
        return
    if not request.end_lsn:
        raise InvalidArgument("a mirror opens at an LSN that is named", field="end_lsn")
    if request.digest and len(request.digest) != DIGEST_BYTES:
        raise InvalidArgument(f"{DIGEST_BYTES} bytes, or none", field="digest")
    if request.digest and not (request.base_lsn or request.digest_lsn):
        raise InvalidArgument("a digest is of a range", field="base_lsn")
    if request.digest_lsn and not request.base_lsn <= request.digest_lsn <= request.end_lsn:
        raise InvalidArgument("a digest is of a part of the range", field="digest_lsn")
    if request.next_timestamp > TIMESTAMP_MAX:
        raise InvalidArgument("no timestamp is so high", field="next_timestamp")
    here = (request.base_lsn or promised.base_lsn, request.end_lsn)
    digest_lsn = request.digest_lsn or promised.base_lsn
    if here != (promised.base_lsn, next_lsn) or not promised.base_lsn <= digest_lsn <= next_lsn:
        raise promised.refusal(next_lsn).error()
    if request.digest and next_lsn == digest_lsn:
        raise InvalidArgument("a mirror without LSNs has no digest", field="digest")


def _lineage(lineage: bytes) -> bytes:
    if len(lineage) != LINEAGE_BYTES or lineage == NO_LINEAGE:
        raise InvalidArgument("the lineage that the restore has begun", field="lineage")
    return lineage
