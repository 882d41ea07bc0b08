"""SimLoop: an asyncio event loop whose time is virtual, and the processes that live on it.

Theory of operation. There is no selector and no thread: when nothing is ready, time jumps to the
next timer. Callbacks run in the order in which they were scheduled, timers by (time, order of
scheduling), so a run is a function of its inputs.

Every callback belongs to the `Process` in whose context it was scheduled: a store's process, a
client, or the world itself. So the death of a process is exact: its callbacks never run again, and
nothing is cleaned up. A pause (SIGSTOP) keeps them, in order. A clock of its own makes its timers
early or late.

A callback takes no time, unless its process has a `cost`. Then that draws what each callback takes:
its clock goes on by a part of it whenever the callback looks at it, what it sends leaves so much
later, and the next callback of the process waits for the end.

- INV-SIM-TIME: virtual time never goes back, and does not stand still for ever: as many callbacks
  at one moment as `CALLBACKS_PER_MOMENT_MAX` are a loop that feeds itself.
- INV-SIM-CLOCK: no timer is early on the clock that it was set on.
- INV-SIM-DEAD: no callback of a dead process runs.

`_run_once` runs until `stop`, and a `_Handle` holds no more than a callback needs: one seed runs
tens of thousands of them, and asyncio's own bookkeeping per callback cost more than the callbacks.

Tasks of dead processes are kept until `bury`, because collecting a suspended coroutine runs its
`finally` blocks, at a moment that memory management chooses.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor as FuturesExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, TypeVarTuple

from logservice.invariants import invariant

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READ_SOCKETS_S = 0.005
"""In which a process that was paused reads all that waited in its sockets."""

CALLBACKS_PER_MOMENT_MAX = 500_000
"""A thousand times what the busiest world does without time passing."""


@dataclass(slots=True)
class Cost:
    """A callback takes up to `most_s` every `interval_s` or so, and the others nothing; 0: none
    does. count: how many did.
    """

    chance: random.Random
    interval_s: float
    most_s: float
    count: int = 0
    _next_s: float = 0.0

    def draw_s(self, now_s: float) -> float:
        """What the callback takes that begins now."""
        if not self.interval_s or now_s < self._next_s:
            return 0.0
        self.count += 1
        taken_s = self.chance.random() * self.most_s
        self._next_s = now_s + taken_s + self.chance.expovariate(1.0) * self.interval_s
        return taken_s


class Process:
    """What can die, pause, and have a clock of its own.

    `rate`: local seconds per virtual second. A process that died never comes back; a restart is
    another Process.
    """

    __slots__ = (
        "_global",
        "_left_s",
        "_local",
        "alive",
        "busy_until_s",
        "context",
        "cost",
        "held",
        "name",
        "paused",
        "rate",
        "spent_s",
        "tasks",
    )

    def __init__(self, name: str, now_s: float = 0.0, local_s: float = 0.0, rate: float = 1.0):
        """`local_s`: what its clock shows at virtual time `now_s`."""
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[_Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.Context()
        self.context.run(_PROCESS.set, self)
        self.rate = rate
        self.cost: Cost | None = None
        """What its callbacks take; None: nothing."""
        self.busy_until_s = 0.0
        """When its newest callback has ended."""
        self.spent_s = 0.0
        """What the callback that runs has taken so far."""
        self._left_s = 0.0
        self._global = now_s
        self._local = local_s

    def begin_turn(self, cost: Cost, now_s: float) -> None:
        """A callback begins."""
        self._left_s = cost.draw_s(now_s)
        self.busy_until_s = now_s + self._left_s

    def end_turn(self) -> None:
        """It has returned."""
        self.spent_s = self._left_s = 0.0

    def clock_s(self, now_s: float) -> float:
        """What its clock shows to the callback that runs at virtual time `now_s`."""
        if self._left_s and self.cost is not None:
            taken_s = self.cost.chance.random() * self._left_s
            self.spent_s += taken_s
            self._left_s -= taken_s
        return self.local(now_s + self.spent_s)

    def local(self, now_s: float) -> float:
        """What its clock shows at virtual time `now_s`."""
        return self._local + (now_s - self._global) * self.rate

    def virtual(self, local_s: float) -> float:
        """The first virtual time at which its clock shows `local_s` (INV-SIM-CLOCK)."""
        found_s = self._global + (local_s - self._local) / self.rate
        while self.local(found_s) < local_s:
            # Rounding went down, and a timer would be early by it. Whoever then sleeps for the
            # rest would do so for ever, because the rest is too small for time to pass.
            found_s = math.nextafter(found_s + math.ulp(local_s) / self.rate, math.inf)
        return found_s

    def set_rate(self, rate: float, now_s: float) -> None:
        """The clock goes at another rate from `now_s` on; timers that are set stay as they are."""
        self._local = self.local(now_s)
        self._global = now_s
        self.rate = rate


_PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class _Handle(asyncio.TimerHandle):
    """A callback and the process that it belongs to."""

    __slots__ = ("process",)

    def __init__(
        self,
        process: Process,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: contextvars.Context,
        when: float = 0.0,
    ) -> None:
        # Not the base's: it asks the loop whether it is being debugged, and keeps a source line.
        self.process = process
        self._callback = callback
        self._args = args
        self._context = context
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        """See `asyncio`. One that waits in the heap is skipped when it is due."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


