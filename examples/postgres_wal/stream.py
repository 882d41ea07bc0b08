"""One stream of WAL on its way: received, appended, acked, reported.

Four tasks hand on to each other. One receives what PostgreSQL streams. One appends what waits, as
one append, as long as few enough are under way. One waits for the acks, in the order of the
appends, and reports. One reports from time to time although nothing moved. The first failure of any
of them ends all.

INV-PG-FLUSHED: what is reported as flushed ends with the last of an unbroken row of acked appends.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from examples.postgres.protocol import KeepAlive, WalData
from examples.postgres.replication import TimelineEnded
from examples.postgres.sessions import ShippingLost
from examples.postgres.wal_position import position_text
from examples.postgres_wal.chunk import WAL, Chunk

APPEND_BYTES_MAX: Final = 1024 * 1024
"""WAL of one append; one message may always go. While appends are under way, what comes meanwhile
shares the next."""

APPENDS_INFLIGHT_MAX: Final = 8
"""Appends without an ack: a few round trips' worth, and few enough to be repeated quickly under a
new leader."""

WAL_WAITING_BYTES_MAX: Final = 8 * 1024 * 1024
"""WAL that waits for its append. When there is more, nothing is received, and PostgreSQL waits."""

APPEND_TIMEOUT_S: Final = 60.0
"""How long an append may wait for a leader before its session ends, and another one begins."""

REPORT_INTERVAL_S: Final = 5.0
"""How often a position is reported that did not move: PostgreSQL ends a connection that is silent
for 60 s."""


class Source(Protocol):
    """What is asked of a connection: `replication.Connection` has it."""

    async def next_of_stream(self) -> WalData | KeepAlive | TimelineEnded: ...

    async def report(self, flushed: int) -> None: ...


class Sink(Protocol):
    """What is asked of a log: `logservice_client.Shard` has it."""

    async def append(
        self,
        record: bytes | Sequence[bytes],
        *,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int: ...


@dataclass(slots=True)
class _Append:
    """An append that is under way, and what is durable with it."""

    task: asyncio.Task[int]
    end: int


class Stream:
    """Ships one timeline from `begin.end` on: everything before is in the log, and its next LSN is
    `next_lsn`.

    `begin` gives every chunk its header, but for the position.
    """

    def __init__(self, log: Sink, source: Source, begin: Chunk, next_lsn: int) -> None:
        self._log = log
        self._source = source
        self._begin = begin
        self._next_lsn = next_lsn
        self._received = begin.end
        self.flushed = begin.end
        """What was reported last, or is just being reported."""
        self._waiting: deque[Chunk] = deque()
        self._waiting_bytes = 0
        self._inflight: deque[_Append] = deque()
        self._all_received = False
        self._all_appended = False
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        """Ship until the timeline has ended and everything of it is acked. Raises what ended it
        before.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                reporting = tasks.create_task(self._report())
                tasks.create_task(self._receive())
                tasks.create_task(self._append())
                await tasks.create_task(self._acknowledge())
                reporting.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            under_way = [append.task for append in self._inflight]
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _receive(self) -> None:
        while True:
            found = await self._source.next_of_stream()
            match found:
                case WalData():
                    await self._take(found)
                case KeepAlive():
                    if found.reply:
                        await self._source.report(self.flushed)
                case TimelineEnded():
                    async with self._moved:
                        self._all_received = True
                        self._moved.notify_all()
                    return

    async def _take(self, piece: WalData) -> None:
        if piece.start != self._received:
            raise ShippingLost(
                f"PostgreSQL streams from {position_text(piece.start)} on, and"
                f" {position_text(self._received)} is what comes next"
            )
        chunk = dataclasses.replace(self._begin, kind=WAL, start=piece.start, data=piece.data)
        self._received = chunk.end
        async with self._moved:
            await self._moved.wait_for(lambda: self._waiting_bytes < WAL_WAITING_BYTES_MAX)
            self._waiting.append(chunk)
            self._waiting_bytes += len(chunk.data)
            self._moved.notify_all()

    async def _append(self) -> None:
        while True:
            async with self._moved:
                await self._moved.wait_for(self._can_append)
                if not self._waiting:
                    self._all_appended = True
                    self._moved.notify_all()
                    return
                records, end = self._batch()
                appending = self._log.append(
                    records, expected_lsn=self._next_lsn, timeout=APPEND_TIMEOUT_S
                )
                self._inflight.append(_Append(asyncio.create_task(appending), end))
                self._next_lsn += len(records)
                self._moved.notify_all()

    def _can_append(self) -> bool:
        if not self._waiting:
            return self._all_received
        return len(self._inflight) < APPENDS_INFLIGHT_MAX

    def _batch(self) -> tuple[list[bytes], int]:
        """The records of the next append, and the position behind them."""
        records: list[bytes] = []
        size = end = 0
        while self._waiting and (
            not records or size + len(self._waiting[0].data) <= APPEND_BYTES_MAX
        ):
            chunk = self._waiting.popleft()
            records.append(chunk.encode())
            size += len(chunk.data)
            end = chunk.end
        self._waiting_bytes -= size
        return records, end

    async def _acknowledge(self) -> None:
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: self._inflight or self._all_appended)
                if not self._inflight:
                    return
            oldest = self._inflight[0]
            await oldest.task
            async with self._moved:
                self._inflight.popleft()
                self.flushed = oldest.end
                self._moved.notify_all()
            if not (self._inflight and self._inflight[0].task.done()):
                await self._source.report(self.flushed)

    async def _report(self) -> None:
        while True:
            await self._source.report(self.flushed)
            await asyncio.sleep(REPORT_INTERVAL_S)
