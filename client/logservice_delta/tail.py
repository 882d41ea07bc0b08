"""tail: follow a log into a Delta table.

Theory of operation. Blocks are collected, and committed as Arrow columns when there are enough of
them or the oldest one has waited long enough. A commit is one Parquet file or more, and one entry
of Delta's log; so small commits cost later, and large ones come late. The commit runs on a thread.
Meanwhile nothing is taken from the follow, and a store that sends faster than the table takes
waits.

Rows may belong together, as those of a transaction do. Who says so (`Ends`) gets them into the
table together: what has no end yet waits, in memory, for more of the log.

INV-TABLE-4: with an `Ends` each version of the table ends where that allows it.

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
from logservice_client.arrow import SCHEMA as LOG_SCHEMA
from logservice_client.arrow import joined_batch, record_batch, repeated
from logservice_client.background import begin_task
from logservice_client.following import Answer
from logservice_client.held_log import HeldLog
from logservice_wire.errors import CorruptBlock

from logservice_delta.table import SCHEMA, LogTable

PATIENCE_S: Final = 60.0
"""How long a commit that does not happen is tried again, and how long a follow waits for a replica
that serves."""


ALONE_BYTES: Final = 64 * 1024
"""A block that opens to this size is a batch of its own, not copied; smaller ones are joined."""


ITEM_BYTES: Final = 256
"""Of a block that waits, beside its bytes: Python's objects. A block of one byte has 48."""

TOGETHER_BYTES: Final = 16 * 1024 * 1024
"""Small blocks are put together until they have so many bytes; Arrow's columns end at 2 GiB."""

Unreadable = Callable[[int, CorruptBlock], None]
"""Is told of a block that nobody can read: its records, and what is wrong, from which LSN on."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When rows are committed: with so many bytes of opened blocks, or so many seconds after the
    first.
    """

    commit_bytes: int = 64 * 1024 * 1024
    commit_s: float = 10.0


Ends = Callable[[pa.Table], int]
"""How many of these rows, which have the columns of SCHEMA and are the next ones of a log, may be
committed now: up to the last that ends something. 0: none, and it is asked again when there are
more. Everything that is not committed stays in memory, so it also says where that ends."""


@dataclass(slots=True)
class Waiting:
    """What is not in the table yet: of these items what lies above `above`."""

    items: list[Records] = field(default_factory=list)
    size: int = 0
    last_lsn: int = 0
    """Of what was taken, gaps included."""
    above: int = 0

    def take(self, item: Records | Gap) -> None:
        self.last_lsn = item.next_lsn - 1
        if isinstance(item, Records):
            self.items.append(item)
            self.size += _memory_bytes(item)

    def rows(self, shard: int, unreadable: Unreadable | None = None) -> pa.Table:
        """All of it. Values of large blocks are not copied. Raises as `Records.columns`, but for
        CorruptBlock when `unreadable` is told of it.
        """
        found = pa.Table.from_batches(list(self._batches(unreadable)), LOG_SCHEMA)
        if self.items[0].first_lsn <= self.above:
            found = found.filter(pa.compute.field("lsn") > self.above)
        shards = repeated(shard, len(found), pa.int64())
        return found.add_column(0, SCHEMA.field("shard"), shards)

    def behind(self, lsn: int) -> Waiting:
        """What of it lies above `lsn`. A block that has both is kept whole until it is through."""
        items = [one for one in self.items if one.next_lsn > lsn + 1]
        return Waiting(items, sum(map(_memory_bytes, items)), self.last_lsn, lsn)

    def _batches(self, unreadable: Unreadable | None) -> Iterator[pa.RecordBatch]:
        together: list[Records] = []
        size = 0
        for one in self.items:
            weight = one.block.memory_bytes
            if weight >= ALONE_BYTES or size >= TOGETHER_BYTES:
                yield from _joined(together, unreadable)
                together, size = [], 0
            if weight >= ALONE_BYTES:
                yield from _joined([one], unreadable)
            else:
                together.append(one)
                size += weight
        yield from _joined(together, unreadable)