def _nothing() -> None:
    """In place of a callback that was cancelled: what it held can go."""


class _Outside(_Handle):
    """What comes to a process from the world: a delivery, the end of a disk operation."""

    __slots__ = ()


class SimLoop(asyncio.BaseEventLoop):
    """See the module's text."""

    def __init__(self) -> None:
        """At virtual time 0, with the world as the running process."""
        super().__init__()
        self.now_s = 0.0
        self.world = Process("world")
        self.current = self.world
        self.callbacks = 0
        """Run so far, over all processes."""
        self.on_error: Callable[[Process, BaseException | None, str], None] | None = None
        self._soon: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = 0
        self._at_this_moment = 0
        self._dead: list[Process] = []
        self._live: list[Process] = [self.world]

    # --- processes --------------------------------------------------------------------------------

    def process(self, name: str, *, local_s: float = 0.0, rate: float = 1.0) -> Process:
        """A new one, running."""
        made = Process(name, self.now_s, local_s, rate)
        self._live.append(made)
        return made

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work` as a task of `process`."""
        task: asyncio.Task[T] = self.create_task(work, context=process.context.copy())
        return task

    def call_in(
        self,
        process: Process,
        delay_s: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
    ) -> asyncio.Handle:
        """Call back in `process` after virtual `delay_s`, whatever its clock says."""
        handle = _Outside(process, callback, args, process.context)
        begins_s = self.now_s + self.current.spent_s
        self._push(begins_s + delay_s if delay_s > 0.0 else begins_s, handle)
        return handle

    def kill(self, process: Process) -> None:
        """End a process (INV-SIM-DEAD); the callback under way still returns."""
        if process.alive:
            process.alive = False
            process.held = []
            self._live.remove(process)
            self._dead.append(process)

    def pause(self, process: Process) -> None:
        """Nothing of it runs until `resume`; what comes in between waits."""
        process.paused = True

    def resume(self, process: Process, chance: random.Random | None = None) -> None:
        """What waited runs now, in the order in which it became due.

        With `chance`, what came from outside is mixed: it waited in many sockets, and nobody knows
        which of them the process reads first.
        """
        process.paused = False
        held, process.held = process.held, []
        if chance is not None:
            for handle in held:
                if isinstance(handle, _Outside):
                    self._push(self.now_s + chance.random() * READ_SOCKETS_S, handle)
            held = [handle for handle in held if not isinstance(handle, _Outside)]
        self._soon.extend(held)

    @contextlib.contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """The code in the block reads `process`'s clock. For looking, not for scheduling."""
        before, self.current = self.current, process
        try:
            yield
        finally:
            self.current = before

    def bury(self) -> None:
        """The run is over: let go of everything, whatever its `finally` blocks say about it."""
        for process in [*self._live, *self._dead]:
            process.alive = False
        self.on_error = _ignore
        # What a `finally` block still asks of "the" loop is asked of this one; asyncio would make
        # another one for it, which nobody closes.
        asyncio._set_running_loop(self)
        try:
            for process in [*self._live, *self._dead]:
                for task in process.tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    if not task.done():
                        with contextlib.suppress(BaseException):
                            task.get_coro().close()
                process.tasks.clear()
        finally:
            asyncio._set_running_loop(None)
        self._live, self._dead = [], []
        self._soon.clear()
        self._timers.clear()
        self.close()

    # --- asyncio ----------------------------------------------------------------------------------

    def time(self) -> float:
        """The clock of the process that is running."""
        return self.current.clock_s(self.now_s)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        """See `asyncio`. The process keeps hold of its tasks."""
        process = self.current if context is None else context[_PROCESS]
        if not process.alive:
            # Its last callback is still returning; what it begins never runs.
            coro.close()
            return self.create_future()
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        tasks = process.tasks
        tasks.append(task)
        if len(tasks) > 256 and len(tasks) & 255 == 0:
            process.tasks = [one for one in tasks if not one.done()]
        return task

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        process = self.current if context is None else context.get(_PROCESS, self.current)
        handle = _Handle(process, callback, args, context or process.context)
        if process.alive:
            self._soon.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See `asyncio`; there are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`; `delay` on the clock of the running process."""
        now_s = self.time()
        when_s = now_s + delay
        if delay > 0.0 and when_s <= now_s:
            # The delay is lost in rounding. Whoever sleeps for the rest of a deadline on another
            # process's clock would do so for ever at this moment (short seed 87, administered).
            when_s = math.nextafter(now_s, math.inf)
        return self.call_at(when_s, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`; `when` on the clock of the running process."""
        process = self.current if context is None else context.get(_PROCESS, self.current)
        handle = _Handle(process, callback, args, context or process.context, when)
        self._push(max(self.now_s, process.virtual(when)), handle)
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: FuturesExecutor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """See `asyncio`; runs at once, because there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody handled; the world judges it."""
        if self.on_error is not None:
            self.on_error(self.current, context.get("exception"), str(context.get("message")))
        else:
            super().call_exception_handler(context)

    def _push(self, when_s: float, handle: _Handle) -> None:
        if handle.process.alive:
            self._sequence += 1
            heapq.heappush(self._timers, (when_s, self._sequence, handle))

    def _run_once(self) -> None:
        while not self._stopping:  # type: ignore[attr-defined]
            self._next_moment()
            self._run_soon()

    def _next_moment(self) -> None:
        """Move what is due now to those that run soon; let time pass when nothing is."""
        soon, timers, pop = self._soon, self._timers, heapq.heappop
        while timers and (timers[0][2]._cancelled or not timers[0][2].process.alive):
            pop(timers)
        if not soon:
            if not timers:
                invariant(False, "INV-SIM-TIME", detail="nothing will ever happen again")
            if timers[0][0] > self.now_s:
                self.now_s = timers[0][0]
                self._at_this_moment = 0
        now_s = self.now_s
        while timers and timers[0][0] <= now_s:
            soon.append(pop(timers)[2])

    def _run_soon(self) -> None:
        """Run what was there when this began; what it adds runs next time."""
        soon = self._soon
        ran = 0
        for _ in range(len(soon)):
            handle = soon.popleft()
            process = handle.process
            if not process.alive or handle._cancelled:
                continue
            if process.paused:
                process.held.append(handle)
                continue
            if process.busy_until_s > self.now_s:
                self._push(process.busy_until_s, handle)
                continue
            self.current = process
            ran += 1
            if process.cost is not None:
                process.begin_turn(process.cost, self.now_s)
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - the world judges it
                self.call_exception_handler({"message": "in a callback", "exception": error})
            process.end_turn()
        self.current = self.world
        self.callbacks += ran
        self._at_this_moment += ran
        if self._at_this_moment >= CALLBACKS_PER_MOMENT_MAX:
            invariant(False, "INV-SIM-TIME", now_s=self.now_s)


SINCE_1970_US: Final = 1_700_000_000 * 1_000_000
"""What clocks that are right show at the virtual time 0."""


class SimClock:
    """See `clock.Clock`: what the process's clock shows."""

    def __init__(
        self, loop: SimLoop, process: Process, steps: Sequence[tuple[float, int]] = ()
    ) -> None:
        """The clock of `process`. `steps`: from a virtual time on, the time of day is so many
        microseconds ahead; in order.
        """
        self._loop = loop
        self._process = process
        self._steps = steps

    def monotonic(self) -> float:
        return self._process.clock_s(self._loop.now_s)

    # No host of this world is suspended; a process that is paused counts on.
    boottime = monotonic

    def wall_us(self) -> int:
        # Whatever the rate of the monotonic clock: a time service keeps the time of day.
        now_s = self._loop.now_s
        return SINCE_1970_US + int(now_s * 1_000_000) + ahead_us(self._steps, now_s)


def ahead_us(steps: Sequence[tuple[float, int]], now_s: float) -> int:
    """By how much a clock with these steps is ahead of the world's at a virtual time."""
    return next((by_us for since_s, by_us in reversed(steps) if now_s >= since_s), 0)


def _ignore(process: Process, error: BaseException | None, message: str) -> None:
    """Nobody is interested any more."""
