"""The archiver that a store runs, as a process: begun and ended with the leadership, and begun
again when it does not stay. The program is a small one here; `tests/cli/test_archive_of_stores.py`
has the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from logservice import bounds
from logservice.server import archiver_process
from logservice.server.archiver_process import ArchiverProcess
from tests.waiting import eventually

STAYS = "import sys; print('here', flush=True); sys.stdin.read()"
DEAF = "import time; print('here', flush=True); time.sleep(1000)"
FAILS = "import sys; print('no such folder'); sys.exit(3)"


class Leading:
    """Whether the store leads."""

    def __init__(self) -> None:
        self.leads = False

    def __call__(self) -> bool:
        return self.leads


def lives(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids_of(caplog: pytest.LogCaptureFixture) -> list[int]:
    """The archivers that were begun."""
    said = [one.getMessage() for one in caplog.records]
    return [int(text.rsplit(" ", 1)[1]) for text in said if "begins here, as process" in text]


@contextlib.asynccontextmanager
async def running(program: str, leading: Leading) -> AsyncIterator[ArchiverProcess]:
    archiver = ArchiverProcess((sys.executable, "-c", program), leading)
    task = asyncio.create_task(archiver.run())
    try:
        yield archiver
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(archiver_process, "_LOOK_S", 0.02)
    caplog.set_level("INFO")


async def test_it_runs_while_its_store_leads(caplog: pytest.LogCaptureFixture) -> None:
    leading = Leading()
    async with running(STAYS, leading) as archiver:
        await asyncio.sleep(0.1)
        assert not pids_of(caplog)
        leading.leads = True
        await eventually(lambda: "the archiver says: here" in caplog.text)
        [pid] = pids_of(caplog)
        assert lives(pid)
        leading.leads = False
        await eventually(lambda: not lives(pid))
        leading.leads = True
        await eventually(lambda: len(pids_of(caplog)) == 2)
        assert not archiver.alarms()
    assert not lives(pids_of(caplog)[1]), "it outlived its store's orderly end"


async def test_what_does_not_stay_is_begun_again_and_is_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leading = Leading()
    leading.leads = True
    async with running(FAILS, leading) as archiver:
        await eventually(lambda: len(pids_of(caplog)) == 3)
        await eventually(lambda: "with code 3; it is begun again in 4 s" in caplog.text)
        assert archiver.alarms() == [
            "the archiver ended by itself 3 times; it said last: no such folder"
        ]
        leading.leads = False
        await eventually(lambda: not archiver.alarms())


async def test_one_that_is_killed_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    leading = Leading()
    leading.leads = True
    async with running(STAYS, leading):
        await eventually(lambda: len(pids_of(caplog)) == 1)
        os.kill(pids_of(caplog)[0], signal.SIGKILL)
        await eventually(lambda: len(pids_of(caplog)) == 2)


async def test_one_that_does_not_end_is_killed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiver_process, "_END_S", 0.1)
    leading = Leading()
    leading.leads = True
    async with running(DEAF, leading):
        await eventually(lambda: "the archiver says: here" in caplog.text)
    assert not lives(pids_of(caplog)[0])


async def test_a_line_without_an_end_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    leading = Leading()
    leading.leads = True
    line = f"print('x' * {bounds.ARCHIVER_LINE_BYTES_MAX + 1}); "
    async with running(line + STAYS.replace("here", "after"), leading):
        await eventually(lambda: "the archiver says: after" in caplog.text)
    assert "xxxx" not in caplog.text


async def test_a_program_that_cannot_be_started_leaves_the_store_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leading = Leading()
    leading.leads = True
    archiver = ArchiverProcess(("/there/is/no/such/program",), leading)
    task = asyncio.create_task(archiver.run())
    await eventually(archiver.alarms)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "No such file" in archiver.alarms()[0]


async def test_the_pause_between_two_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    archiver = ArchiverProcess((), lambda: True)
    for _ in range(20):
        archiver._failed(1)
    assert f"begun again in {bounds.ARCHIVER_PAUSE_S_MAX:.0f} s" in caplog.text.splitlines()[-1]
