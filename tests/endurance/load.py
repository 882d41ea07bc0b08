"""The load on one log: a writer, somebody who truncates, a reader of the log and one of its mirror.
What each record is, is known.

Record `number` of a log is made of its number alone, so that nobody keeps the two hours: the writer
remembers where each append began, and any LSN has one right content.

The writer waits for each answer, and repeats what was refused. A call whose outcome is unknown ends
the run: the client itself repeats by session and sequence, for longer than any fault here takes.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import hashlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from logservice_client import Gap, Records, Shard
from logservice_client.read_result import ReadResult
from logservice_wire.errors import LogServiceError, Outcome, StaleTruncate, Truncated

from tests.programs import StoryFailed, check

APPEND_LIMIT_S = 120.0
APPENDS_PER_S = 12.0
RECORDS_MAX = 16
RECORD_BYTES_MAX = 400
TRUNCATE_INTERVAL_S = 0.1
KEPT_RECORDS = (0, 0, 20, 200, 2000)
"""How many of the newest acked records a truncation leaves; one of them is drawn each time."""


def record_of(log: str, number: int) -> bytes:
    """The content of a record; the first one has number 0."""
    seed = hashlib.sha256(f"{log}/{number}".encode()).digest()
    size = 16 + int.from_bytes(seed[:2], "big") % (RECORD_BYTES_MAX - 15)
    return (seed * (size // len(seed) + 1))[:size]


@dataclass(slots=True)
class Known:
    """What a log has: `first_lsns[i]` is the LSN of record `numbers[i]`, and those behind it follow
    until the next append. `next_lsn`: behind the last acked record.
    """

    name: str
    first_lsns: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    records: int = 0
    next_lsn: int = 1
    truncated_lsn: int = 0
    """The largest LSN that was asked for."""

    def acked(self, lsn: int, count: int) -> None:
        """So many more records got LSNs from `lsn` on."""
        check(lsn >= self.next_lsn, f"{self.name}: LSN {lsn} was given out before")
        self.first_lsns.append(lsn)
        self.numbers.append(self.records)
        self.records += count
        self.next_lsn = lsn + count

    def number_of(self, lsn: int) -> int:
        """The number of the record with this LSN, or of the next one behind it."""
        at = bisect.bisect_right(self.first_lsns, lsn) - 1
        if at < 0:
            return 0
        end = self.numbers[at + 1] if at + 1 < len(self.numbers) else self.records
        return min(self.numbers[at] + lsn - self.first_lsns[at], end)


class Reader:
    """Checks what comes from a log against what is known of it."""

    def __init__(self, known: Known, lsn: int) -> None:
        """It begins at `lsn`."""
        self.known = known
        self.lsn = lsn
        self.number = known.number_of(lsn)
        self.records = 0
        self.gap_lsns = 0

    def take(self, item: Records | Gap) -> None:
        """One run of LSNs. Raises StoryFailed when it is not what the writer wrote."""
        check(
            item.first_lsn == self.lsn,
            f"{self.known.name}: LSN {item.first_lsn} came, not {self.lsn}",
        )
        self.lsn = item.next_lsn
        if isinstance(item, Gap):
            self.gap_lsns += item.record_count
            return
        for record in item.records():
            if record != record_of(self.known.name, self.number):
                raise StoryFailed(
                    f"{self.known.name}: another record than number {self.number} in the block "
                    f"that begins at LSN {item.first_lsn}"
                )
            self.number += 1
        self.records += item.record_count

    def takes(self, result: ReadResult) -> None:
        """All that a read has found."""
        for item in result.items:
            self.take(item)

    def jump(self, lsn: int) -> None:
        """What lies below was truncated."""
        check(
            lsn - 1 <= self.known.truncated_lsn,
            f"{self.known.name}: LSNs up to {lsn - 1} are gone, and "
            f"{self.known.truncated_lsn} was the largest that anybody let go",
        )
        check(lsn > self.lsn, f"{self.known.name}: truncated below {lsn}, but {self.lsn} was asked")
        self.lsn = lsn
        self.number = self.known.number_of(lsn)


@dataclass(slots=True)
class Figures:
    """What the load of all logs came to."""

    appends: int = 0
    value_bytes: int = 0
    truncations: int = 0
    truncations_refused: int = 0
    read: int = 0
    read_from_mirrors: int = 0
    jumps: int = 0
    longest_append_s: float = 0.0


class Load:
    """All tasks of one log. `pause` and `go_on` are for the writer and the truncations."""

    def __init__(
        self, shard: Shard, mirror: Shard, known: Known, figures: Figures, seed: int
    ) -> None:
        """Nothing runs yet."""
        self.known = known
        self._shard = shard
        self._mirror = mirror
        self._figures = figures
        self._chance = random.Random(f"{seed}/{known.name}")
        self._goes = asyncio.Event()
        self._goes.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._grown = asyncio.Event()
        """Set, and replaced, when more is acked."""

    async def run(self) -> None:
        """Until it is cancelled. Raises StoryFailed."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write())
            tasks.create_task(self._truncate())
            tasks.create_task(self._follow())
            tasks.create_task(self._follow_mirror())

    async def pause(self) -> None:
        """Stop to write and to truncate; nothing is under way afterwards."""
        self._goes.clear()
        await self._idle.wait()

    def go_on(self) -> None:
        """Write and truncate again."""
        self._goes.set()

    async def let_go(self, lsn: int) -> None:
        """Truncate to there, if it is not yet, however long it takes. Raises StoryFailed when
        something holds it back.
        """
        self.known.truncated_lsn = max(self.known.truncated_lsn, lsn)
        with contextlib.suppress(StaleTruncate):
            reached = await self._shard.truncate(lsn, timeout=APPEND_LIMIT_S)
            check(reached == lsn, f"{self.known.name}: truncated to {reached}, not {lsn}")

    async def _write(self) -> None:
        while True:
            await self._goes.wait()
            count = self._chance.randint(1, RECORDS_MAX)
            numbers = range(self.known.records, self.known.records + count)
            records = [record_of(self.known.name, number) for number in numbers]
            self._idle.clear()
            began_s = time.monotonic()
            self.known.acked(await self._append(records), count)
            self._idle.set()
            self._grown.set()
            self._grown = asyncio.Event()
            took_s = time.monotonic() - began_s
            self._figures.appends += 1
            self._figures.value_bytes += sum(map(len, records))
            self._figures.longest_append_s = max(self._figures.longest_append_s, took_s)
            await asyncio.sleep(self._chance.uniform(0, 2 / APPENDS_PER_S))

    async def _append(self, records: list[bytes]) -> int:
        deadline_s = time.monotonic() + APPEND_LIMIT_S
        while True:
            try:
                return await self._shard.append(records, timeout=APPEND_LIMIT_S)
            except LogServiceError as error:
                if error.outcome is not Outcome.NOT_APPLIED or time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(0.1)

    async def _truncate(self) -> None:
        while True:
            await self._goes.wait()
            began_s = time.monotonic()
            lsn = self.known.next_lsn - 1 - self._chance.choice(KEPT_RECORDS)
            if lsn > self.known.truncated_lsn:
                self.known.truncated_lsn = lsn
                try:
                    await self._shard.truncate(lsn, timeout=5.0)
                except LogServiceError:
                    self._figures.truncations_refused += 1
                else:
                    self._figures.truncations += 1
            await asyncio.sleep(max(0.0, began_s + TRUNCATE_INTERVAL_S - time.monotonic()))

    async def _follow(self) -> None:
        async for count in self._checked(self._shard):
            self._figures.read += count
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.0, 0.5)))

    async def _follow_mirror(self) -> None:
        async for count in self._checked(self._mirror):
            self._figures.read_from_mirrors += count

    async def _checked(self, shard: Shard) -> AsyncIterator[int]:
        """Follow a log, and give the number of records of each block that is right."""
        reader = Reader(self.known, 1)
        while True:
            try:
                async for item in shard.follow(reader.lsn, patience=APPEND_LIMIT_S):
                    # What is not acked to the writer yet is not known here yet.
                    while item.next_lsn > self.known.next_lsn:
                        await self._grown.wait()
                    reader.take(item)
                    yield item.record_count
            except Truncated as error:
                reader.jump(error.number("first_lsn"))
                self._figures.jumps += 1


async def read_all(shard: Shard, known: Known, first_lsn: int) -> Reader:
    """Compare everything from `first_lsn` to the end with what is known."""
    reader = Reader(known, first_lsn)
    while reader.lsn < known.next_lsn:
        reader.takes(await shard.read(reader.lsn, timeout=APPEND_LIMIT_S))
    check(reader.number == known.records, f"{known.name}: {reader.number} of {known.records}")
    return reader
