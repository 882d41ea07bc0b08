"""A store whose reasoning or disk failed ends at once, with a report and exit code 70."""

from __future__ import annotations

import subprocess
import sys

import pytest

from logservice.server.crash import CRASH_EXIT_CODE

HANDLER = """
import asyncio
from logservice.invariants import invariant
from logservice.server.edge.call import handler

class Service:
    @handler
    async def Method(self, request, context):
        invariant(False, "INV-TEST-1", found=request)

asyncio.run(Service().Method(17, None))
print("not reached")
"""

FATAL = """
from logservice.server.crash import crash
try:
    try:
        raise OSError(5, "fdatasync")
    except OSError as error:
        crash(error)
finally:
    print("not reached")
"""

LOOP = """
import asyncio
from logservice.invariants import InvariantViolation
from logservice.server.process import _on_loop_exception

async def main():
    asyncio.get_running_loop().set_exception_handler(_on_loop_exception)
    def callback():
        raise InvariantViolation("INV-TEST-1", {"found": 17})
    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(5)
    print("not reached")

asyncio.run(main())
"""

TASK = """
import asyncio
from logservice.background import begin_task
from logservice.server.process import _on_loop_exception

async def main():
    asyncio.get_running_loop().set_exception_handler(_on_loop_exception)
    async def part():
        raise KeyError("a bug")
    kept = begin_task(part())
    await asyncio.sleep(5)
    print("not reached", kept)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (HANDLER, "INV-TEST-1 violated: found=17"),
        (FATAL, "fdatasync"),
        (LOOP, "INV-TEST-1"),
        (TASK, "KeyError: 'a bug'"),
    ],
    ids=["handler", "disk", "loop", "task"],
)
def test_crash(program: str, words: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == CRASH_EXIT_CODE
    assert ended.stdout == ""
    assert "FATAL" in ended.stderr
    assert words in ended.stderr
