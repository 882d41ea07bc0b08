"""Calls to the operating system that fail: some of them fail here, every one in ``make crash``."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.crash.faults import KINDS, Fault
from tests.crash.scenarios import script_of
from tests.crash.script import Do


def test_every_twentieth_call_fails() -> None:
    """The campaign runs in its own process, because LevelDB's threads do not survive its forks."""
    command = [sys.executable, "-m", "tests.crash.faults", "--stride", "20"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:]
    passed = re.search(r"^faults: ([0-9]+) passed, 0 failed$", ended.stdout, re.MULTILINE)
    assert passed is not None, ended.stdout
    assert int(passed[1]) > 100


def test_the_scenario_does_everything_that_can_fail() -> None:
    script = script_of("everything")
    done = {step.do for step in script.steps}
    assert done >= {Do.COMMIT, Do.COLLECT, Do.RESTART, Do.LOSE_INDEX, Do.EXPORT, Do.MARK}
    assert str(Fault(7, "EIO", for_good=True)) == "EIO:for-good:7"
    assert set(KINDS) == {"EIO", "ENOSPC", "EINTR", "short"}
