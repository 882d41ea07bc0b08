"""background: what the client does beside the calls of its program, and that its end is noticed.

Theory of operation. A task of the client is one of the tasks of the program's loop. A program that
cancels all tasks of its loop cancels it, too, perhaps before its first step: then no `finally` of
it runs. A task may also break. So whoever begins a task either awaits it or is called when it has
ended (`begin_task`). What happens by the clock alone is a timer of the loop (`Every`), which is no
task and so is not cancelled with them.

gRPC's own tasks are in the loop, too. When one of them is cancelled, the call that it served raises
CancelledError in a task that nothing has asked to end; `asked_to_end` tells the two apart.

INV-CLIENT-TASK: the end of a task is noticed in the loop's next turn by whatever depends on it. The
work begins anew, or whatever waits for it gets an error whose outcome is true.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from logservice_wire.errors import LogServiceError

ValueT = TypeVar("ValueT")

Ended = Callable[[BaseException | None], None]
"""Called once when a task has ended: with what it raised, CancelledError included, or None."""


def begin_task(
    work: Coroutine[Any, Any, ValueT],
    ended: Ended | None = None,
    *,
    name: str = "",
    context: Context | None = None,
) -> asyncio.Task[ValueT]:
    """Run `work` in a task. `ended` None: the caller awaits the task.

    What is no operating error is a bug, and goes to the loop's exception handler as well.
    """
    task = asyncio.get_running_loop().create_task(work, name=name or None, context=context)
    if ended is not None:
        task.add_done_callback(functools.partial(_over, ended))
    return task


def _over(ended: Ended, task: asyncio.Task[Any]) -> None:
    why = asyncio.CancelledError() if task.cancelled() else task.exception()
    if why is not None and not isinstance(why, LogServiceError | asyncio.CancelledError):
        task.get_loop().call_exception_handler(
            {"message": f"{task.get_name()} has broken", "exception": why, "task": task}
        )
    ended(why)


def asked_to_end() -> bool:
    """Whether the running task was cancelled itself, and not only what it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class Every:
    """Calls `look` again and again until `stop`; it returns in how many seconds the next look is.

    A look that raises is reported by the loop, and the next one comes as late as the last one did.
    """

    __slots__ = ("_after_s", "_look", "_loop", "_timer")

    def __init__(self, first_s: float, look: Callable[[], float]) -> None:
        """The first look is in `first_s` seconds."""
        self._look = look
        self._after_s = first_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(first_s, self._run)

    @property
    def stopped(self) -> bool:
        """Whether there are no more looks."""
        return self._timer is None

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        try:
            self._after_s = self._look()
        finally:
            if self._timer is not None:
                self._timer = self._loop.call_later(self._after_s, self._run)
