"""tail: follow a log into a Delta table.

Theory of operation. Blocks are collected, and committed as Arrow columns when there are enough of
them or the oldest one has waited long enough. A commit is one Parquet file or more, and one entry
of Delta's log; so small commits cost later, and large ones come late. The commit runs on a thread.
Meanwhile nothing is taken from the follow, and a store that sends faster than the table takes
waits.

Where the log is truncated before the table has it, the tail ends with Truncated, and the LSNs are
named: no row of the range is put in. With a hold nothing is truncated meanwhile: it is moved on
behind each commit, and it expires when nobody renews it.

A block whose columns are not what they say ends the tail, too: its error names the LSNs, and no row
of that commit is put in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from logservice_client import Gap, Records, Shard
from logservice_client.arrow import joined_batch, record_batch, repeated
from logservice_client.following import Answer
from logservice_client.held_log import HeldLog

from logservice_delta.table import SCHEMA, LogTable

PATIENCE_S: Final = 60.0
"""How long a commit that does not happen is tried again, and how long a follow waits for a replica
that serves."""


ALONE_BYTES: Final = 64 * 1024
"""A block that opens to this size is a batch of its own, not copied; smaller ones are joined."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When rows are committed: with so many bytes of opened blocks, or so many seconds after the
    first.
    """

    commit_bytes: int = 64 * 1024 * 1024
    commit_s: float = 10.0


def opened_bytes(item: Records) -> int:
    """About what its columns need in memory: a compressed block opens to up to 255 times as much as
    came.
    """
    return max(len(item.block.data), item.block.plain_bytes)


@dataclass(slots=True)
class Waiting:
    """What is not in the table yet."""

    items: list[Records] = field(default_factory=list)
    size: int = 0
    last_lsn: int = 0
    """Of what was taken, gaps included."""

    def take(self, item: Records | Gap) -> None:
        self.last_lsn = item.next_lsn - 1
        if isinstance(item, Records):
            self.items.append(item)
            self.size += opened_bytes(item)

    def rows(self, shard: int) -> pa.Table:
        """All of it. Values of large blocks are not copied."""
        found = pa.Table.from_batches(list(self._batches()))
        shards = repeated(shard, len(found), pa.int64())
        return found.add_column(0, SCHEMA.field("shard"), shards)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        together: list[Records] = []
        for one in self.items:
            if opened_bytes(one) >= ALONE_BYTES:
                if together:
                    yield joined_batch(together)
                    together = []
                yield record_batch(one)
            else:
                together.append(one)
        if together:
            yield joined_batch(together)


async def tail(
    log: Shard,
    table: LogTable,
    *,
    until_tail: bool = False,
    pace: Pace | None = None,
    stop: asyncio.Event | None = None,
    hold: HeldLog | None = None,
    committed: Callable[[int, int], None] = lambda rows, last_lsn: None,
) -> int:
    """Bring what `log` has behind `table.last_lsn` into the table: for ever, until the tail as it
    is now, or until `stop` is set, with everything committed that was taken. `hold` is one that
    stands, and is moved on. `committed` is told of each commit: its rows, and its last LSN.

    Returns the rows that were put in. Raises what `Shard.follow` and `LogTable.append` raise.
    """
    tailing = _Tail(log, table, pace or Pace(), hold, committed)
    return await tailing.run(until_tail, stop or asyncio.Event())


class _Tail:
    def __init__(
        self,
        log: Shard,
        table: LogTable,
        pace: Pace,
        hold: HeldLog | None,
        committed: Callable[[int, int], None],
    ) -> None:
        self._log = log
        self._table = table
        self._pace = pace
        self._hold = hold
        self._committed = committed
        self._waiting = Waiting()
        self._rows = 0
        self._due_s = 0.0

    async def run(self, until_tail: bool, stop: asyncio.Event) -> int:
        """See `tail`."""
        now_s = asyncio.get_running_loop().time
        stopping = asyncio.create_task(stop.wait())
        arriving: asyncio.Task[Answer | None] | None = None
        begin = self._table.last_lsn + 1
        answers = self._log.follow_answers(begin, until_tail=until_tail, patience=PATIENCE_S)
        async with aclosing(answers):
            try:
                while not stop.is_set():
                    if arriving is None:
                        arriving = asyncio.create_task(_next(answers))
                    wait_s = max(0.0, self._due_s - now_s()) if self._waiting.items else None
                    await asyncio.wait(
                        {arriving, stopping}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    if arriving.done():
                        answer, arriving = arriving.result(), None
                        if answer is None:
                            break
                        for item in answer.items:
                            if not self._waiting.items:
                                self._due_s = now_s() + self._pace.commit_s
                            self._waiting.take(item)
                            if self._waiting.size >= self._pace.commit_bytes:
                                await self._commit()
                    if self._waiting.items and now_s() >= self._due_s:
                        await self._commit()
            finally:
                for task in (stopping, arriving):
                    if task is not None:
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await task
        await self._commit()
        return self._rows

    async def _commit(self) -> None:
        waiting = self._waiting
        if not waiting.items:
            return
        rows = waiting.rows(self._log.shard_id)
        await asyncio.to_thread(self._table.append, rows, waiting.last_lsn, patience_s=PATIENCE_S)
        self._waiting = Waiting()
        self._rows += len(rows)
        self._committed(len(rows), waiting.last_lsn)
        if self._hold is not None:
            await self._hold.move(waiting.last_lsn + 1)
            self._hold.check()


async def _next(answers: AsyncGenerator[Answer]) -> Answer | None:
    return await anext(answers, None)
