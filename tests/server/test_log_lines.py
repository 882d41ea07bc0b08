"""INV-LOG-LINES-1: the queue of log lines, its bound, what is said of missing ones, the end."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from logservice import bounds
from logservice.server.crash import CRASH_EXIT_CODE
from logservice.server.log_lines import LogLines
from tests.waiting import wait_until

FORM = logging.Formatter("%(message)s")

CRASHES = """
import logging
from logservice.invariants import InvariantViolation
from logservice.server import log_lines
from logservice.server.crash import crash
with log_lines.to_stderr(logging.Formatter(), "INFO", stdout=True):
    for number in range(1000):
        logging.getLogger("x").info("line %d", number)
    crash(InvariantViolation("INV-TEST-1", {"found": 17}))
"""

BEGINS_WITHOUT = """
import os, sys
os.close(1); os.close(2)
import logging
from logservice.server import log_lines
with log_lines.to_stderr(logging.Formatter(), "INFO", stdout=True):
    segment = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
    logging.getLogger("x").info("a line of the log")
sys.exit(0 if segment > 2 and os.fstat(segment).st_size == 0 else 1)
"""


class Pipe:
    """One whose writer does not block, and that is full at first."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        self.filled = 0
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.filled += os.write(self.writer, b"x" * size)

    def lines(self, last: str) -> list[str]:
        """What was written behind the filling, up to the line `last`."""
        found = bytearray()
        while not found[self.filled :].endswith(last.encode() + b"\n"):
            found += os.read(self.reader, 65536)
        del found[: self.filled]
        self.filled = 0
        return found.decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.writer)
    with contextlib.suppress(OSError):
        os.close(made.reader)


def started(pipe: Pipe) -> LogLines:
    lines = LogLines(os.dup(pipe.writer), FORM)
    lines.start()
    return lines


def test_lines_beyond_the_bound_are_counted_and_said_where_they_are_missing(pipe: Pipe) -> None:
    """It reaches LOG_WAITING_BYTES_MAX: that much waits, to the byte."""
    lines = started(pipe)
    text = "y" * 1023
    fit = bounds.LOG_WAITING_BYTES_MAX // 1024
    for number in range(fit + 3):
        assert lines.dropped == max(0, number - fit)
        lines.put(text)
    assert lines.dropped == 3
    missing = "3 lines of the log are missing here: nothing read them in time"
    assert pipe.lines(missing) == [text] * fit + [missing]
    lines.put("and on")
    assert pipe.lines("and on")[-1] == "and on"
    assert lines.dropped == 3


def test_what_is_missing_is_said_before_the_next_line(pipe: Pipe) -> None:
    lines = started(pipe)
    lines.put("z" * (bounds.LOG_WAITING_BYTES_MAX - 1))
    lines.put("no room")
    read = threading.Thread(target=pipe.lines, args=("next",))
    read.start()
    wait_until(lambda: lines.drain(0))
    lines.put("next")
    read.join()


def test_a_line_with_a_wrong_argument_costs_itself_only(pipe: Pipe) -> None:
    lines = started(pipe)
    lines.emit(logging.LogRecord("x", logging.INFO, "f", 1, "%d apples", ("no number",), None))
    lines.put("end")
    first, _ = pipe.lines("end")
    assert first.startswith("a line of x cannot be formatted: TypeError")


def test_without_a_reader_lines_are_lost_and_nothing_else(pipe: Pipe) -> None:
    lines = started(pipe)
    os.close(pipe.reader)
    for number in range(10):
        lines.put(f"line {number}")
    wait_until(lambda: lines.dropped == 10)
    assert lines.drain(30)


def crashed(stderr: int) -> int:
    command = [sys.executable, "-c", CRASHES]
    return subprocess.run(command, stdout=stderr, stderr=stderr, timeout=60, check=False).returncode


def test_a_crash_ends_the_process_although_nothing_reads_its_report(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, True)
    assert crashed(pipe.writer) == CRASH_EXIT_CODE


def test_the_report_of_a_crash_is_behind_all_lines_before_it() -> None:
    reader, writer = os.pipe()
    found: list[bytes] = []

    def read() -> None:
        with os.fdopen(reader, "rb") as lines:
            found.extend(lines)

    reading = threading.Thread(target=read)
    reading.start()
    assert crashed(writer) == CRASH_EXIT_CODE
    os.close(writer)
    reading.join()
    assert found[:1000] == [b"line %d\n" % number for number in range(1000)]
    assert found[1000] == b"logservice: FATAL: the store stops at once\n"
    assert found[-1].endswith(b"INV-TEST-1 violated: found=17\n")


def test_a_process_without_stderr_writes_into_no_file_of_its_own(tmp_path: object) -> None:
    """Else its next file would have stderr's number, and the log would go into a segment."""
    command = [sys.executable, "-c", BEGINS_WITHOUT, f"{tmp_path}/segment"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
