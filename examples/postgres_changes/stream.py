"""One stream of changes on its way: received, appended, acked, reported.

Three tasks. One receives what PostgreSQL streams, and makes changes of it. One appends what waits,
and reports. One reports from time to time although nothing moved. The first failure of any of them
ends all.

A transaction larger than an append goes into the log piece by piece, and its mark comes last. When
a shipper dies in between, PostgreSQL sends the whole transaction again, and what is in the log
already is compared with it, record by record, and not appended again (`there`). PostgreSQL decodes
a transaction the same way each time; should it ever not, shipping ends with words, and nothing
false is in the log, for without its mark a part counts for nothing.

PostgreSQL writes WAL that has no change for us, too. It may only let go of that when we report it,
and waits for that when it shuts down. So when it asks, and now and then, a mark without changes is
appended, and its end reported.

INV-PG-CHANGES-FLUSHED: what is reported as flushed is the end of a mark that is acked. So a slot
which is further than the log's last mark has given changes to somebody else.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final, Protocol

from examples.postgres.protocol import KeepAlive, ProtocolError, WalData
from examples.postgres.replication import TimelineEnded
from examples.postgres_changes.appends import APPEND_BYTES_MAX, Appends, Record, record_of
from examples.postgres_changes.change import KEYS, Change, Entry, Mark
from examples.postgres_changes.pgoutput import decode
from examples.postgres_changes.transactions import ShippingRefused, Transactions

WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""Records that wait for their append. When there are more, nothing is received, and PostgreSQL
waits."""

MARK_BYTES: Final = 16 * 1024 * 1024
"""After so much WAL without a change for us a mark is appended, so that PostgreSQL may let it
go."""

REPORT_INTERVAL_S: Final = 5.0
"""How often a position is reported that did not move: PostgreSQL ends a connection that is silent
for 60 s."""


class Source(Protocol):
    """What is asked of a connection: `replication.Connection` has it."""

    async def next_of_stream(self) -> WalData | KeepAlive | TimelineEnded: ...

    async def report(self, flushed: int) -> None: ...


class Stream:
    """Ships what was committed behind `mark.end`. `there`: the records that the log has behind that
    mark, a part of the transaction that comes first.
    """

    def __init__(
        self,
        source: Source,
        appends: Appends,
        transactions: Transactions,
        mark: Mark,
        there: AsyncGenerator[tuple[int, bytes]] | None,
    ) -> None:
        self._source = source
        self._appends = appends
        self._transactions = transactions
        self._system = mark.system
        self._there = there
        self._lsn = appends.next_lsn
        """Where the next record that is taken will land."""
        self._keys_lsn = mark.keys
        self.flushed = mark.end
        """What was reported last, or is just being reported."""
        self._waiting: deque[tuple[Record, int]] = deque()  # with the end of a mark, or 0
        self._waiting_bytes = 0
        self._appending = False
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        """Ship, until something ends it, and raise that."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive())
                tasks.create_task(self._append())
                tasks.create_task(self._report())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if self._there is not None:
                await self._there.aclose()

    async def _receive(self) -> None:
        while True:
            found = await self._source.next_of_stream()
            match found:
                case WalData():
                    for entry in await self._transactions.take(decode(found.data)):
                        await self._take(entry)
                case KeepAlive():
                    await self._keep_alive(found)
                case TimelineEnded():
                    raise ProtocolError("the server ends the stream of changes")

    async def _take(self, entry: Entry) -> None:
        """INV-PG-CHANGES."""
        if entry.commit < self.flushed:
            return  # it ended before the position that was asked for
        if isinstance(entry, Mark):
            entry = replace(entry, keys=self._keys_lsn)
        record = record_of(entry)
        there = None if self._there is None else await self._found(self._there, record)
        if isinstance(entry, Change) and entry.op == KEYS:
            self._keys_lsn = there or self._lsn
        if there is not None:
            return
        async with self._moved:
            await self._moved.wait_for(lambda: self._waiting_bytes < WAITING_BYTES_MAX)
            self._wait(record, entry.end if isinstance(entry, Mark) else 0)

    def _wait(self, record: Record, end: int) -> None:
        """`end`: of a mark, or 0."""
        self._waiting.append((record, end))
        self._waiting_bytes += record.size
        self._lsn += 1
        self._moved.notify_all()

    async def _found(self, there: AsyncGenerator[tuple[int, bytes]], record: Record) -> int | None:
        """The LSN at which the log has this record already."""
        found = await anext(there, None)
        if found is None:
            self._there = None
            return None
        lsn, value = found
        if value != record.value:
            raise ShippingRefused(
                f"the log has {value[:300]!r} at LSN {lsn}, a part of a transaction that PostgreSQL"
                f" tells now as {record.value[:300]!r}; make a new copy"
            )
        return lsn

    async def _keep_alive(self, found: KeepAlive) -> None:
        async with self._moved:
            idle = not (self._waiting or self._appending or self._transactions.open)
            behind = found.end - self.flushed
            if idle and self._there is None and behind > (0 if found.reply else MARK_BYTES):
                now_us = time.time_ns() // 1000
                mark = Mark(found.end, found.end, 0, self._system, now_us, self._keys_lsn)
                self._wait(record_of(mark), mark.end)
                return
        if found.reply:
            await self._source.report(self.flushed)

    async def _append(self) -> None:
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._waiting)
                records, end = self._batch()
                self._appending = True
                self._moved.notify_all()
            await self._appends.append(records)
            async with self._moved:
                self._appending = False
                self.flushed = end or self.flushed
            if end:
                await self._source.report(end)

    def _batch(self) -> tuple[list[Record], int]:
        """The records of the next append, and the end of their last mark, or 0."""
        records: list[Record] = []
        size = end = 0
        while self._waiting:
            record, marked = self._waiting[0]
            if records and size + record.size > APPEND_BYTES_MAX:
                break
            self._waiting.popleft()
            records.append(record)
            size += record.size
            end = marked or end
        self._waiting_bytes -= size
        return records, end

    async def _report(self) -> None:
        while True:
            await self._source.report(self.flushed)
            await asyncio.sleep(REPORT_INTERVAL_S)
