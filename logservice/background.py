"""background: tasks that a store begins beside what it is asked, and that none ends unseen.

Theory of operation. A task that raises keeps its error until something looks at it; as long as the
task is kept, too, nothing does, and what it should have done is not done. So every task of a store
is begun here. What one raises that is no operating error (LogServiceError) goes to the loop's
exception handler at once, marked as `BROKEN`; in a store the process then ends (INV-STORE-1). What
depends on the task is called at its end, also if the task was cancelled before its first step, when
no `finally` of it runs.

INV-TASK-END: a task that breaks is reported in the loop's next turn, unless something awaits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from logservice_wire.errors import LogServiceError

ValueT = TypeVar("ValueT")

BROKEN: Final = "broken"
"""Key of what the loop's exception handler is given: a part of the store does not go on."""


def begin_task(
    work: Coroutine[Any, Any, ValueT],
    ended: Callable[[asyncio.Task[ValueT]], object] | None = None,
    *,
    awaited: bool = False,
    name: str = "",
) -> asyncio.Task[ValueT]:
    """Run `work` in a task. `ended` is called with the task when it has ended. `awaited`: the
    caller awaits the task, and gets its error.
    """
    task = asyncio.get_running_loop().create_task(work, name=name or None)
    if ended is not None:
        task.add_done_callback(ended)
    if not awaited:
        task.add_done_callback(_report)
    return task


def _report(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, LogServiceError):
        task.get_loop().call_exception_handler(
            {"message": "a task has broken", "exception": error, "task": task, BROKEN: True}
        )
