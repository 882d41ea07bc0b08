"""docs/operations/first-day.md on a machine that has Debian, Python and nothing else.

The container is such a machine: all that the day uses comes from the two trees and from the index
of packages, which it reaches over the network of this machine.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.docker.engine import Engine
from tests.first_day import check_day, day_script, day_trees

pytestmark = [pytest.mark.processes, pytest.mark.timeout(3600), pytest.mark.long]

_DAY_S = 1500.0


def test_the_commands_of_the_day(engine: Engine, base: str, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    old, new = day_trees(trees)
    folder = tmp_path / "day"
    folder.mkdir()
    environment = {
        "OLD": f"/trees/{old.name}",
        "NEW": f"/trees/{new.name}",
        "LOGSERVICE_TIMEOUT": "60",  # the machine may be busy
        # Where this machine finds its packages; the certificate is the image's.
        **{
            name: said
            for name, said in os.environ.items()
            if name in {"PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTPS_PROXY", "NO_PROXY"}
        },
    }
    container = engine.client.containers.run(
        base,
        ["bash", "-euo", "pipefail", "-c", day_script()],
        volumes={
            str(trees): {"bind": "/trees", "mode": "rw"},
            str(folder): {"bind": "/day", "mode": "rw"},
        },
        working_dir="/day",
        environment=environment,
        network_mode="host",
        init=True,
        detach=True,
    )
    try:
        deadline = time.monotonic() + _DAY_S
        while container.status != "exited":
            assert time.monotonic() < deadline, container.logs()[-3000:].decode()
            time.sleep(1)
            container.reload()
        said = container.logs(stderr=False).decode()
        assert container.attrs["State"]["ExitCode"] == 0, container.logs()[-5000:].decode()
        check_day(said, folder)
    finally:
        container.remove(force=True, v=True)
