"""Workload: the clients of a usual application: writers, readers, and whoever does the rest."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable

from logservice_wire import errors
from logservice_wire.errors import (
    BeyondTail,
    LogServiceError,
    ShardNotFound,
    Truncated,
)

from logservice.ids import Lsn, SessionId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica.log_reading import LogSlice
from logservice.owner import NONCE_BYTES
from logservice.rsm import commands
from logservice.sim.clients.client import (
    READ_TIMEOUT_S,
    Client,
    Granted,
    Held,
    Opened,
    Stamps,
    runs_of,
    stamps_of,
    times_of,
)
from logservice.sim.history import Append, Outcome, Read, Run, Truncate

ATTEMPTS_MAX = 12
"""Attempts of one append in a session; then its outcome stays unknown."""


class Writer(Client):
    """Appends without a session: what is unknown stays unknown."""

    async def run(self) -> None:
        """Until told to stop."""
        number = 0
        while not self.stopping:
            await self.pause()
            number += 1
            batch = f"{self.name}-{number}"
            count = self.chance.choice((1, 1, 1, 2, 5, 20))
            expected = 0
            if self.chance.random() < 0.1:
                expected = self.history.applied_lsn + 1
                self.history.expected[batch] = expected
            epoch = self.history.epoch
            if self.chance.random() < 0.1:
                # A writer that has not heard yet that somebody took over.
                epoch = max(0, epoch - 1)
            self.history.epochs[batch] = epoch
            request = self.request(self.block(batch, count), count, epoch=epoch, expected=expected)
            invoked, lsn, outcome = self.now, 0, Outcome.OK
            try:
                lsn = (await self.submit(request)).lsn
            except LogServiceError as error:
                outcome = self.failed(error)
            self.note(Append(self.name, batch, count, invoked, self.now, outcome, lsn))


class SessionWriter(Client):
    """Appends in a session; what is unknown is tried again under the same sequence.

    With a pipeline several sequences are under way at once, so they may arrive in any order.
    """

    async def run(self) -> None:
        """Until told to stop; a session that is lost is followed by another."""
        number = 0
        while not self.stopping:
            await self.pause()
            try:
                nonce = self.chance.randbytes(NONCE_BYTES)
                opened = await self.command(functools.partial(commands.OpenSession, nonce=nonce))
            except LogServiceError as error:
                self.failed(error)
                continue
            number = await self._session(SessionId(opened.value), nonce, number)

    async def _session(self, session: SessionId, nonce: bytes, number: int) -> int:
        epoch = self.history.epoch
        opened = Opened(session, nonce)
        self.history.opened.append(opened)
        sequence = 0
        alive = True
        length = self.chance.choice((5, 30, 1000))
        while alive and not self.stopping and sequence < length:
            await self.pause()
            width = self.chance.randint(1, self.world.config.pipeline)
            tasks = []
            for _ in range(width):
                sequence += 1
                number += 1
                opened.sequence = sequence
                append = self._append(session, nonce, sequence, epoch, number)
                tasks.append(asyncio.create_task(append))
            outcomes = await asyncio.gather(*tasks)
            alive = all(outcome is Outcome.OK for outcome in outcomes)
        return number

    async def _append(
        self, session: SessionId, nonce: bytes, sequence: int, epoch: int, number: int
    ) -> Outcome:
        batch = f"{self.name}-{number}"
        count = self.chance.choice((1, 1, 2, 5))
        self.history.epochs[batch] = epoch
        block = self.block(batch, count)
        request = self.request(
            block, count, session=session, nonce=nonce, sequence=sequence, epoch=epoch
        )
        invoked, lsn, outcome = self.now, 0, Outcome.FAILED
        unknown = False
        for _ in range(ATTEMPTS_MAX):
            try:
                lsn, outcome = (await self.submit(request)).lsn, Outcome.OK
                break
            except LogServiceError as error:
                outcome = self.failed(error)
                unknown = unknown or outcome is Outcome.UNKNOWN
                if (
                    not error.retryable
                    and error.reason is not errors.Reason.SEQUENCE_GAP
                    and (outcome is Outcome.FAILED)
                ):
                    break
                if error.reason is errors.Reason.SESSION_EXPIRED:
                    break
                if error.reason is errors.Reason.SHARD_CLOSED:
                    # The session was asked first: no attempt was applied, and none will be.
                    unknown = False
                    break
            await self.pause()
        if outcome is not Outcome.OK and unknown:
            # An attempt may be on its way still: no later answer can take that back.
            outcome = Outcome.UNKNOWN
        stream = f"{self.name}/{session}"
        self.note(
            Append(
                self.name,
                batch,
                count,
                invoked,
                self.now,
                outcome,
                lsn,
                stream,
                sequence,
            )
        )
        return outcome


class Reader(Client):
    """Reads everywhere: linearizable and stale, near the tail, in the middle, out of range."""

    async def run(self) -> None:
        """Until told to stop."""
        while not self.stopping:
            await self.pause()
            history, draw = self.history, self.chance.random()
            if draw < 0.5:
                lsn = history.applied_lsn - self.chance.randint(-1, 10)
            elif draw < 0.9:
                lsn = self.chance.randint(history.first_lsn, max(1, history.applied_lsn) + 1)
            else:
                lsn = self.chance.randint(1, history.applied_lsn + 5)
            await self._read(max(1, lsn), stale=self.chance.random() < 0.3)

    async def _read(self, lsn: int, *, stale: bool) -> None:
        invoked = self.now
        store = self.chance.choice(self.world.stores)
        size = self.chance.choice((1, 300, 4000))

        async def work(host: NodeHost) -> LogSlice:
            if not stale:
                await host.read_index(self.shard, READ_TIMEOUT_S)
            return await host.read_log(self.shard, Lsn(lsn), size)

        def note(
            runs: tuple[Run, ...], following: int, first: int, applied: int, error: str = ""
        ) -> None:
            self.note(
                Read(
                    self.name,
                    store.store_id,
                    invoked,
                    self.now,
                    lsn,
                    runs,
                    following,
                    first,
                    applied,
                    not stale,
                    False,
                    error,
                )
            )
            self.history.first_lsn = max(self.history.first_lsn, first)

        try:
            found = await self.ask(work, READ_TIMEOUT_S, store)
        except Truncated as error:
            note((), lsn, error.number("first_lsn"), 0, "TRUNCATED")
        except BeyondTail as error:
            note((), lsn, 0, error.number("next_lsn") - 1, "BEYOND_TAIL")
        except ShardNotFound:
            await asyncio.sleep(0)
        except LogServiceError as error:
            self.failed(error)
        else:
            self.history.times.update(times_of(found))
            self.history.jobs.stamps.update(stamps_of(found))
            note(runs_of(found), found.next_lsn, found.first_lsn, found.applied_lsn)


class Keeper(Client):
    """Does everything else: truncates, holds, takes over the writer's right, draws timestamps."""

    async def run(self) -> None:
        """Until told to stop."""
        config = self.world.config
        if config.fenced:
            await self._until(self._acquire)
        while not self.stopping:
            await self.pause(4.0)
            draw = self.chance.random()
            try:
                if draw < 0.5 and config.truncates:
                    await self._truncate()
                elif draw < 0.65 and config.truncates:
                    await self._hold()
                elif draw < 0.8:
                    await self._stamps()
                elif config.fenced:
                    await self._acquire()
            except LogServiceError as error:
                self.failed(error)

    async def _until(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self.stopping:
            try:
                await work()
            except LogServiceError as error:
                self.failed(error)
                await self.pause()
            else:
                return

    async def _truncate(self) -> None:
        history = self.history
        lsn = history.applied_lsn - self.chance.choice((0, 3, 10, 30))
        if lsn < 1:
            return
        invoked, truncated, outcome = self.now, 0, Outcome.OK
        # The newest epoch, or one that a paused writer would still hold to be its own.
        epoch = self.chance.randint(max(0, history.epoch - 1), history.epoch)
        try:
            applied = await self.command(lambda by: commands.Truncate(by, Lsn(lsn), epoch))
            truncated = applied.value
        except LogServiceError as error:
            outcome = self.failed(error)
        done = Truncate(self.name, lsn, invoked, self.now, outcome, truncated)
        self.history.truncates.append((epoch, done))
        self.note(done)

    async def _hold(self) -> None:
        name = f"hold-{self.chance.randint(1, 3)}"
        held = self.history.held.pop(name, None)
        if held is not None:
            held.until = self.now
            if self.chance.random() < 0.7:
                await self.command(lambda by: commands.ReleaseHold(by, False, name))
                return
        lsn = max(1, self.history.applied_lsn - self.chance.randint(0, 20))
        await self.command(lambda by: commands.SetHold(by, False, Lsn(lsn), name))
        self.history.held[name] = Held(lsn, self.now)
        self.history.holds.append(self.history.held[name])

    async def _stamps(self) -> None:
        count = self.chance.randint(1, 100)
        invoked = self.now
        applied = await self.command(lambda _: commands.AllocateTimestamps(count))
        self.history.stamps.append(Stamps(applied.value, count, invoked, self.now))

    async def _acquire(self) -> None:
        invoked = self.now
        known = self.history.epoch
        takeover = self.chance.random() < 0.5
        applied = await self.command(
            lambda by: commands.AcquireWriter(by, False, known, takeover, self.name)
        )
        self.history.grants.append(Granted(applied.value, invoked, self.now))
        self.history.epoch = max(self.history.epoch, applied.value)
