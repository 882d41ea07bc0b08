"""A client process of a chaos run: writers, a reader, perhaps a truncater; it writes its history.

`tests.chaos.run` starts it as ``python -m tests.chaos.client '{...settings}'``. It reports its
counts as JSON lines on standard output and stops when standard input ends. It exits non-zero when
anything other than a typed error came up: that is a bug of the client.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from logservice_client import Gap, LogClient, ReadResult, Shard
from logservice_client.tls import TlsFiles
from logservice_wire import errors
from logservice_wire.errors import LogServiceError

from logservice.sim.history import Append, Outcome, Read, Run, Truncate
from tests.chaos.history_file import HistoryWriter
from tests.chaos.records import make_records, runs_of

REPORT_INTERVAL_S = 0.25
APPEND_TIMEOUT_S = 8.0
READ_TIMEOUT_S = 5.0
READ_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What one process does.

    `keep_records`: how many records below the tail it truncates; 0 means never. `tls`: the files
    of the authority, the certificate and the key; it is empty for plaintext.
    """

    name: str
    endpoints: list[str]
    shards: list[int]
    directory: str
    seed: int
    writers: int
    batch_max: int
    record_bytes: int
    pause_s: float
    keep_records: int
    tls: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """What the process reports to its parent."""

    acked: int = 0
    acked_by_shard: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    unknown: int = 0
    reads: int = 0
    read_errors: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    slowest_append_s: float = 0.0

    def error(self, error: LogServiceError) -> None:
        """Count by reason."""
        name = error.reason.value
        self.errors[name] = self.errors.get(name, 0) + 1


def outcome_of(error: LogServiceError) -> Outcome:
    """What the error says about the operation."""
    return Outcome.UNKNOWN if error.outcome is errors.Outcome.UNKNOWN else Outcome.FAILED


