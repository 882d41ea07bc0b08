"""restoring: brings the records of another log into a log of this cluster.

Theory of operation. A *promise* is made first: the range, its digest, and the lineage that the log
will have. Whoever makes it has read and checked everything (`restore_plan` of an archive,
`branching` of a log that lives). The log in the cluster then keeps what matters: the promise, and
how far it is. So this process may be killed at any step, and the next one goes on at the log's next
LSN; two at once do no harm, for each block says its LSN and only the next one is taken. A restore
of another range or of other records than those that were begun is refused.

The log's lineage is drawn here, at random, and names the restore. A log whose lineage forks at the
end of the range, and which has its digest, was restored already.

Where the blocks come from is a `Source`'s to know (`archived_blocks`, `living_blocks`). Blocks are
sent call by call; while one is under way the next one is read. The rate is kept by waiting between
calls, so that the cluster's other logs keep their share.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from logservice_client import Shard
from logservice_client.pacing import Backoff
from logservice_wire.digest import digest_text
from logservice_wire.errors import (
    InvalidArgument,
    LineageChanged,
    LogServiceError,
    Outcome,
    Truncated,
    VerbRefused,
    WrongExpectedLsn,
)
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.lineage import LINEAGE_BYTES

STEPS: Final = ("begun", "blocks-taken", "all-taken", "open")
"""What is behind a restore when it calls `reached`."""


TIMESTAMP_MAX: Final = 2**63 - 1
"""A log that has come so far gives out none."""


def timestamps_after(known: int) -> int:
    """The next timestamp of a log whose source has `known` as its next one; 0: nobody knows."""
    if not 1 <= known <= TIMESTAMP_MAX:
        return TIMESTAMP_MAX
    return min(known + bounds.LINEAGE_TIMESTAMP_STEP, TIMESTAMP_MAX)


@dataclass(frozen=True, slots=True)
class Promise:
    """The range [base_lsn, end_lsn) and its digest. number: of the lineage that the log will have;
    parent: that of the source. writer_epoch: the newest that the source is known to have granted.
    """

    base_lsn: int
    end_lsn: int
    digest: bytes
    number: int
    parent: bytes
    writer_epoch: int
    next_timestamp: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call brings: blocks for the LSNs [first_lsn, end_lsn)."""

    first_lsn: int
    end_lsn: int
    size: int
    blocks: list[log_pb2.RestoredBlock]


def check_no_mirror(restoring: log_pb2.Restoring) -> None:
    """Raises InvalidArgument: a mirror follows its source until it is promoted, and has no end."""
    if restoring.mirror:
        raise InvalidArgument("the log is a mirror of another one", field="log")


class Source(Protocol):
    """Where the blocks come from."""

    def batches(self, lsn: int) -> AsyncGenerator[Batch]:
        """What the log takes from `lsn` on, up to the end of the promise."""


class Batching:
    """Makes batches of blocks that come one after another."""

    def __init__(self, lsn: int) -> None:
        """`lsn`: of the first block."""
        self._first_lsn = self._next_lsn = lsn
        self._size = 0
        self._blocks: list[log_pb2.RestoredBlock] = []

    def add(self, block: log_pb2.RestoredBlock, count: int) -> Batch | None:
        """Take a block of `count` LSNs. Returns the batch before it, if that one is full now."""
        full = self._size + len(block.block) > bounds.RESTORE_CALL_BYTES
        done = None
        if self._blocks and (full or len(self._blocks) >= bounds.RESTORE_CALL_ITEMS_MAX):
            done = self.rest()
        self._blocks.append(block)
        self._size += len(block.block)
        self._next_lsn += count
        return done

    def rest(self) -> Batch | None:
        """The blocks that are in no batch yet; None for none."""
        if not self._blocks:
            return None
        made = Batch(self._first_lsn, self._next_lsn, self._size, self._blocks)
        self._first_lsn, self._size, self._blocks = self._next_lsn, 0, []
        return made


def below_base(lsn: int, base_lsn: int, time_us: int) -> Iterator[log_pb2.RestoredBlock]:
    """Gaps from `lsn` up to the base: those LSNs were truncated in the source, and nobody reads
    them here either.
    """
    while lsn < base_lsn:
        count = min(base_lsn - lsn, bounds.RESTORED_GAP_LSNS_MAX)
        yield log_pb2.RestoredBlock(
            gap=log_pb2.GAP_REASON_FENCED, record_count=count, append_time_us=time_us
        )
        lsn += count


