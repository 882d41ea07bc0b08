"""What is freed is used again: counted in page faults, in a process of its own."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

_TURNS, _PIECES = 50, 64

PROGRAM = f"""
import resource, sys
from logservice_wire.freed_memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def turn():
    grown = bytearray()
    for _ in range({_PIECES}):
        grown += bytes(16 << 10)
    return bytes(grown)
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({_TURNS}):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this to learn")
def test_a_message_that_grows_does_not_fault_its_pages_in_again() -> None:
    pages = _TURNS * _PIECES * (16 << 10) // resource.getpagesize()
    kept, not_kept = faults("keep"), faults("")
    assert kept < pages / 10, kept
    assert not_kept > pages / 2, f"{not_kept}: glibc does not need to be taught any more"


def faults(argument: str) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, argument], capture_output=True, text=True, check=True
    )
    return int(ran.stdout)