class Worker:
    """All tasks of one process towards one shard."""

    def __init__(self, settings: Settings, shard: Shard, counts: Counts) -> None:
        self._settings = settings
        self._shard = shard
        self._counts = counts
        self._chance = random.Random(f"{settings.seed}/{settings.name}/{shard.shard_id}")
        path = Path(settings.directory) / f"history-{shard.shard_id}-{settings.name}.jsonl"
        self._history = HistoryWriter(path)
        self._stopping = False
        self._first_lsn = 1
        self._applied_lsn = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop, then finish what is under way."""
        jobs = [self._write(number) for number in range(self._settings.writers)]
        jobs.append(self._read())
        if self._settings.keep_records:
            jobs.append(self._truncate())
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
            await stop.wait()
            self._stopping = True
        self._history.close()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._chance.uniform(0.2, 1.8))

    # --- writing ----------------------------------------------------------------------------------

    async def _write(self, number: int) -> None:
        settings, counts = self._settings, self._counts
        client = f"{settings.name}.{number}"
        sequence = 0
        while not self._stopping:
            sequence += 1
            batch = f"{client}.{self._shard.shard_id}-{sequence}"
            count = self._chance.randint(1, settings.batch_max)
            records = make_records(batch, count, settings.record_bytes)
            lsn, outcome = 0, Outcome.OK
            invoked = time.monotonic()
            try:
                lsn = await self._shard.append(records, timeout=APPEND_TIMEOUT_S)
            except LogServiceError as error:
                outcome = outcome_of(error)
                counts.error(error)
            returned = time.monotonic()
            self._history.add(
                Append(
                    client,
                    batch,
                    count,
                    invoked,
                    returned,
                    outcome,
                    lsn,
                    client,
                    sequence,
                    session=False,
                )
            )
            if outcome is Outcome.OK:
                counts.acked += count
                shard = str(self._shard.shard_id)
                counts.acked_by_shard[shard] = counts.acked_by_shard.get(shard, 0) + count
                self._applied_lsn = max(self._applied_lsn, lsn + count - 1)
                counts.slowest_append_s = max(counts.slowest_append_s, returned - invoked)
            elif outcome is Outcome.FAILED:
                counts.failed += 1
            else:
                counts.unknown += 1
            await self._pause(settings.pause_s)

    # --- reading ----------------------------------------------------------------------------------

    async def _read(self) -> None:
        tail = 1
        while not self._stopping:
            draw = self._chance.random()
            stale = False
            if draw < 0.5:
                lsn = tail
            elif draw < 0.8:
                low = self._first_lsn if draw < 0.6 else max(1, self._applied_lsn - 2000)
                lsn = self._chance.randint(low, max(low, self._applied_lsn))
                stale = draw >= 0.7
            elif draw < 0.9:
                lsn = self._applied_lsn + self._chance.randint(1, 3)
            else:
                lsn = self._chance.randint(1, max(1, self._first_lsn))
            reached = await self._read_once(lsn, stale=stale)
            if lsn == tail:
                tail = max(reached, self._first_lsn)
            await self._pause(self._settings.pause_s)

    async def _read_once(self, lsn: int, *, stale: bool) -> int:
        invoked = time.monotonic()
        name = f"{self._settings.name}.r"
        try:
            result = await self._shard.read(
                lsn, max_bytes=READ_BYTES, stale=stale, timeout=READ_TIMEOUT_S
            )
        except errors.Truncated as error:
            first = error.number("first_lsn")
            read = self._error(name, invoked, lsn, "TRUNCATED", first, 0, stale)
        except errors.BeyondTail as error:
            applied = error.number("next_lsn") - 1
            read = self._error(name, invoked, lsn, "BEYOND_TAIL", 0, applied, stale)
        except LogServiceError as error:
            self._counts.read_errors += 1
            self._counts.error(error)
            return lsn
        else:
            read = Read(
                name,
                "any",
                invoked,
                time.monotonic(),
                lsn,
                observed(result),
                result.next_lsn,
                result.first_lsn,
                result.applied_lsn,
                not stale,
            )
            self._applied_lsn = max(self._applied_lsn, result.applied_lsn)
        self._first_lsn = max(self._first_lsn, read.first_lsn)
        self._history.add(read)
        self._counts.reads += 1
        return read.next_lsn

    def _error(
        self, name: str, invoked: float, lsn: int, error: str, first: int, applied: int, stale: bool
    ) -> Read:
        return Read(
            name,
            "any",
            invoked,
            time.monotonic(),
            lsn,
            (),
            lsn,
            first,
            applied,
            not stale,
            False,
            error,
        )

    # --- truncating -------------------------------------------------------------------------------

    async def _truncate(self) -> None:
        while not self._stopping:
            await self._pause(3.0)
            lsn = self._applied_lsn - self._settings.keep_records
            if lsn < self._first_lsn:
                continue
            truncated, outcome = 0, Outcome.OK
            invoked = time.monotonic()
            try:
                truncated = await self._shard.truncate(lsn, timeout=READ_TIMEOUT_S)
            except LogServiceError as error:
                outcome = outcome_of(error)
                self._counts.error(error)
            name = f"{self._settings.name}.t"
            self._history.add(Truncate(name, lsn, invoked, time.monotonic(), outcome, truncated))


def observed(result: ReadResult) -> tuple[Run, ...]:
    """What a read showed, as runs."""
    runs: list[Run] = []
    for item in result.items:
        if isinstance(item, Gap):
            runs.append(Run(item.first_lsn, item.record_count, gap=item.reason.name))
        else:
            runs += runs_of(item.first_lsn, item.records())
    return tuple(runs)


async def _report(counts: Counts) -> None:
    while True:
        print(json.dumps(asdict(counts)), flush=True)
        await asyncio.sleep(REPORT_INTERVAL_S)


async def _work(settings: Settings) -> None:
    counts = Counts()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    report = asyncio.create_task(_report(counts))
    tls = TlsFiles(*settings.tls) if settings.tls else None
    async with LogClient(settings.endpoints, tls=tls) as client:
        workers = [Worker(settings, client.shard(shard), counts) for shard in settings.shards]
        tasks = [asyncio.create_task(worker.run(stop)) for worker in workers]
        ended = asyncio.create_task(reader.read())
        await asyncio.wait([ended, *tasks], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        await asyncio.gather(*tasks)
    report.cancel()
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    asyncio.run(_work(Settings(**json.loads(sys.argv[1]))))
