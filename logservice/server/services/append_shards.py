"""AppendShards: the blocks of many shards on one call, one message per turn in each direction.

Theory of operation. Each message costs gRPC more than the blocks in it cost the log, so a client
puts the blocks of all its logs that lead here into one message, and this file puts the answers of
one turn into one. A *lane* is what a stream of one shard is: `append_lane` decides about its blocks
and their order, `guarded_stream.GuardedLane` about its caller. It has a number, which the client
gives and never gives twice, so that what is still on its way for a lane that has ended is known as
that, and dropped.

The reader takes messages and never waits for a lane. A block goes straight to the log when its lane
is let in, nothing waits in it, and it has room; else it waits in its lane. A task of the lane asks
the gate and the lineage, which may have to ask other stores, and then takes what waited. The
answerer waits until the next outcome of some lane is there. It takes what every lane has to say in
one message, and sends it; what is settled while gRPC takes that message shares the next one.

A lane that fails ends, behind the acks of what came before, with the status that a stream of its
own would have ended with. The stream ends when the client has closed its side and all is answered,
when the caller as such is not let in any more, or by a message that breaks the rules of the stream
itself: a number that is not new, a block of a lane that never was, more lanes than there may be.
What was proposed by then is answered first. A stream without a lane is ended after
STREAM_OPEN_TIMEOUT_S, because it needs no right over anything and holds a place.

INV-LANES-1: what becomes of one lane, and how long its shard takes, changes nothing for the others:
neither what is taken nor what is answered.
INV-LANES-2: a lane proposes only while the gate has let it in, for its own shard.
INV-LANES-3: a stream keeps STREAM_LANES_MAX lanes at most, SESSION_WINDOW blocks of each without an
answer that gRPC has, and of those that are not proposed STREAM_LANES_WAITING_BYTES_MAX together,
whether the client reads or not. It keeps no message, and no part of one, which would hold all of
its memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    TooLarge,
    UnknownOutcome,
)
from logservice_wire.status import to_status_details
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.background import begin_task
from logservice.ids import ShardId
from logservice.server.edge.call import refused
from logservice.server.edge.call_book import OK
from logservice.server.edge.guarded_stream import GuardedLane
from logservice.server.edge.token_addresses import moved_error
from logservice.server.services.append_lane import (
    AppendLane,
    KeptBlock,
    KeptOpen,
    kept_block,
    kept_open,
)

_METHOD: Final = "AppendShards"
_BUSY_MS: Final = 50
"""When a lane that was refused for lack of room may come again."""

Request = log_pb2.AppendShardsRequest
Opens = Callable[[KeptOpen], Awaitable[AppendLane]]
"""Makes the lane that a client asks for; raises LogServiceError."""


class LanesContext(Protocol):
    """What is needed of `GuardedStream`."""

    async def read(self) -> Any:
        """The next message, or EOF."""

    async def write(self, message: log_pb2.AppendShardsResponse) -> None:
        """Send an answer."""

    def lane(self, shard: ShardId) -> GuardedLane:
        """A place for a lane. Raises Busy."""


class _Lane:
    """`guarded` None: there is no place for it; `appends` None: it is not open yet. `refused`: why
    it ends without having been open, or with blocks that were not taken.
    """

    __slots__ = (
        "appends",
        "closed",
        "guarded",
        "number",
        "opened",
        "refused",
        "task",
        "waiting",
        "watched",
    )

    def __init__(self, number: int, opened: KeptOpen) -> None:
        self.number = number
        self.opened = opened
        self.guarded: GuardedLane | None = None
        self.appends: AppendLane | None = None
        self.waiting: deque[KeptBlock] = deque()
        self.closed = False
        self.refused: LogServiceError | None = None
        self.task: asyncio.Task[None] | None = None
        self.watched: asyncio.Future[Any] | None = None

    @property
    def over(self) -> bool:
        """It takes no more blocks."""
        return self.refused is not None or (self.appends is not None and self.appends.failed)

    @property
    def unanswered(self) -> int:
        """Blocks without an answer."""
        return len(self.waiting) + (len(self.appends) if self.appends is not None else 0)

    @property
    def served(self) -> bool:
        """The client has closed it, and everything is answered."""
        return self.closed and self.task is None and not self.unanswered


class AppendShards:
    """One call. `run` returns when the client has closed its side and everything is answered."""

    def __init__(self, context: LanesContext, opens: Opens, inflight_max: int) -> None:
        """`inflight_max`: blocks of a lane that are proposed and unanswered."""
        self._context = context
        self._opens = opens
        self._inflight_max = inflight_max
        self._lanes: dict[int, _Lane] = {}
        self._newest = 0
        self._waiting_bytes = 0
        self._ready: dict[int, _Lane] = {}
        """Lanes with something to say, in the order in which they had it."""
        self._changed = asyncio.Event()
        self._reading = True
        self._broken = False
        self._reason: BaseException | None = None
        """Why the stream ends at once."""
        self._idle: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Serve the stream. Raises the LogServiceError that ends it as a whole. A lane that has an
        answer to everything ends well, whether its reader or this task hears of a cancel first.
        """
        reader = begin_task(self._read(), awaited=True)
        self._look_idle()
        try:
            await self._answer()
            await reader
        finally:
            reader.cancel()
            for lane in [*self._lanes.values()]:
                self._forget(lane, "CANCELLED" if lane.over or lane.unanswered else OK)
            if self._idle is not None:
                self._idle.cancel()

    # --- what comes -------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while (message := await self._context.read()) is not EOF:
                self._take(message)
                del message  # it is not kept until the next one comes
            for lane in self._lanes.values():
                self._close(lane)
        except BaseException:
            self._broken = True
            for lane in [*self._lanes.values()]:
                self._drop_waiting(lane)
                self._speaks(lane)
            raise
        finally:
            self._reading = False
            self._changed.set()

    def _take(self, message: Request) -> None:
        if len(message.opens) > bounds.SHARDS_MESSAGE_OPENS_MAX:
            raise _too_many("opens", bounds.SHARDS_MESSAGE_OPENS_MAX, len(message.opens))
        for opened in message.opens:
            self._open(opened)
        lanes, touched = self._lanes, dict[int, bool]()
        for block in message.blocks:
            number = block.lane
            lane = lanes.get(number)
            if lane is None:
                if not 0 < number <= self._newest:
                    raise InvalidArgument("a block of a lane that was not opened", field="lane")
                continue  # it has ended, and the client did not know that yet
            if lane.over:
                continue
            direct = touched.get(number)
            if direct is None:
                direct = touched[number] = self._may_propose(lane)
            appends = lane.appends
            if (
                direct
                and appends is not None
                and not lane.waiting
                and not lane.closed
                and len(appends) < self._inflight_max
            ):
                appends.take(block)
                if len(appends) == 1:
                    self._watch(lane, appends)
            else:
                self._wait(lane, block)
        for closed in message.closes:
            lane = lanes.get(closed.lane)
            if lane is not None:
                self._close(lane)
            elif not 0 < closed.lane <= self._newest:
                raise InvalidArgument("a lane is closed that was not opened", field="lane")

    def _open(self, opened: Request.Open) -> None:
        if opened.lane <= self._newest:
            raise InvalidArgument("the number of a lane is above every earlier one", field="lane")
        if len(self._lanes) >= bounds.STREAM_LANES_MAX:
            raise _too_many("lanes", bounds.STREAM_LANES_MAX, len(self._lanes) + 1)
        self._newest = opened.lane
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        lane = self._lanes[opened.lane] = _Lane(opened.lane, kept_open(opened))
        try:
            lane.guarded = self._context.lane(ShardId(opened.shard_id))
        except LogServiceError as error:
            self._refuse(lane, error)
            return
        self._admit(lane)

    def _may_propose(self, lane: _Lane) -> bool:
        """Whether the gate's decision still stands; else the lane's task asks again."""
        if lane.task is not None:
            return False
        assert lane.guarded is not None  # a lane without a place is over
        if lane.guarded.in_force:
            return True
        self._admit(lane)
        return False

    def _wait(self, lane: _Lane, block: Request.Block) -> None:
        size = len(block.block)
        # What waits is not taken any more either, so the first one of it says so.
        first = lane.waiting[0].sequence if lane.waiting else block.sequence
        if lane.closed:
            self._refuse(lane, InvalidArgument("the lane was closed", field="lane", sequence=first))
        elif lane.unanswered >= bounds.SESSION_WINDOW:
            problem = f"more than {bounds.SESSION_WINDOW} unanswered blocks"
            self._refuse(lane, Busy(problem, retry_after_ms=_BUSY_MS, sequence=first))
        elif self._waiting_bytes + size > bounds.STREAM_LANES_WAITING_BYTES_MAX:
            problem = "too many bytes wait for their lanes"
            self._refuse(lane, Busy(problem, retry_after_ms=_BUSY_MS, sequence=first))
        else:
            lane.waiting.append(kept_block(block))
            self._waiting_bytes += size

    def _close(self, lane: _Lane) -> None:
        lane.closed = True
        if lane.served:
            self._speaks(lane)

    # --- a lane's own task ------------------------------------------------------------------------

    def _admit(self, lane: _Lane) -> None:
        lane.task = begin_task(self._let_in(lane), self._task_ended, awaited=True)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        bug = None if task.cancelled() else task.exception()
        if bug is not None:
            # No operating error: those end the lane alone.
            self._end(bug)

    def _end(self, reason: BaseException) -> None:
        self._reason = reason
        self._changed.set()

    def _look_idle(self) -> None:
        """End the stream if no lane comes for a while."""
        idle = DeadlineExceeded("no lane of the stream is open")
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(bounds.STREAM_OPEN_TIMEOUT_S, self._end, idle)

    async def _let_in(self, lane: _Lane) -> None:
        assert lane.guarded is not None  # or nothing was begun
        try:
            await lane.guarded.ask()
            if lane.appends is None:
                lane.appends = await self._opens(lane.opened)
        except LogServiceError as error:
            self._refuse(lane, error)
        finally:
            lane.task = None
        self._take_waiting(lane)
        if lane.served:
            self._speaks(lane)

    def _take_waiting(self, lane: _Lane) -> None:
        """Propose what waits, as far as there is room."""
        appends, waiting = lane.appends, lane.waiting
        if appends is None or lane.task is not None:
            return
        while waiting and len(appends) < self._inflight_max and not lane.over:
            block = waiting.popleft()
            self._waiting_bytes -= len(block.block)
            appends.take(block)
        if appends.failed:
            self._drop_waiting(lane)
        self._watch(lane, appends)

    def _refuse(self, lane: _Lane, error: LogServiceError) -> None:
        """The lane ends with `error`, behind the acks of what it has proposed."""
        if lane.over:
            return
        # Without the frames that it left, which know the lane (INV-GUARD-2).
        lane.refused = error.with_traceback(None)
        self._drop_waiting(lane)
        if lane.appends is None or not len(lane.appends):
            self._speaks(lane)

    def _drop_waiting(self, lane: _Lane) -> None:
        self._waiting_bytes -= sum(len(block.block) for block in lane.waiting)
        lane.waiting.clear()

    # --- what is answered -------------------------------------------------------------------------

    def _watch(self, lane: _Lane, appends: AppendLane) -> None:
        """Hear of it when the lane's next outcome is there."""
        if len(appends) and lane.watched is not appends.head:
            lane.watched = appends.head
            lane.watched.add_done_callback(lambda _: self._speaks(lane))

    def _speaks(self, lane: _Lane) -> None:
        """The lane has something to say."""
        if lane.number in self._lanes:
            self._ready[lane.number] = lane
            self._changed.set()

    async def _answer(self) -> None:
        while True:
            while not self._ready:
                if self._reason is not None:
                    raise self._reason
                if not self._reading and not self._lanes:
                    return
                self._changed.clear()
                await self._changed.wait()
            ready, self._ready = self._ready, {}
            response = log_pb2.AppendShardsResponse()
            for lane in ready.values():
                self._say(lane, response)
            if not response.lanes:
                continue
            try:
                await self._context.write(response)
            except LogServiceError as error:
                # These blocks are in the log (INV-EFFECT-1).
                raise UnknownOutcome(f"the acks cannot be sent: {error.message}") from error

    def _say(self, lane: _Lane, response: log_pb2.AppendShardsResponse) -> None:
        """Put what the lane has to say into `response`."""
        appends, failure, said = lane.appends, lane.refused, None
        if appends is not None:
            if len(appends) and appends.head.done():
                failed = appends.failure()
                if failed is None:
                    said = response.lanes.add(lane=lane.number)
                    failed = self._settle(lane, appends, said)
                failure = failed if failed is not None or len(appends) else failure
            elif len(appends):
                failure = None  # what was proposed is told first
            if failure is None:
                self._take_waiting(lane)
                self._watch(lane, appends)
        if failure is not None:
            outcome = failure.reason.value
            refused[f"{_METHOD}/{outcome}"] += 1
        elif lane.served or (self._broken and not lane.unanswered):
            outcome = OK
        else:
            return
        if not self._broken:
            said = response.lanes.add(lane=lane.number) if said is None else said
            said.ended = True
            said.status = b"" if failure is None else to_status_details(moved_error(failure))
        self._forget(lane, outcome)

    @staticmethod
    def _settle(
        lane: _Lane, appends: AppendLane, said: log_pb2.AppendShardsResponse.Lane
    ) -> LogServiceError | None:
        """Put the acks into `said`; returns what ends the lane behind them."""
        assert lane.guarded is not None  # it has appended
        try:
            appends.settle(said)
        except UnknownOutcome as untold:
            said.ClearField("acks")
            return untold
        lane.guarded.answered(said)
        return appends.failure()

    def _forget(self, lane: _Lane, outcome: str) -> None:
        """The lane is over."""
        self._lanes.pop(lane.number, None)
        self._ready.pop(lane.number, None)
        self._drop_waiting(lane)
        if lane.task is not None:
            lane.task.cancel()
        if lane.appends is not None:
            lane.appends.abandon()
        if lane.guarded is not None:
            lane.guarded.ended(outcome)
        if not self._lanes and self._reading:
            self._look_idle()


def _too_many(name: str, limit: int, value: int) -> TooLarge:
    return TooLarge(f"{name}: at most {limit}", name=name, limit=limit, value=value)
