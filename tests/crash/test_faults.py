"""The scenario in which each call to the operating system fails in `make crash`."""

from __future__ import annotations

from tests.crash.faults import KINDS, Fault
from tests.crash.scenarios import script_of
from tests.crash.script import Do


def test_the_scenario_does_everything_that_can_fail() -> None:
    script = script_of("everything")
    done = {step.do for step in script.steps}
    assert done >= {Do.COMMIT, Do.COLLECT, Do.RESTART, Do.LOSE_INDEX, Do.EXPORT, Do.MARK}
    assert str(Fault(7, "EIO", for_good=True)) == "EIO:for-good:7"
    assert set(KINDS) == {"EIO", "ENOSPC", "EINTR", "short"}
