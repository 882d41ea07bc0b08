"""Clients: what users of the simulated cluster do, and the history that they remember of it.

Each client works on one shard, through whichever store it finds, over wires that fail like all
others. What it knows of every operation goes into the shard's history, which
`logservice.sim.history` judges at the end, together with what only the simulator checks: fencing
and timestamps (`aftermath`).

A block is a real one, since stores check what others forward to them. Its first record is the name
of its batch, so what a reader sees says what it is; the others are empty.
"""

from __future__ import annotations

import asyncio
import functools
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from logservice_wire import errors
from logservice_wire.block import Block, encode_block, peek_block
from logservice_wire.errors import (
    BeyondTail,
    DeadlineExceeded,
    LogServiceError,
    NotReady,
    ShardNotFound,
    Truncated,
)

from logservice.ids import NO_SESSION, Lsn, SessionId, ShardId, StoreId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.reading.log_slice import LogSlice
from logservice.outcome import Applied
from logservice.owner import NO_NONCE, NONCE_BYTES, Author
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.sim.history import Append, Operation, Outcome, Read, Run, Truncate

if TYPE_CHECKING:
    from logservice.sim.store import SimStore
    from logservice.sim.world import World

T = TypeVar("T")

APPEND_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 2.0
ATTEMPTS_MAX = 12
"""Of one append in a session; then its outcome stays unknown."""

IDENTITY = "app"
"""Whose all of these are: what one began another may go on with."""

_GAPS = {
    "SEQUENCE_GAP": "SEQUENCE",
    "SEQUENCE_REUSED": "SEQUENCE",
    "SESSION_EXPIRED": "SEQUENCE",
}


@dataclass(slots=True)
class Granted:
    """A writer epoch, with the time in which it was granted."""

    epoch: int
    invoked: float
    returned: float


@dataclass(slots=True)
class Stamps:
    """A range of timestamps."""

    first: int
    count: int
    invoked: float
    returned: float


@dataclass(slots=True)
class Held:
    """A hold: granted at `since`; `until`: when somebody began to move or release it."""

    lsn: int
    since: float
    until: float = math.inf


@dataclass(slots=True)
class Opened:
    """A session, and the newest sequence sent in it."""

    session: SessionId
    nonce: bytes
    sequence: int = 0


@dataclass(slots=True)
class ShardHistory:
    """Everything the clients of a shard know."""

    operations: list[Operation] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    """batch -> the writer epoch it was appended with."""
    grants: list[Granted] = field(default_factory=list)
    stamps: list[Stamps] = field(default_factory=list)
    expected: dict[str, int] = field(default_factory=dict)
    """batch -> the LSN at which alone it was to be appended."""
    truncates: list[tuple[int, Truncate]] = field(default_factory=list)
    """With the writer epoch of each."""
    holds: list[Held] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)
    opened: deque[Opened] = field(default_factory=lambda: deque(maxlen=8))
    """Sessions that were opened last."""
    trespasses: list[str] = field(default_factory=list)
    """What another identity was allowed to do."""
    applied_lsn: int = 0
    first_lsn: int = 1
    epoch: int = 0
    """The newest one that some client knows of."""


def runs_of(found: LogSlice) -> tuple[Run, ...]:
    """What a reader saw, in the checker's words."""
    runs = []
    for run in found.runs:
        if run.gap is not None:
            runs.append(
                Run(run.first_lsn, run.record_count, gap=_GAPS.get(run.gap.name, run.gap.name))
            )
        else:
            runs.append(Run(run.first_lsn, run.record_count, _batch_of(run.block)))
    return tuple(runs)


def _batch_of(block: bytes | memoryview) -> str:
    """The name in a block; empty for what is none."""
    try:
        count = peek_block(block)
        return Block(block, count, 0).record(0).rstrip(b".").decode(errors="replace")
    except (LogServiceError, ValueError):
        return ""


