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
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice_wire.block import validate_block
from logservice_wire.digest import Digester
from logservice_wire.errors import (
    InvalidArgument,
    LogServiceError,
    ShardRestoring,
    TooLarge,
    VerbRefused,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.checksum import crc32
from logservice.ids import NO_SESSION, Lsn, ShardId
from logservice.lineage import LINEAGE_BYTES, NO_LINEAGE
from logservice.outcome import Applied
from logservice.owner import Claim
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.queries import LogStatus, LogStatusQuery
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
        digest=restoring.digest,
    )


def begin(store: StoreContext, request: log_pb2.BeginRestoreRequest) -> commands.BeginRestore:
    """The command of a BeginRestore. Raises NotReady below cluster version 2."""
    store.need_version(_SINCE)
    return commands.BeginRestore(
        store.author(),
        request.lineage.number,
        request.lineage.id,
        request.parent or NO_LINEAGE,
        Lsn(request.base_lsn),
        Lsn(request.end_lsn),
        request.writer_epoch,
        request.next_timestamp,
        request.digest,
    )


async def take(
    store: StoreContext, request: log_pb2.RestoreBlocksRequest, context: Context
) -> log_pb2.RestoreBlocksResponse:
    """One RestoreBlocks. Raises what an append raises, and InvalidArgument, TooLarge,
    ShardRestoring (another restore), VerbRefused (none); then nothing was taken.
    """
    store.need_version(_SINCE)
    shard = log_shard(request.shard_id)
    appends = _appends(request, store.author().claim(_lineage(request.lineage)))
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
        next_lsn = await effect(_taken(waiting, error))
    return log_pb2.RestoreBlocksResponse(position=store.position(shard), next_lsn=next_lsn)


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


def _appends(request: log_pb2.RestoreBlocksRequest, claim: Claim) -> list[AppendRequest]:
    if not 0 < len(request.blocks) <= bounds.RESTORE_CALL_ITEMS_MAX:
        raise TooLarge(
            "a call restores at least one block",
            name="blocks",
            value=len(request.blocks),
            limit=bounds.RESTORE_CALL_ITEMS_MAX,
        )
    if request.first_lsn == 0:
        raise InvalidArgument("LSNs start at 1", field="first_lsn")
    lsn, found = request.first_lsn, []
    for item in request.blocks:
        if item.append_time_us < 0:
            raise InvalidArgument("append times begin at 1", field="append_time_us")
        if not item.gap:
            count = validate_block(item.block, crc32=crc32)
        elif item.block or not 0 < item.record_count <= bounds.RESTORED_GAP_LSNS_MAX:
            raise InvalidArgument("a gap has LSNs, and no block", field="blocks")
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


class Verifications:
    """The ends of restores on one store."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store
        self._begun: dict[tuple[ShardId, bytes], Digester] = {}

    async def finish(
        self, request: log_pb2.FinishRestoreRequest, context: Context
    ) -> log_pb2.FinishRestoreResponse:
        """One FinishRestore. Raises ShardRestoring (LSNs are missing), CorruptBlock (the digest is
        another one; the log stays shut), LineageChanged, VerbRefused, and what a command raises.
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
                return log_pb2.FinishRestoreResponse(position=store.position(shard), open=True)
            if status.next_lsn != promised.end_lsn:
                raise ShardRestoring(next=status.next_lsn, end=promised.end_lsn)
            key = (shard, lineage)
            digester = self._begun.pop(key, None) or Digester(promised.base_lsn, promised.end_lsn)
            # One of two calls for the same log at a time has what is remembered.
            if not await self._digest(shard, digester, limit_s):
                self._remember(key, digester)
                return log_pb2.FinishRestoreResponse(
                    position=store.position(shard), verified_lsn=digester.next_lsn
                )
            command = commands.EndRestore(store.author(), lineage, digester.digest())
            await effect(store.host.propose(shard, commands.encode(command), limit_s))
        return log_pb2.FinishRestoreResponse(
            position=store.position(shard), open=True, verified_lsn=promised.end_lsn
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

    def _remember(self, key: tuple[ShardId, bytes], digester: Digester) -> None:
        while len(self._begun) >= bounds.RESTORE_VERIFICATIONS_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[key] = digester


def _lineage(lineage: bytes) -> bytes:
    if len(lineage) != LINEAGE_BYTES or lineage == NO_LINEAGE:
        raise InvalidArgument("the lineage that the restore has begun", field="lineage")
    return lineage
