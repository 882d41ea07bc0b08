"""What `make bench-cost` reads from the kernel and from strace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bench.cost.process_counts import between, counts_of
from bench.cost.system_calls import Tracers, parse

TABLE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 68.99    3.769464         267     14068      1533 futex
  0.52    0.028149          51       543           pwritev2
------ ----------- ----------- --------- --------- ------------------
100.00    3.797613                 14611      1533 total
"""


def test_calls_are_read_from_straces_table_with_and_without_errors() -> None:
    assert parse(TABLE) == {"futex": 14068, "pwritev2": 543}


def test_an_empty_table_has_no_calls() -> None:
    assert parse("") == {}


def test_a_process_is_counted_with_all_of_its_threads() -> None:
    rounds, never, waited, looked = 20, threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        for _ in range(rounds):
            never.wait(0.001)
        waited.set()
        looked.wait()

    waits = threading.Thread(target=wait)
    before = counts_of(os.getpid())
    waits.start()
    assert waited.wait(60)
    # What an ended thread did is in no count any more: the look comes while it is there.
    after = counts_of(os.getpid())
    looked.set()
    waits.join()
    assert between(before, after).switches >= rounds
    assert sum(between(before, after).cpu_s.values()) >= 0


def test_a_process_that_is_gone_is_an_error() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(OSError, match=str(child.pid)):
        counts_of(child.pid)


@pytest.mark.processes
def test_strace_counts_a_real_process(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    code = (
        "import os, sys\n"
        "fd = os.open(os.devnull, os.O_WRONLY)\n"
        "sys.stdin.readline()\n"
        "for _ in range(100): os.pwrite(fd, b'x', 0)\n"
        "print('done', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        tracers = Tracers({"child": child.pid}, tmp_path)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        counted = tracers.ended()
        child.stdin.write("end\n")
    assert counted["child"]["pwrite64"] == 100
