"""Programs that restore a log, and one of them killed behind a step (`restoring.STEPS`)."""

from __future__ import annotations

_START = "from logservice.cli.{module} import main; main()"

_KILLED_BEHIND = """
import os, signal, sys
from logservice.archive import restoring

step, *arguments = sys.argv[1:]


def reached(name):
    if name == step:
        os.kill(os.getpid(), signal.SIGKILL)


class Killed(restoring.Restorer):
    def __init__(self, *given, **more):
        super().__init__(*given, **more, reached=reached)


restoring.Restorer = Killed
sys.argv = ["{program}", *arguments]
"""


def start(module: str) -> str:
    """Code that runs the program of `logservice.cli.MODULE` with its arguments."""
    return _START.format(module=module)


def killed_behind(module: str, program: str) -> str:
    """The same; its first argument is the step behind which it is killed."""
    return _KILLED_BEHIND.format(program=program) + start(module)
