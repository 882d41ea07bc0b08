"""Lines of a program: nothing waits for their reader, and what it missed is said (INV-OUTPUT-1)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from logservice_client import output_lines
from logservice_client.bounds import OUTPUT_LINES_MAX
from logservice_client.output_lines import OutputLines, missing_text


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may get no core for seconds on a busy machine."""
    monkeypatch.setattr(output_lines, "OUTPUT_END_S", 60.0)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        if os.path.exists(f"/proc/self/fd/{end}"):
            os.close(end)


def fill(writer: int) -> int:
    """Leave no room for a byte; how many there are."""
    os.set_blocking(writer, False)
    total = 0
    for size in (65536, 1):
        try:
            while True:
                total += os.write(writer, b"x" * size)
        except BlockingIOError:
            pass
    os.set_blocking(writer, True)
    return total


def read(reader: int, writer: int) -> list[str]:
    """All lines; the end for writing is closed."""
    os.close(writer)
    with os.fdopen(os.dup(reader), "rb") as file:
        return file.read().decode().splitlines()


def test_lines_come_in_their_order(pipe: tuple[int, int]) -> None:
    with OutputLines(pipe[1]) as output:
        for number in range(100):
            output.say(f"{number} \udcff")
    assert read(*pipe) == [f"{number} \\udcff" for number in range(100)]


def test_inv_output_1_a_full_pipe_stops_nobody_and_the_missing_lines_are_counted(
    pipe: tuple[int, int],
) -> None:
    filled = fill(pipe[1])
    with OutputLines(pipe[1]) as output:
        for number in range(OUTPUT_LINES_MAX + 10):
            output.say(str(number))
        assert os.read(pipe[0], filled) == b"x" * filled
    lines = read(*pipe)
    # The thread may have taken one line out of the queue before it was full.
    missing = OUTPUT_LINES_MAX + 10 - (len(lines) - 1)
    assert missing in (9, 10)
    assert lines == [*map(str, range(OUTPUT_LINES_MAX + 10 - missing)), missing_text(missing)]


def test_the_end_does_not_wait_for_a_reader_that_never_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_lines, "OUTPUT_END_S", 0.01)
    filled = fill(pipe[1])
    with OutputLines(pipe[1]) as output:
        output.say("never read")
    assert len(os.read(pipe[0], filled * 2)) == filled


def test_a_reader_that_has_left_stops_nobody(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with OutputLines(pipe[1]) as output:
        for number in range(10):
            output.say(str(number))
    assert not output._thread.is_alive()


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: tuple[int, int]) -> None:
    filled = fill(pipe[1])
    os.set_blocking(pipe[1], False)
    with OutputLines(pipe[1]) as output:
        output.say("first")
        assert os.read(pipe[0], filled) == b"x" * filled
    assert read(*pipe) == ["first"]
