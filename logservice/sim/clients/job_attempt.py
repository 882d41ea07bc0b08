"""Attempt: one process that does a piece of work of a job, and judges what it is told.

Theory of operation. It does what the client library does (`logservice_client.named_session`): it
opens, goes on behind what is there, sends again what has no known outcome, and opens again when it
hears SESSION_EXPIRED. It judges each answer by what was known when it asked:

- an epoch that is opened has the rows, the stamp and the session that it had, the stamp is one that
  somebody proposed, and so many blocks as were known, and no more than were sent;
- nobody opens an epoch, or appends to it, once a later one is known to be open;
- SEQUENCE_REUSED is for other rows, SESSION_EXPIRED for who is late or after a fork;
- after a fork that is known no name opens that was known before it;
- a block has one LSN, whoever asks, and is never said to be another one.

What breaks that goes into `JobHistory.broken`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from logservice_wire.errors import (
    LogServiceError,
    NotReady,
    SequenceReused,
    SessionExpired,
    TooLarge,
)

from logservice import bounds
from logservice.ids import SessionId
from logservice.nodehost.node_host import NodeHost
from logservice.outcome import Applied
from logservice.owner import Author
from logservice.rsm import commands
from logservice.rsm.named_sessions import ANSWER, nonce_of
from logservice.sim.clients.client import READ_TIMEOUT_S, Client, Opened
from logservice.sim.clients.job_blocks import Work
from logservice.sim.clients.job_record import EpochRecord, Sent
from logservice.sim.history import Outcome

_NEEDS: Final = 2
_BEATS: Final = 0.15
"""Of a pause, between two blocks: a piece of work is done in one go."""


class Over(Exception):
    """An attempt ends before its work is done."""


class Died(Over):
    """The process is gone."""


class Refused(Over):
    """The epoch has other rows."""


class Late(Over):
    """A later epoch is open, or the world is over."""


class Lost(Over):
    """The log has forgotten the name."""


class JobClient(Client):
    """The endpoint of all attempts of a job."""

    def wrong(self, what: str) -> None:
        """An attempt saw what must not be."""
        self.history.jobs.broken.append(what)

    def forked(self) -> bool:
        """The log may have gone on as another history by now."""
        return bool(self.history.jobs.forks)

    async def opens(self, command: Callable[[Author], commands.OpenNamedSession]) -> Applied:
        """Ask a store that knows of names."""

        async def work(host: NodeHost) -> Applied:
            if host.cluster_version.value < _NEEDS:
                raise NotReady("the cluster is too old for this")
            author = Author(self.identity, host.identity.store_id)
            return await host.propose(self.shard, commands.encode(command(author)), READ_TIMEOUT_S)

        return await self.ask(work, READ_TIMEOUT_S)


class Attempt:
    """One process that does one piece of work."""

    def __init__(
        self,
        job: JobClient,
        record: EpochRecord,
        rows: str,
        *,
        delay_s: float = 0.0,
        dies_at: int = 0,
        ttl_s: int = 0,
        patient: bool = True,
    ) -> None:
        """`dies_at`: the block that it dies at, 0 for none. `patient`: it goes on until the world
        is over, and not for a few times only.
        """
        self._job, self._record, self._rows = job, record, rows
        self._delay_s, self._dies_at, self._ttl_s = delay_s, dies_at, ttl_s
        self._left = math.inf if patient else 5
        self._session, self._nonce, self._stamp_us = 0, b"", 0
        self._appended = 0
        self.once_open: Callable[[], Awaitable[None]] | None = None
        """What happens once it has opened the epoch."""

    async def run(self) -> None:
        """Returns when all of it is in the log. Raises an Over."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        job, size = self._job, len(self._work.blocks)
        await self._open()
        if self.once_open is not None:
            await self.once_open()
        # What is there may be sent again: then its LSNs are told once more.
        number = max(1, self._appended + 1 - job.chance.choice((0, 0, 2, 100)))
        while number <= size:
            await job.pause(_BEATS if size < bounds.SESSION_WINDOW else 0.01)
            if number == self._dies_at:
                await self._die_at(number)
            if number <= self._appended:
                await self._send(number)  # whatever is said of it: it is there
                number += 1
            elif await self._append(number):
                number = max(number, self._appended) + 1
            elif number <= self._appended:
                number = self._appended + 1
        self._record.complete = True

    @property
    def _work(self) -> Work:
        return self._record.works[self._rows]

    def _goes_on(self) -> None:
        self._left -= 1
        if self._job.stopping or self._left < 0:
            raise Late

    # --- opening ----------------------------------------------------------------------------------

    async def _open(self) -> None:
        record, job = self._record, self._job
        while True:
            self._goes_on()
            asked_s, later, heard = job.now, self._later(), record.heard
            stamp_us = int(asked_s * 1_000_000) * 10 + job.chance.randint(1, 9)
            record.begun.add(self._rows)
            record.proposed_us.add(stamp_us)
            try:
                applied = await job.opens(
                    lambda by, stamp_us=stamp_us: commands.OpenNamedSession(  # type: ignore[misc]
                        by, record.epoch, self._ttl_s, stamp_us, self._work.content, record.name
                    )
                )
            except SessionExpired as error:
                job.failed(error)
                self._expired()
            except SequenceReused as error:
                job.failed(error)
                if record.begun == {self._rows} or record.rows == self._rows:
                    job.wrong(f"{self}: refused for other rows, and there are none")
                raise Refused from None
            except TooLarge as error:
                job.failed(error)
                if not job.world.config.names_max:
                    job.wrong(f"{self}: no room for the name: {error}")
                raise Late from None
            except LogServiceError as error:
                job.failed(error)
                if self._ttl_s:
                    raise Late from None  # it may be open, and gone before it is opened again
                await job.pause()
            else:
                self._opened(applied, asked_s, later=later, heard=heard)
                return

    def _opened(self, applied: Applied, asked_s: float, *, later: bool, heard: int) -> None:
        record, job = self._record, self._job
        appended, stamp_us = ANSWER.unpack(applied.data)
        if later:
            job.wrong(f"{self}: opened, and a later epoch is open")
        if any(
            fork.known_s < asked_s and self._known_since() < fork.began_s
            for fork in job.history.jobs.forks
        ):
            job.wrong(f"{self}: opened, and the log has lost the name")
        if not record.rows:
            record.rows, record.stamp_us = self._rows, stamp_us
            record.session, record.nonce = applied.value, nonce_of(record.name)
            record.opened_s = job.now
            names = job.history.jobs.names
            names[record.name] = max(record.epoch, names.get(record.name, 0))
        if record.rows != self._rows:
            job.wrong(f"{self}: opened with rows {self._rows}, and before with {record.rows}")
        if stamp_us != record.stamp_us or stamp_us not in record.proposed_us:
            job.wrong(f"{self}: the stamp is {stamp_us}, and was {record.stamp_us}")
        sessions = {one.session for one in self._of_name() if one.session}
        if sessions != {applied.value}:
            job.wrong(f"{self}: the name has the session {applied.value}, and had {sessions}")
        if not heard <= appended <= record.begun_blocks:
            job.wrong(f"{self}: {appended} blocks, of {heard} to {record.begun_blocks}")
        record.heard = max(record.heard, appended)
        self._session, self._nonce, self._stamp_us = applied.value, record.nonce, stamp_us
        self._appended = max(self._appended, appended)
        job.history.opened.append(
            Opened(
                SessionId(applied.value),
                record.nonce,
                record.epoch << bounds.SESSION_EPOCH_BITS | 1,
            )
        )
        job.counts["job epochs opened"] += 1

    def _expired(self) -> None:
        """SESSION_EXPIRED is for who is late, and for names that a fork has taken."""
        job = self._job
        if any(one.epoch > self._record.epoch and one.begun for one in self._of_name()):
            raise Late
        if not job.forked():
            job.wrong(f"{self}: expired, and nobody has opened a later epoch")
        raise Lost

    def _of_name(self) -> list[EpochRecord]:
        epochs = self._job.history.jobs.epochs
        return [one for one in epochs if one.name == self._record.name]

    def _known_since(self) -> float:
        return min((one.opened_s for one in self._of_name()), default=math.inf)

    def _later(self) -> bool:
        """A later epoch of the name is known to be open."""
        return any(one.epoch > self._record.epoch and one.rows for one in self._of_name())

    # --- appending --------------------------------------------------------------------------------

    async def _append(self, number: int) -> bool:
        """Whether the block is in the log now. Raises an Over."""
        while True:
            self._goes_on()
            error = await self._send(number)
            if error is None:
                self._appended = max(self._appended, number)
                return True
            if isinstance(error, SequenceReused):
                raise Refused
            if isinstance(error, SessionExpired) and self._ttl_s:
                raise Late  # it may be gone, and would be another one
            if isinstance(error, SessionExpired):
                await self._open()
                if self._appended >= number:
                    return False
                # A leader that is none any more has not heard of the session, or of its epoch.
                self._job.counts["job sessions unknown to an old leader"] += 1
            await self._job.pause(0.3)

    async def _send(self, number: int) -> LogServiceError | None:
        """Send a block once, and remember what came of it; returns what was wrong."""
        record, job = self._record, self._job
        block = self._work.blocks[number - 1]
        epoch = job.history.epoch
        sent = Sent(job.now, epoch, self._later())
        record.blocks.setdefault((self._rows, number), []).append(sent)
        request = job.request(
            block.encode(self._stamp_us),
            block.count,
            session=SessionId(self._session),
            nonce=self._nonce,
            sequence=record.epoch << bounds.SESSION_EPOCH_BITS | number,
            epoch=epoch,
        )
        try:
            applied = await job.submit(request)
        except LogServiceError as error:
            sent.outcome, sent.returned = job.failed(error), job.now
            if isinstance(error, SequenceReused):
                job.wrong(f"{self}: block {number} is not the one that was accepted")
            return error
        sent.outcome, sent.returned = Outcome.OK, job.now
        sent.lsn, sent.duplicate = applied.lsn, applied.duplicate
        if sent.late and not applied.duplicate:
            job.wrong(f"{self}: block {number} was appended, and a later epoch is open")
        told = {one.lsn for one in record.blocks[self._rows, number] if one.lsn}
        if len(told) > 1:
            job.wrong(f"{self}: block {number} is at the LSNs {sorted(told)}")
        history = job.history
        history.applied_lsn = max(history.applied_lsn, applied.lsn + block.count - 1)
        record.heard = max(record.heard, number)
        job.counts["Append"] += not applied.duplicate
        job.counts["job blocks appended" if not applied.duplicate else "job blocks repeated"] += 1
        return None

    async def _die_at(self, number: int) -> None:
        """Die with the block on its way, or before it has left."""
        task = asyncio.create_task(self._send(number))
        await asyncio.sleep(self._job.chance.choice((0.0, 0.002, 0.01, 0.1)))
        task.cancel()
        await asyncio.wait([task])
        raise Died

    async def append_late(self, number: int) -> None:
        """Send a block in the session that was opened in time, when a later epoch is open."""
        record = self._record
        self._session, self._nonce = record.session, record.nonce
        self._stamp_us = record.stamp_us or 0
        if await self._send(number) is not None:
            self._job.counts["job blocks late"] += 1

    def __repr__(self) -> str:
        return f"epoch {self._record.epoch} of {self._record.name}"
