"""Load: a writer for each log, and what it was promised.

Every log has one writer with one append under way at a time. A record says which log, which writer
and which number it is, so reading the log back shows what was lost, doubled or out of order. The
client repeats an append by itself as long as its timeout lasts. An append that fails after that is
a *failed append*: the story has none, but for appends to a log that is closed or deleted.

`Phases` keeps the longest time that any log went without an ack, phase by phase.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from logservice_client import LogClient
from logservice_client.read_result import Gap
from logservice_wire.errors import LogServiceError, Reason

APPEND_TIMEOUT_S = 30.0
"""How long the client repeats an append before it counts as failed."""

_LARGE = b"large "

_FINAL = frozenset({"SHARD_CLOSED", "SHARD_DELETED"})


@dataclass(slots=True)
class Phase:
    """A part of the story: what the writers met in it."""

    name: str
    began_s: float
    seconds: float = 0.0
    appends: int = 0
    longest_s: float = 0.0
    note: str = ""


@dataclass(slots=True)
class Log:
    """One log under load: `acked` are (number, LSN) in the order of the acks, `large` the LSNs of
    its large records.
    """

    shard: int
    acked: list[tuple[int, int]] = field(default_factory=list)
    large: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    ended: str = ""
    """Why its writer ended: the log was closed or deleted."""
    number: int = 0


class Load:
    """All writers; `stop` ends them."""

    def __init__(self, client: LogClient, pause_s: float) -> None:
        """`pause_s`: what each writer waits between two appends."""
        self._client = client
        self._pause_s = pause_s
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.logs: dict[int, Log] = {}
        self.phases: list[Phase] = []

    @property
    def failed(self) -> list[str]:
        """Every append that failed beyond retries."""
        return [text for log in self.logs.values() for text in log.failed]

    def begin(self, name: str) -> Phase:
        """A new phase; the one before ends."""
        self.end()
        self.phases.append(Phase(name, time.monotonic()))
        return self.phases[-1]

    def end(self) -> None:
        """End the phase under way."""
        if self.phases and not self.phases[-1].seconds:
            self.phases[-1].seconds = time.monotonic() - self.phases[-1].began_s

    def write(self, shard: int) -> None:
        """Begin to write to a log."""
        log = self.logs[shard] = Log(shard)
        self._tasks[shard] = asyncio.get_running_loop().create_task(self._writer(log))

    async def stop(self) -> None:
        """No further append; the ones under way end."""
        self._pause_s = -1.0
        await asyncio.gather(*self._tasks.values())

    async def _writer(self, log: Log) -> None:
        shard = self._client.shard(log.shard)
        # Appends whose outcome is unknown. One that was under way when its log ended is such a one,
        # and the append behind it tells that it is no failure.
        unknown: list[str] = []
        while self._pause_s >= 0 and not log.ended:
            began_s = time.monotonic()
            log.number += 1
            try:
                lsn = await shard.append(record(log.shard, log.number), timeout=APPEND_TIMEOUT_S)
            except LogServiceError as error:
                if error.reason.value in _FINAL:
                    log.ended = error.reason.value
                    return
                log.failed += unknown
                unknown = [f"log {log.shard}, append {log.number}: {error}"]
                if error.reason is not Reason.UNKNOWN_OUTCOME:
                    log.failed += unknown
                    unknown = []
            else:
                log.failed += unknown
                unknown = []
                log.acked.append((log.number, lsn))
            phase = self.phases[-1]
            phase.appends += 1
            phase.longest_s = max(phase.longest_s, time.monotonic() - began_s)
            await asyncio.sleep(max(0.0, self._pause_s))
        log.failed += unknown

    async def append_large(self, shard: int, size: int) -> None:
        """A record of `size` bytes beside what the log's writer writes. Raises as `append` does."""
        lsn = await self._client.shard(shard).append(_LARGE + bytes(size), timeout=APPEND_TIMEOUT_S)
        self.logs[shard].large.append(lsn)

    async def check(self, shard: int) -> list[str]:
        """Read a log from its first record to its end; what is wrong with it."""
        log = self.logs[shard]
        found: dict[int, int] = {}
        wrong: list[str] = []
        reader = self._client.shard(shard)
        first = (await reader.status()).position.first_lsn
        last, large = 0, {lsn for lsn in log.large if lsn >= first}
        async for item in reader.follow(first, until_tail=True):
            if isinstance(item, Gap):
                continue
            for at, data in enumerate(item.records()):
                if data.startswith(_LARGE):
                    large.discard(item.first_lsn + at)
                    continue
                number = int(data.split(b" ")[1])
                if number <= last:
                    wrong.append(f"log {shard}: record {number} stands behind record {last}")
                last = number
                found[number] = item.first_lsn + at
        wrong += [f"log {shard}: the large record at {lsn} is missing" for lsn in sorted(large)]
        for number, lsn in log.acked:
            if lsn >= first and found.get(number) != lsn:
                wrong.append(
                    f"log {shard}: record {number} was acked at {lsn}: {found.get(number)}"
                )
        return wrong


def record(shard: int, number: int) -> bytes:
    """What a writer appends."""
    return b"%d %d " % (shard, number) + bytes(400)