def _memory_bytes(item: Records) -> int:
    """What it is opened to counts: few bytes may be much memory (INV-BLOCK-BOMB)."""
    return ITEM_BYTES + item.block.memory_bytes


def _joined(items: list[Records], unreadable: Unreadable | None) -> list[pa.RecordBatch]:
    """One batch, if all of them can be read; else one for each that can."""
    if not items:
        return []
    try:
        return [joined_batch(items)]
    except CorruptBlock:
        batches = []
    for one in items:
        try:
            batches.append(record_batch(one))
        except CorruptBlock as error:
            told = one.located(error)
            if unreadable is None:
                raise told from error
            unreadable(one.record_count, told)
    return batches


async def tail(
    log: Shard,
    table: LogTable,
    *,
    until_tail: bool = False,
    pace: Pace | None = None,
    stop: asyncio.Event | None = None,
    hold: HeldLog | None = None,
    ends: Ends | None = None,
    committed: Callable[[int, int], None] = lambda rows, last_lsn: None,
    unreadable: Unreadable | None = None,
) -> int:
    """Bring what `log` has behind `table.last_lsn` into the table: for ever, until the tail as it
    is now, or until `stop` is set, with everything committed that was taken. `hold` is one that
    stands, and is moved on. With `ends` only what has an end is committed; the rest is left to the
    next run. `committed` is told of each commit: its rows, and its last LSN. `unreadable`: is told
    of blocks whose columns are not what their writer said, and they have no rows; None: the tail
    ends with CorruptBlock, which names the LSNs.

    Returns the rows that were put in. Raises what `Shard.follow` and `LogTable.append` raise.
    """
    tailing = _Tail(log, table, pace or Pace(), hold, ends, committed, unreadable)
    return await tailing.run(until_tail, stop or asyncio.Event())


class _Tail:
    def __init__(
        self,
        log: Shard,
        table: LogTable,
        pace: Pace,
        hold: HeldLog | None,
        ends: Ends | None,
        committed: Callable[[int, int], None],
        unreadable: Unreadable | None,
    ) -> None:
        self._log = log
        self._table = table
        self._pace = pace
        self._hold = hold
        self._ends = ends
        self._committed = committed
        self._unreadable = unreadable
        self._waiting = Waiting()
        self._enough_bytes = self._pace.commit_bytes
        self._rows = 0
        self._due_s = 0.0

    async def run(self, until_tail: bool, stop: asyncio.Event) -> int:
        """See `tail`."""
        now_s = asyncio.get_running_loop().time
        stopping = begin_task(stop.wait())
        arriving: asyncio.Task[Answer | None] | None = None
        begin = self._table.last_lsn + 1
        answers = self._log.follow_answers(begin, until_tail=until_tail, patience=PATIENCE_S)
        async with aclosing(answers):
            try:
                while not stopping.done():
                    if arriving is None:
                        arriving = begin_task(_next(answers))
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
                            if self._waiting.size >= self._enough_bytes:
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
        """INV-TABLE-4."""
        waiting = self._waiting
        if not waiting.items:
            return
        rows, last_lsn = waiting.rows(self._log.shard_id, self._unreadable), waiting.last_lsn
        count = len(rows) if self._ends is None else self._ends(rows)
        # Without `ends` also where no block had rows: the table goes on behind them.
        if count or self._ends is None:
            if count < len(rows):
                last_lsn = rows["lsn"][count - 1].as_py()
            await self._append(rows.slice(0, count), last_lsn)
            self._waiting = waiting.behind(last_lsn)
        # What is left is not looked at again before there is as much again: each look costs as much
        # as there is.
        self._enough_bytes = max(self._pace.commit_bytes, 2 * self._waiting.size)
        self._due_s = asyncio.get_running_loop().time() + self._pace.commit_s

    async def _append(self, rows: pa.Table, last_lsn: int) -> None:
        await asyncio.to_thread(self._table.append, rows, last_lsn, patience_s=PATIENCE_S)
        self._rows += len(rows)
        self._committed(len(rows), last_lsn)
        if self._hold is not None:
            await self._hold.move(last_lsn + 1)
            self._hold.check()


async def _next(answers: AsyncGenerator[Answer]) -> Answer | None:
    return await anext(answers, None)
