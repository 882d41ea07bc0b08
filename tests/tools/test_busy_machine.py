"""The whole command is made slow and nothing else, and no process is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tools import busy_machine

WAITS = "import sys; print(flush=True); sys.stdin.read()"


def state(pid: int) -> str:
    return busy_machine.behind_name(pid)[0]


def test_only_what_descends_from_it_is_below_it() -> None:
    mine = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with mine:
        assert mine.stdout is not None
        mine.stdout.readline()
        assert mine.pid in busy_machine.below(os.getpid())
        assert os.getpid() not in busy_machine.below(os.getpid())
        assert os.getpid() not in busy_machine.below(mine.pid)
        # A process that is not below the ancestor is left alone, and so is one that has gone.
        assert busy_machine.stand_still(mine.pid, mine.pid, 0.0) == ""
        assert busy_machine.stand_still(mine.pid, os.getpid(), 0.0)
        assert mine.stdin is not None
        mine.stdin.close()
        mine.wait()
    assert busy_machine.stand_still(mine.pid, os.getpid(), 0.0) == ""


def test_it_stands_still_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, go_on = threading.Event(), threading.Event()

    def sleep(_: float) -> None:
        stopped.set()
        assert go_on.wait(60)

    monkeypatch.setattr(busy_machine.time, "sleep", sleep)
    mine = subprocess.Popen(
        [sys.executable, "-c", WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with mine:
        still = threading.Thread(
            target=busy_machine.stand_still, args=(mine.pid, os.getpid(), 60.0)
        )
        still.start()
        try:
            assert stopped.wait(60)
            os.waitid(os.P_PID, mine.pid, os.WSTOPPED)
            assert state(mine.pid) == "T"
        finally:
            go_on.set()
            still.join()
        os.waitid(os.P_PID, mine.pid, os.WCONTINUED)
        assert state(mine.pid) != "T"


def test_who_was_stopped_by_somebody_else_stays_stopped() -> None:
    """A test stops a service to see another one take over, and this tool let it go on."""
    mine = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)
    with mine:
        mine.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, mine.pid, os.WSTOPPED)
        try:
            assert busy_machine.stand_still(mine.pid, os.getpid(), 0.0) == ""
            assert state(mine.pid) == "T"
        finally:
            mine.kill()


@pytest.mark.parametrize("longest_s", [0.0, 0.01])
def test_the_commands_exit_code_comes_back_and_the_busy_ones_are_gone(longest_s: float) -> None:
    before = set(busy_machine.below(os.getpid()))
    command = [sys.executable, "-c", "import sys; sys.exit(3)"]
    code = busy_machine.run(command, count=2, longest_s=longest_s, every_s=0.01, seed=1)
    assert code == 3
    assert set(busy_machine.below(os.getpid())) <= before


def test_a_busy_process_ends_with_the_one_that_started_it() -> None:
    """The parent may even be killed before the busy process has looked up its parent."""
    code = (
        "import os\nfrom tools import busy_machine\n"
        "with busy_machine.busy(1): os.kill(os.getpid(), 9)\n"
    )
    # It has the same standard output, which ends with the last of them.
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL
