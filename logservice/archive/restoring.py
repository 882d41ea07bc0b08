"""restoring: brings one log from an archive into a cluster.

Theory of operation. The plan is made first: it reads and checks everything (`restore_plan`). The
log in the cluster then keeps what matters: the range and digest that are promised, and how far it
is. So this process may be killed at any step, and the next one goes on at the log's next LSN; two
at once do no harm, for each block says its LSN and only the next one is taken. A restore of another
range or of other records than those that were begun is refused.

The log's lineage is drawn here, at random, and names the restore. A log whose lineage forks at the
end of the range, and which has its digest, was restored already.

Blocks are sent call by call; while one is under way the next one is read. The rate is kept by
waiting between calls, so that the cluster's other logs keep their share.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

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
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest
from logservice.archive.restore_plan import Plan
from logservice.archive.restore_source import object_runs
from logservice.archive.sealing import Keys
from logservice.lineage import LINEAGE_BYTES

STEPS: Final = ("begun", "blocks-taken", "all-taken", "open")
"""What is behind a restore when it calls `reached`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one call brings: blocks for the LSNs [first_lsn, end_lsn)."""

    first_lsn: int
    end_lsn: int
    size: int
    blocks: list[log_pb2.RestoredBlock]


class Restorer:
    """One log."""

    def __init__(
        self,
        shard: Shard,
        files: Files,
        plan: Plan,
        keys: Keys | None = None,
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
        self._manifest = Manifest(files, plan.shard_id)
        self._plan = plan
        self._keys = keys
        self._bytes_per_s = bytes_per_s
        self._patience_s = patience_s
        self._progress = progress
        self._reached = reached

    async def run(self) -> bool:
        """Restore, verify, open; False: the log was restored before.

        Raises InvalidArgument (the log is another one), ArchiveDamaged, CorruptBlock (what was
        restored has another digest; it stays shut), and what the calls raise.
        """
        next_lsn = await self._begin()
        if next_lsn is None:
            return False
        self._reached("begun")
        while next_lsn < self._plan.end_lsn:
            next_lsn = await self._send_from(next_lsn)
        self._reached("all-taken")
        await self._finish()
        self._reached("open")
        return True

    async def _begin(self) -> int | None:
        """The next LSN; None when there is nothing to do any more."""
        plan = self._plan
        status = await self._status()
        if not status.HasField("restoring") and not status.position.lineage.number:
            try:
                await self._shard.begin_restore(self._promise())
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
        wanted = (plan.base_lsn, plan.end_lsn, plan.digest)
        if (found.base_lsn, found.end_lsn, found.digest) != wanted:
            raise InvalidArgument(
                f"another restore has begun in the log: LSNs {found.base_lsn} to "
                f"{found.end_lsn - 1} with {digest_text(found.digest)}",
                field="log",
            )
        return found.next_lsn

    def _promise(self) -> log_pb2.BeginRestoreRequest:
        plan = self._plan
        lineage = log_pb2.Lineage(number=plan.number, id=secrets.token_bytes(LINEAGE_BYTES))
        return log_pb2.BeginRestoreRequest(
            lineage=lineage,
            parent=plan.parent,
            base_lsn=plan.base_lsn,
            end_lsn=plan.end_lsn,
            writer_epoch=plan.writer_epoch,
            next_timestamp=plan.next_timestamp,
            digest=plan.digest,
        )

    async def _status(self) -> log_pb2.GetShardStatusResponse:
        """The log's; that it has become another lineage is what a restore is about."""
        try:
            return await self._shard.status()
        except LineageChanged:
            self._shard.accept_lineage()
            return await self._shard.status()

    async def _check_done(self, position: log_pb2.LogPosition) -> None:
        """Raises InvalidArgument unless the log was restored by this plan."""
        plan = self._plan
        same = position.lineage.fork_lsn == plan.end_lsn - 1
        if same:
            try:
                found = await self._shard.digest(plan.base_lsn, plan.end_lsn)
                same = str(found) == digest_text(plan.digest)
            except Truncated:
                same = False
        if not same:
            raise InvalidArgument("the log has another history, or is in use", field="log")

    async def _send_from(self, next_lsn: int) -> int:
        """Send what follows until all is there, or the log goes on at another LSN; returns its next
        LSN.
        """
        loop = asyncio.get_running_loop()
        batches = self._batches(next_lsn)
        reading = asyncio.ensure_future(asyncio.to_thread(next, batches, None))
        try:
            while (batch := await reading) is not None:
                began_s = loop.time()
                reading = asyncio.ensure_future(asyncio.to_thread(next, batches, None))
                next_lsn = await self._send(batch)
                self._progress(next_lsn)
                self._reached("blocks-taken")
                if next_lsn != batch.end_lsn:
                    return next_lsn
                await asyncio.sleep(batch.size / self._bytes_per_s - (loop.time() - began_s))
            return next_lsn
        finally:
            await asyncio.wait([reading])
            batches.close()

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
                return self._plan.end_lsn if open_by_now else status.restoring.next_lsn
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

    def _batches(self, next_lsn: int) -> Generator[Batch]:
        """What the log takes from `next_lsn` on, call by call."""
        blocks: list[log_pb2.RestoredBlock] = []
        size, first_lsn = 0, next_lsn
        for lsn, block in self._blocks(next_lsn):
            full = size + len(block.block) > bounds.RESTORE_CALL_BYTES
            if blocks and (full or len(blocks) >= bounds.RESTORE_CALL_ITEMS_MAX):
                yield Batch(first_lsn, lsn, size, blocks)
                blocks, size, first_lsn = [], 0, lsn
            blocks.append(block)
            size += len(block.block)
        if blocks:
            yield Batch(first_lsn, self._plan.end_lsn, size, blocks)

    def _blocks(self, lsn: int) -> Generator[tuple[int, log_pb2.RestoredBlock]]:
        """Each block with its LSN."""
        plan = self._plan
        while lsn < plan.base_lsn:
            # The LSNs below the base were truncated in the source; nobody reads them here either.
            count = min(plan.base_lsn - lsn, bounds.RESTORED_GAP_LSNS_MAX)
            yield (
                lsn,
                log_pb2.RestoredBlock(
                    gap=log_pb2.GAP_REASON_FENCED,
                    record_count=count,
                    append_time_us=plan.first_time_us,
                ),
            )
            lsn += count
        for row in plan.rows:
            if row.end_lsn <= lsn:
                continue
            with object_runs(self._manifest, row, self._keys) as found:
                for run in found:
                    part = run.part(lsn, plan.end_lsn)
                    if part is None:
                        continue
                    for block in part.blocks():
                        if not plan.timed:
                            block.append_time_us = 0
                        yield lsn, block
                        lsn += block.record_count or _count(block.block)


def _count(block: bytes) -> int:
    """The records of a block that was just made."""
    return int.from_bytes(block[8:12], "little")
