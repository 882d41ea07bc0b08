"""log_lines: the lines of a long-lived process go to its stderr from a thread of their own.

Theory of operation. What reads a process's stderr (a terminal, a collector, the program at the
other end of a pipe) may stop reading, or go away. A write to a full pipe waits, and whatever waits
on the event loop stops the store. So a line is only queued where it is logged, and one thread
writes. It alone waits for room. The queue is bounded by LOG_WAITING_BYTES_MAX. What does not fit is
counted, and a line in its place says how many lines are missing.

Not every line comes through `logging`: gRPC's C code writes to the descriptor itself, and Python
does for an exception that nothing can catch. Their threads must not wait either. So inside
`to_stderr` the descriptor does not block, and such a line is lost where there is no room. A pipe or
a terminal is opened a second time for that, because the flag belongs to all processes that share
the opened file. A socket, and a pipe of another user, cannot be opened again. There the flag is set
on what is shared, and taken back at the end.

The last lines count most. A process that ends waits for them, LOG_LAST_LINES_S at most, and so does
one that crashes (`say_last`).

INV-LOG-LINES-1: nothing but the thread waits until stderr takes something.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from logservice import bounds

_STDOUT: Final = 1
_STDERR: Final = 2

_CHUNK_BYTES: Final = 65536

PLAIN: Final = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
"""How programs that run beside a cluster say their lines."""


class LogLines(logging.Handler):
    """A handler that queues lines for a descriptor. `start` it once."""

    def __init__(self, descriptor: int, formatter: logging.Formatter) -> None:
        """Nothing is written before `start`."""
        super().__init__()
        self.setFormatter(formatter)
        self.dropped = 0
        """Lines that were lost since the start."""
        self._descriptor = descriptor
        # A condition's own lock may be taken twice by one thread, as a destructor that logs does.
        self._changed = threading.Condition()
        self._lines: deque[tuple[bytes, int]] = deque()
        """What waits, and for how many lines of the log it stands."""
        self._bytes = 0
        """Of what waits or is being written."""
        self._missing = 0
        """Lines that were lost at the end of the queue, and that no line speaks of yet."""
        self._thread = threading.Thread(target=self._run, name="log-lines", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; see `logging.Handler`."""
        try:
            line = self.format(record)
        except Exception as bug:  # noqa: BLE001 - a wrong argument of a line costs that line alone
            line = f"a line of {record.name} cannot be formatted: {bug!r}: {record.msg!r}"
        self.put(line)

    def put(self, text: str, *, last: bool = False) -> None:
        """Queue a line. `last`: the process ends with it, so it is queued at any length."""
        line = text.encode(errors="backslashreplace") + b"\n"
        with self._changed:
            if self._bytes + len(line) > bounds.LOG_WAITING_BYTES_MAX and not last:
                self.dropped += 1
                self._missing += 1
                return
            self._say_missing()
            self._add(line, 1)

    def drain(self, seconds: float) -> bool:
        """Wait until all is written and there is room for more. False when the time is up."""
        end_s = time.monotonic() + seconds
        with self._changed:
            written = self._changed.wait_for(lambda: not self._bytes, seconds)
        return written and _has_room(self._descriptor, max(0.0, end_s - time.monotonic()))

    def _add(self, line: bytes, count: int) -> None:
        self._lines.append((line, count))
        self._bytes += len(line)
        self._changed.notify_all()

    def _say_missing(self) -> None:
        if self._missing:
            text = f"{self._missing} lines of the log are missing here: nothing read them in time"
            record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
            self._add(self.format(record).encode() + b"\n", self._missing)
            self._missing = 0

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            chunk, count = self._take()
            try:
                _write(self._descriptor, chunk)
            except OSError:  # it has no reader any more, or a full disk; the next line tries again
                lost = count
            else:
                lost = 0
            with self._changed:
                self._bytes -= len(chunk)
                self._missing += lost
                self.dropped += lost
                if not lost and not self._lines:
                    self._say_missing()
                self._changed.notify_all()

    def _take(self) -> tuple[bytes, int]:
        with self._changed:
            self._changed.wait_for(lambda: self._lines)
            taken: list[bytes] = []
            size = lines = 0
            while self._lines and (not taken or size + len(self._lines[0][0]) <= _CHUNK_BYTES):
                line, count = self._lines.popleft()
                taken.append(line)
                size += len(line)
                lines += count
        return b"".join(taken), lines


_current: LogLines | None = None


def dropped() -> int:
    """Lines of this process's log that were lost."""
    return _current.dropped if _current is not None else 0


def say_last(text: str = "") -> None:
    """Before the process ends at once: write what waits, and `text`, if stderr takes it in time."""
    if _current is None:
        sys.stderr.write(text)
        sys.stderr.flush()
        return
    if text:
        _current.put(text.removesuffix("\n"), last=True)
    _current.drain(bounds.LOG_LAST_LINES_S)


@contextlib.contextmanager
def to_stderr(
    formatter: logging.Formatter, level: int | str, *, stdout: bool = False
) -> Iterator[None]:
    """Inside, the root logger writes to stderr, and nothing waits for it. `stdout`: nothing waits
    for that either, because the process has no result to print.
    """
    global _current
    _fill_standard_descriptors()
    lines = LogLines(_STDERR, formatter)
    before, _current = _current, lines
    with contextlib.ExitStack() as undo:
        for one in (_STDOUT, _STDERR) if stdout else (_STDERR,):
            undo.enter_context(_never_blocks(one))
        lines.start()
        logging.basicConfig(level=level, handlers=[lines], force=True)
        try:
            yield
        finally:
            lines.drain(bounds.LOG_LAST_LINES_S)
            _current = before


def _write(descriptor: int, data: bytes) -> None:
    """Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            _has_room(descriptor, None)


def _has_room(descriptor: int, seconds: float | None) -> bool:
    """Wait for it; also true when a write would fail at once."""
    look = select.poll()
    look.register(descriptor, select.POLLOUT)
    return bool(look.poll(None if seconds is None else seconds * 1000))


def _fill_standard_descriptors() -> None:
    """A process that was started without stdin, stdout or stderr would give their numbers to its
    next files, and lines of the log would go into a segment.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number


@contextlib.contextmanager
def _never_blocks(descriptor: int) -> Iterator[None]:
    """Inside, a write fails that would wait. Afterwards it is as it was, or leads nowhere if there
    is no room: the end of a process must not wait for what is still in a buffer.
    """
    kind = os.fstat(descriptor).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or os.isatty(descriptor)):
        yield  # a file: nothing drains it
        return
    before, blocking = os.dup(descriptor), os.get_blocking(descriptor)
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        own = os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:
        os.set_blocking(descriptor, False)
        own = -1
    else:
        os.dup2(own, descriptor)
        os.close(own)
    try:
        yield
    finally:
        if own < 0:
            os.set_blocking(before, blocking)
        if not _has_room(before, 0):
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), before)
        os.dup2(before, descriptor)
        os.close(before)