class Client:
    """One endpoint with its tasks."""

    identity = IDENTITY

    def __init__(self, world: World, number: int, shard: ShardId, history: ShardHistory) -> None:
        """Works on `shard` from `run` on."""
        self.world = world
        self.name = f"client-{number}"
        self.shard = shard
        self.history = history
        self.process = world.loop.process(self.name)
        self.chance = random.Random(f"client/{number}/{world.config.seed}")
        self.counts: Counter[str] = Counter()
        self.stopping = False
        self._store: SimStore | None = None

    async def run(self) -> None:
        """Work until told to stop. A plain client does nothing by itself; it is asked through."""

    # --- asking -----------------------------------------------------------------------------------

    async def ask(
        self,
        work: Callable[[NodeHost], Awaitable[T]],
        timeout_s: float,
        store: SimStore | None = None,
    ) -> T:
        """Have a store do `work`; raises its LogServiceError, or what became of the way there."""
        chosen = store or self._choose()
        transport, parts = chosen.transport, chosen.parts
        if not chosen.up or transport is None or parts is None or not transport.running:
            self._store = None
            await asyncio.sleep(0.01)
            raise NotReady("connection refused")
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.world.net.call(
            self.name, self.process, transport, lambda: work(parts.host), timeout_s, answer
        )
        try:
            async with asyncio.timeout(timeout_s + 0.5):
                return cast(T, await answer)
        except TimeoutError:
            self._store = None
            raise DeadlineExceeded("no answer") from None
        except LogServiceError as error:
            leader = error.metadata.get("leader", "")
            if leader:
                self._store = next(one for one in self.world.stores if one.store_id == leader)
            elif self.chance.random() < 0.5:
                self._store = None
            raise

    def _choose(self) -> SimStore:
        if self._store is None or self.chance.random() < 0.1:
            with_shard = [one for one in self.world.stores if one.running(self.shard) is not None]
            self._store = self.chance.choice(with_shard or self.world.stores)
        return self._store

    async def pause(self, factor: float = 1.0) -> None:
        """Think."""
        seconds = self.world.config.pause_s * factor
        await asyncio.sleep(seconds * self.chance.uniform(0.2, 1.8))

    @property
    def now(self) -> float:
        """Virtual time, the same for everybody: it orders the history."""
        return self.world.loop.now_s

    def failed(self, error: LogServiceError) -> Outcome:
        """What an error says about the operation."""
        self.counts[error.reason.value] += 1
        unknown = error.outcome is errors.Outcome.UNKNOWN
        return Outcome.UNKNOWN if unknown else Outcome.FAILED

    async def command(
        self, make: Callable[[Author], commands.Command], timeout_s: float = READ_TIMEOUT_S
    ) -> Applied:
        """Propose the command that `make` makes of who asks for it, at whatever store."""

        async def work(host: NodeHost) -> Applied:
            author = Author(self.identity, host.identity.store_id)
            return await host.propose(self.shard, commands.encode(make(author)), timeout_s)

        return await self.ask(work, timeout_s)

    def request(
        self,
        block: bytes,
        count: int,
        *,
        session: SessionId = NO_SESSION,
        nonce: bytes = NO_NONCE,
        sequence: int = 0,
        epoch: int = 0,
        expected: int = 0,
    ) -> AppendRequest:
        """An append of this client's."""
        claim = Author(self.identity, StoreId(self.name)).claim(nonce)
        return AppendRequest(session, sequence, epoch, Lsn(expected), count, block, claim)

    async def submit(self, request: AppendRequest) -> Applied:
        """Append a block."""
        return await self.ask(
            lambda host: host.append(self.shard, request, APPEND_TIMEOUT_S), APPEND_TIMEOUT_S
        )

    def block(self, batch: str, count: int) -> bytes:
        """The block of a batch. Its last byte is one of a record, never padding (`forgery`)."""
        name = batch.encode() + b"." * self.chance.choice((0, 0, 16, 100, 100, 800))
        name += b"." * (-len(name) & 7)
        return encode_block([name, *[b""] * (count - 1)], 0)

    def note(self, operation: Operation) -> None:
        """Remember an operation."""
        self.history.operations.append(operation)
        self.counts[type(operation).__name__] += 1
        if isinstance(operation, Append) and operation.outcome is Outcome.OK:
            last = operation.lsn + operation.count - 1
            self.history.applied_lsn = max(self.history.applied_lsn, last)


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
            await self.pause()
        if outcome is not Outcome.OK and unknown:
            # An attempt may be on its way still: no later answer can take that back.
            outcome = Outcome.UNKNOWN
        stream = f"{self.name}/{session}"
        self.note(
            Append(
                self.name, batch, count, invoked, self.now, outcome, lsn, stream, sequence,
            )
        )  # fmt: skip
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
                    self.name, store.store_id, invoked, self.now, lsn, runs, following, first,
                    applied, not stale, False, error,
                )
            )  # fmt: skip
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
