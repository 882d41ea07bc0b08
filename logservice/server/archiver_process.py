"""ArchiverProcess: the cluster's archiver, run by the store that leads HAKeeper.

Theory of operation. An archiver is a client of the cluster; it reads, packs and digests for long
stretches, so it has a process of its own and takes neither the interpreter nor the memory of the
store. Every store may be told to run one. The store that leads shard 0 does, so there is one as
long as there is one such leader, and it moves with the leadership. For a while there can be two, or
none: the manifest is their lock (`archive/manifest.py`), and the holds keep what is not archived.

Its standard input is a pipe that nobody writes to and that the store holds open. When the store is
gone, however it ended, the pipe ends, and so does the archiver. What it says goes into the log of
the store. When it ends by itself it is begun again, after a pause that doubles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

from logservice import bounds
from logservice.background import begin_task
from logservice.events import Event, emit

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_END_S: Final = 20.0
"""How long it may take to end; then it is killed, which costs at most the object in the making."""


def archiver_command(config_file: str) -> tuple[str, ...]:
    """The program, as `archiver` of `ArchiverProcess`."""
    words = ("-m", "logservice", "archive", "run", "--until-input-ends", "-c", config_file)
    return (sys.executable, *words)


class ArchiverProcess:
    """`run` until it is cancelled."""

    def __init__(self, command: Sequence[str], leads: Callable[[], bool]) -> None:
        """Nothing runs yet. `leads`: whether this store leads HAKeeper."""
        self._command = command
        self._leads = leads
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._failures = 0
        self._wait_s = 0.0
        self._said = ""

    def alarms(self) -> list[str]:
        """What a person must look at: an archiver that does not stay."""
        if not self._failures:
            return []
        times = f"{self._failures} time{'s' if self._failures > 1 else ''}"
        return [f"the archiver ended by itself {times}; it said last: {self._said or 'nothing'}"]

    async def run(self) -> None:
        """Begin it when this store leads, and end it when another one does."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._end()

    async def _look(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            await self._ended(self._process.returncode)
        self._wait_s = max(0.0, self._wait_s - _LOOK_S)
        if not self._leads():
            await self._end()
            self._failures = 0
        elif self._process is None and not self._wait_s:
            await self._begin()

    async def _begin(self) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=bounds.ARCHIVER_LINE_BYTES_MAX,
            )
        except OSError as error:  # no memory, no descriptor: the store itself goes on
            self._said = str(error)
            self._failed(error.errno or 0)
            return
        self._process = process
        self._listening = begin_task(self._listen(process))
        emit(logger, Event.ARCHIVER_STARTED, pid=process.pid)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # a pipe, see _begin
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # a longer line than we keep
                continue
            if not line:
                return
            self._said = line.decode(errors="replace").rstrip()
            emit(logger, Event.ARCHIVER_SAID, text=self._said)

    async def _ended(self, code: int) -> None:
        """It ended by itself."""
        self._process = None
        if self._listening is not None:
            await self._listening
        self._failed(code)

    def _failed(self, code: int) -> None:
        self._failures += 1
        self._wait_s = min(2.0 ** (self._failures - 1), bounds.ARCHIVER_PAUSE_S_MAX)
        emit(logger, Event.ARCHIVER_FAILED, code=code, seconds=int(self._wait_s))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._listening is not None:
            await self._listening
        emit(logger, Event.ARCHIVER_STOPPED, pid=process.pid)