class Restorer:
    """One log."""

    def __init__(
        self,
        shard: Shard,
        promise: Promise,
        source: Source,
        *,
        bytes_per_s: int = bounds.RESTORE_BYTES_PER_S,
        patience_s: float = bounds.RESTORE_PATIENCE_S,
        progress: Callable[[int], None] = lambda _: None,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`progress` is told the next LSN. `patience_s`: how long calls may fail, one after
        another, before it gives up for now. `reached`: tests end the process there.
        """
        self._shard = shard
        self._promise = promise
        self._source = source
        self._bytes_per_s = bytes_per_s
        self._patience_s = patience_s
        self._progress = progress
        self._reached = reached

    async def run(self) -> bool:
        """Restore, verify, open; False: the log was restored before.

        Raises InvalidArgument (the log is another one), CorruptBlock (what was
        restored has another digest; it stays shut), and what the calls and
        the source raise.
        """
        next_lsn = await self._begin()
        if next_lsn is None:
            return False
        self._reached("begun")
        while next_lsn < self._promise.end_lsn:
            next_lsn = await self._send_from(next_lsn)
        self._reached("all-taken")
        await self._finish()
        self._reached("open")
        return True

    async def _begin(self) -> int | None:
        """The next LSN; None when there is nothing to do any more."""
        promise = self._promise
        status = await self._status()
        if not status.HasField("restoring") and not status.position.lineage.number:
            try:
                await self._shard.begin_restore(self._begin_request())
            except VerbRefused:
                # It is in use, or another restorer was faster.
                status = await self._status()
                if not status.position.lineage.number:
                    raise
            status = await self._status()
        if not status.HasField("restoring"):
            await self._check_done(status.position)
            return None
        found = status.restoring
        check_no_mirror(found)
        wanted = (promise.base_lsn, promise.end_lsn, promise.digest)
        if (found.base_lsn, found.end_lsn, found.digest) != wanted:
            raise InvalidArgument(
                f"another restore has begun in the log: LSNs {found.base_lsn} to "
                f"{found.end_lsn - 1} with {digest_text(found.digest)}",
                field="log",
            )
        return found.next_lsn

    def _begin_request(self) -> log_pb2.BeginRestoreRequest:
        promise = self._promise
        lineage = log_pb2.Lineage(number=promise.number, id=secrets.token_bytes(LINEAGE_BYTES))
        return log_pb2.BeginRestoreRequest(
            lineage=lineage,
            parent=promise.parent,
            base_lsn=promise.base_lsn,
            end_lsn=promise.end_lsn,
            writer_epoch=promise.writer_epoch,
            next_timestamp=promise.next_timestamp,
            digest=promise.digest,
        )

    async def _status(self) -> log_pb2.GetShardStatusResponse:
        """The log's; that it has become another lineage is what a restore is about."""
        try:
            return await self._shard.status()
        except LineageChanged:
            self._shard.accept_lineage()
            return await self._shard.status()

    async def _check_done(self, position: log_pb2.LogPosition) -> None:
        """Raises InvalidArgument unless the log was restored by this promise."""
        promise = self._promise
        same = position.lineage.fork_lsn == promise.end_lsn - 1
        if same:
            try:
                found = await self._shard.digest(promise.base_lsn, promise.end_lsn)
                same = str(found) == digest_text(promise.digest)
            except Truncated:
                same = False
        if not same:
            raise InvalidArgument("the log has another history, or is in use", field="log")

    async def _send_from(self, next_lsn: int) -> int:
        """Send what follows until all is there, or the log goes on at another LSN; returns its next
        LSN.
        """
        loop = asyncio.get_running_loop()
        batches = self._source.batches(next_lsn)
        reading = asyncio.ensure_future(anext(batches, None))
        try:
            while (batch := await reading) is not None:
                began_s = loop.time()
                reading = asyncio.ensure_future(anext(batches, None))
                next_lsn = await self._send(batch)
                self._progress(next_lsn)
                self._reached("blocks-taken")
                if next_lsn != batch.end_lsn:
                    return next_lsn
                await asyncio.sleep(batch.size / self._bytes_per_s - (loop.time() - began_s))
            return next_lsn
        finally:
            await asyncio.wait([reading])
            await batches.aclose()

    async def _send(self, batch: Batch) -> int:
        """The log's next LSN afterwards."""
        request = log_pb2.RestoreBlocksRequest(
            lineage=self._lineage(), first_lsn=batch.first_lsn, blocks=batch.blocks
        )
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                return await self._shard.restore_blocks(request)
            except (WrongExpectedLsn, VerbRefused):
                # An attempt whose answer was lost, or another restorer, which may have ended it.
                status = await self._status()
                open_by_now = not status.HasField("restoring")
                return self._promise.end_lsn if open_by_now else status.restoring.next_lsn
            except LogServiceError as error:
                lost = error.outcome is Outcome.UNKNOWN
                if not (error.retryable or lost) or loop.time() > until_s:
                    raise
                await asyncio.sleep(backoff.next_s(error))

    async def _finish(self) -> None:
        loop, backoff = asyncio.get_running_loop(), Backoff()
        until_s = loop.time() + self._patience_s
        while True:
            try:
                answer = await self._shard.finish_restore(self._lineage())
                if answer.open:
                    return
                until_s = loop.time() + self._patience_s
            except LogServiceError as error:
                lost = error.outcome is Outcome.UNKNOWN
                if not (error.retryable or lost) or loop.time() > until_s:
                    raise
                await asyncio.sleep(backoff.next_s(error))

    def _lineage(self) -> bytes:
        """That of the restore: the log has it since it began."""
        known = self._shard.lineage
        return known.id if known is not None else b""
