"""server_command: how the server is run. The client needs none, and imports nothing of it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys

from logservice_wire.errors import InvalidArgument


def server_command() -> list[str]:
    """The command `logservice`: that of LOGSERVICE_COMMAND, which may be of another environment;
    else of the package beside this one; else of the PATH. Raises InvalidArgument.
    """
    named = shlex.split(os.environ.get("LOGSERVICE_COMMAND", ""))
    if named:
        return named
    if importlib.util.find_spec("logservice") is not None:
        return [sys.executable, "-m", "logservice"]
    found = shutil.which("logservice")
    if found is not None:
        return [found]
    raise InvalidArgument(
        "there is no server to start",
        field="command",
        why="install the package logservice, or name its command in LOGSERVICE_COMMAND",
    )
