"""Clients: what users of the simulated cluster do, and the history that they remember of it.

Each client works on one shard, through whichever store it finds, over wires that fail like all
others. It writes what it knows of every operation into the shard's history. `sim.history` judges
that at the end, and `final_checks` what only the simulator looks at.

A block is a real one, because stores check what others forward to them. Its first record is the
name of its batch, so a reader can tell what it sees. The other records are empty.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

from logservice_wire import errors
from logservice_wire.block import Block, encode_block, is_wide, peek_block
from logservice_wire.errors import (
    DeadlineExceeded,
    LogServiceError,
    NotReady,
)

from logservice.ids import NO_SESSION, Lsn, SessionId, ShardId, StoreId
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.replica.log_reading import LogSlice
from logservice.outcome import Applied
from logservice.owner import NO_NONCE, Author
from logservice.rsm import commands
from logservice.rsm.append_request import AppendRequest
from logservice.sim.clients.job_blocks import stamp_of, wide_batch_of
from logservice.sim.clients.job_record import JobHistory
from logservice.sim.history import Append, Operation, Outcome, Run, Truncate
from logservice.sim.interfaces import Store, World

T = TypeVar("T")

APPEND_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 2.0
IDENTITY = "app"
"""The identity of all these clients: what one began, another may go on with."""

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
    broken_holds: list[str] = field(default_factory=list)
    """What a hold's owner saw of it that must not be."""
    times: set[tuple[int, int]] = field(default_factory=set)
    """(LSN, append time) of blocks, as acks and readers were told."""
    trespasses: list[str] = field(default_factory=list)
    """What another identity was allowed to do."""
    jobs: JobHistory = field(default_factory=JobHistory)
    applied_lsn: int = 0
    first_lsn: int = 1
    epoch: int = 0
    """The newest one that some client knows of."""


def runs_of(found: LogSlice) -> tuple[Run, ...]:
    """What a reader saw, as runs of the history."""
    runs = []
    for run in found.runs:
        if run.gap is not None:
            runs.append(
                Run(run.first_lsn, run.record_count, gap=_GAPS.get(run.gap.name, run.gap.name))
            )
        else:
            runs.append(Run(run.first_lsn, run.record_count, _batch_of(run.block)))
    return tuple(runs)


def times_of(found: LogSlice) -> Iterator[tuple[int, int]]:
    """When the runs were appended, as the reader was told."""
    return ((run.first_lsn, run.append_time_us) for run in found.runs if run.append_time_us)


def stamps_of(found: LogSlice) -> Iterator[tuple[str, int]]:
    """Blocks of jobs, which alone are stamped, with their stamps."""
    for run in found.runs:
        if run.gap is None and (stamp_us := stamp_of(run.block)):
            yield _batch_of(run.block), stamp_us


def _batch_of(block: bytes | memoryview) -> str:
    """The name in a block; empty for what is none, and for a wide one with other columns than those
    of its name.
    """
    try:
        if is_wide(block):
            return wide_batch_of(block)
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
        self._store: Store | None = None

    async def run(self) -> None:
        """Work until told to stop. A plain client does nothing by itself; it is asked through."""

    # --- asking -----------------------------------------------------------------------------------

    async def ask(
        self,
        work: Callable[[NodeHost], Awaitable[T]],
        timeout_s: float,
        store: Store | None = None,
    ) -> T:
        """Have a store do `work`. Raises its LogServiceError, or one for what broke on the way."""
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

    def _choose(self) -> Store:
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
        self, build: Callable[[Author], commands.Command], timeout_s: float = READ_TIMEOUT_S
    ) -> Applied:
        """Propose a command at any store; `build` gets who asks for it."""

        async def work(host: NodeHost) -> Applied:
            author = Author(self.identity, host.identity.store_id)
            return await host.propose(self.shard, commands.encode(build(author)), timeout_s)

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
        applied = await self.ask(
            lambda host: host.append(self.shard, request, APPEND_TIMEOUT_S), APPEND_TIMEOUT_S
        )
        if applied.value:
            self.history.times.add((applied.lsn, applied.value))
        return applied

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
