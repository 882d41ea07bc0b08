"""output_lines: a program beside a log says what it does from a thread of its own.

Theory of operation. What reads a program's standard output may stop reading, and then a write
waits for as long as that lasts. A program that writes from its event loop would stop with it: its
appends end, its hold lapses, its signals are not heard. So a line is only queued on the loop, and
one thread writes. A line that finds OUTPUT_LINES_MAX of them waiting is left out. Before the next
line that has room comes one that says how many are missing.

INV-OUTPUT-1: nothing but the thread waits until the descriptor takes something.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from logservice_client.bounds import OUTPUT_END_S, OUTPUT_LINES_MAX

STDOUT: Final = 1


def missing_text(count: int) -> str:
    """The line in the place of those that were left out."""
    return f"{count} lines are missing here: nothing read them in time"


class OutputLines:
    """Lines for a descriptor, in the order of `say`. A context manager: its end waits for what is
    queued, OUTPUT_END_S at most. `missing` makes the line for lines that were left out.
    """

    def __init__(
        self, descriptor: int = STDOUT, missing: Callable[[int], str] = missing_text
    ) -> None:
        """Nothing is written before the context is entered."""
        self._descriptor = descriptor
        self._missing_text = missing
        self._missing = 0
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        # A daemon: the program may end while this thread still waits for a reader.
        self._thread = threading.Thread(target=self._run, name="output-lines", daemon=True)

    def __enter__(self) -> Self:
        """Begin to write."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write what is queued, if the descriptor takes it in time."""
        self._say_missing()
        self._queue.put(None)
        self._thread.join(OUTPUT_END_S)

    def say(self, text: str) -> None:
        """Queue a line. It never waits. One thread may call it."""
        if self._queue.qsize() >= OUTPUT_LINES_MAX:
            self._missing += 1
            return
        self._say_missing()
        self._queue.put(text)

    def _say_missing(self) -> None:
        if self._missing:
            self._queue.put(self._missing_text(self._missing))
            self._missing = 0

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            data = memoryview(line.encode(errors="backslashreplace") + b"\n")
            try:
                while data:
                    # Whoever shares the descriptor may have made it non-blocking.
                    select.select([], [self._descriptor], [])
                    with contextlib.suppress(BlockingIOError):
                        data = data[os.write(self._descriptor, data) :]
            except (OSError, ValueError):
                return  # no reader any more; what else is queued has nobody to read it
