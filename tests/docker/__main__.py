"""The lane of containers: ``python -m tests.docker [further folders and options of pytest]``.

pytest gets this folder only where an engine can be started. Elsewhere the reason is printed, and
what was named besides is run alone: a lane that ends with nothing but skipped tests looks like one
that ran. With `LOGSERVICE_REQUIRE_DOCKER=1` it fails instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docker.engine import Engine, NoEngine


def main(further: list[str]) -> int:
    """Runs pytest, if there is anything to run; returns the exit code."""
    folders = [str(Path(__file__).parent)]
    try:
        Engine().stop()
    except NoEngine as error:
        print(f"no docker engine can be used here: {error}", flush=True)
        if os.environ.get("LOGSERVICE_REQUIRE_DOCKER") == "1":
            return 1
        folders = []
    if not folders + further:
        return 0
    return subprocess.call([sys.executable, "-m", "pytest", *folders, *further])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
