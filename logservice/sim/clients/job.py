"""Job: work that is done again, twice at a time, differently and too late, and is in the log once.

Theory of operation. A job has partitions, each with a name, which is that of a session
(`rsm.named_sessions`). It goes through epochs, as a streaming query through micro-batches. What an
epoch appends is drawn once (`job_blocks`); who does it is drawn, too:

- an attempt that dies, in the middle of sending a block perhaps, and another one that goes on;
- two attempts at once, one of which may go on when the epoch is over;
- one whose rows are others: whoever opens the epoch first decides, and the other one is told
  SEQUENCE_REUSED before it has appended anything;
- one that comes when the next epoch is open: SESSION_EXPIRED, or with a session that it had opened
  in time;
- a name for one piece of work, with a time to live, which nobody opens again.

An attempt judges what it hears (`job_attempt`); the blocks become appends of the log's history
(`job_record`), and `job_checks` has the rest.

In some worlds logs go on as another history meanwhile (`forker`). The names that were known
are SESSION_EXPIRED from then on, for ever, and the job goes on under another name.
"""

from __future__ import annotations

import asyncio
from typing import Final

from logservice.sim.clients.job_attempt import Attempt, Died, JobClient, Late, Lost, Over, Refused
from logservice.sim.clients.job_blocks import Work
from logservice.sim.clients.job_record import EpochRecord

PARTITIONS: Final = 2
PASSING_TTL_S: Final = 2
_LONG_SHARE: Final = 0.03
_LATE_SHARE: Final = 0.4
_PASSING_SHARE: Final = 0.2
_BETWEEN: Final = 0.5
"""Of a pause, between two epochs."""


class Job(JobClient):
    """One per shard, in some worlds of cluster version 2."""

    async def run(self) -> None:
        """Until told to stop."""
        partitions = [_Partition(self, f"{self.name}/{one}") for one in range(PARTITIONS)]
        await asyncio.gather(*(one.run() for one in partitions))


class _Partition:
    """One partition of a job: one epoch after the other."""

    def __init__(self, job: Job, place: str) -> None:
        self._job = job
        self._place = place
        self._generation = 0
        self._passing = 0
        self._before: EpochRecord | None = None
        self._loose: list[asyncio.Task[None]] = []
        """Attempts that nobody waits for."""

    async def run(self) -> None:
        job, chance = self._job, self._job.chance
        epoch = chance.choice((0, 1, 5))
        while not job.stopping:
            await job.pause(_BETWEEN)
            if chance.random() < _PASSING_SHARE:
                await self._pass()
            record = self._record(self._name, epoch)
            try:
                await self._do(record)
            except Lost:
                job.counts["job names lost"] += 1
                self._generation += 1
                self._before = None
                epoch = chance.choice((0, epoch))
                continue
            except Late:
                pass
            if record.complete:
                job.counts["job epochs complete"] += 1
            epoch += chance.choice((1, 1, 1, 2, 7))
            self._before = record if record.rows else self._before
        for task in self._loose:
            await task

    @property
    def _name(self) -> str:
        return f"{self._place}/{self._generation}"

    def _record(self, name: str, epoch: int) -> EpochRecord:
        record = EpochRecord(name, epoch)
        long = self._job.chance.random() < _LONG_SHARE
        for rows in "ab":
            record.works[rows] = Work(name, epoch, rows, long=long)
        self._job.history.jobs.epochs.append(record)
        return record

    async def _pass(self) -> None:
        """One piece of work of a name that nobody opens again."""
        self._passing += 1
        record = self._record(f"{self._place}/passing-{self._passing}", 1)
        try:
            await Attempt(self._job, record, "a", ttl_s=PASSING_TTL_S, patient=False).run()
        except Over:
            return
        self._job.counts["job names passed"] += 1

    async def _do(self, record: EpochRecord) -> None:
        """An epoch, with whatever attempts it takes. Raises Lost and Late."""
        chance, draw = self._job.chance, self._job.chance.random()
        dies = chance.randint(1, 2) if draw < 0.35 else 0
        if 0.35 <= draw < 0.55:
            self._begin(Attempt(self._job, record, "a", delay_s=chance.uniform(0, 0.3)))
        elif draw < 0.75:
            # Before, beside or behind the first attempt.
            delay_s = chance.choice((0.0, 0.01, chance.uniform(0, 2.0)))
            self._begin(Attempt(self._job, record, "b", delay_s=delay_s))
        given_up = draw > 0.93
        rows = "a"
        late = chance.random() < _LATE_SHARE
        while True:
            size = len(record.works[rows].blocks)
            last = chance.randint(1, size) if dies or given_up else 0
            attempt = Attempt(self._job, record, rows, dies_at=last)
            if late and self._before is not None:
                attempt.once_open, late = self._come_late, False
            try:
                await attempt.run()
            except Died:
                self._job.counts["job attempts died"] += 1
                dies -= 1
                if given_up:
                    return
            except Refused:
                self._job.counts["job attempts refused"] += 1
                rows = record.rows or ("b" if rows == "a" else "a")
            else:
                return

    def _begin(self, attempt: Attempt) -> None:
        async def alone() -> None:
            try:
                await attempt.run()
            except Over as over:
                self._job.counts[f"job others {type(over).__name__.lower()}"] += 1

        self._loose.append(asyncio.create_task(alone()))
        self._loose = [task for task in self._loose if not task.done()]

    async def _come_late(self) -> None:
        """Somebody still works at the epoch before the one that is open now."""
        before, chance = self._before, self._job.chance
        if before is None or not before.rows:
            return
        attempt = Attempt(self._job, before, before.rows, patient=False)
        if chance.random() < 0.5 and before.session:
            await attempt.append_late(chance.randint(1, len(before.work.blocks)))
            return
        try:
            await attempt.run()
        except Late:
            self._job.counts["job attempts late"] += 1
        except Over:
            return
