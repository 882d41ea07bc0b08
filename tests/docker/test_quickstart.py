"""Runs docs/operations/quickstart.md as it stands there, with whichever compose the machine has.

On one cluster the tests run the page's commands, then look at what Prometheus sees, then at who can
read which key. The page runs with ports that the system chose, and with Debian's Prometheus in an
image of the official name. Every compose that the machine has reads deploy/compose.yaml.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.processes.local_cluster import free_ports
from tests.docker.engine import Engine
from tests.docker.images import ROOT, prometheus_image
from tests.page_commands import page_commands

pytestmark = [pytest.mark.processes, pytest.mark.timeout(3600)]

PAGE = ROOT / "docs" / "operations" / "quickstart.md"
STORES = ("store-1", "store-2", "store-3")


def composes(environment: dict[str, str]) -> list[list[str]]:
    """The commands of the installed composes: docker-compose 1 or 2, and the plugin."""
    known = [["docker-compose"], ["docker", "compose"]]
    return [
        one
        for one in known
        if shutil.which(one[0])
        and subprocess.run(
            [*one, "version"], capture_output=True, env=environment, check=False
        ).returncode
        == 0
    ]


class Quickstart:
    """A copy of the files that the page needs, and the ports that it was given."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.folder = folder
        ports = free_ports(4)
        self.prometheus = ports[3]
        self.environment = {
            **engine.environment(),
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_PROJECT_NAME": "quickstart",
            "PROMETHEUS_IMAGE": prometheus_image(engine),
            "PROMETHEUS_PORT": str(ports[3]),
            "LOGSERVICE_TIMEOUT": "60",  # the machine may be busy
            **{f"ADMIN_PORT_{number}": str(ports[number - 1]) for number in (1, 2, 3)},
        }
        for name in (
            ".dockerignore",
            "README.md",
            "client",
            "deploy",
            "docs/operations",
            "logservice",
            "pyproject.toml",
            "requirements",
        ):
            # Times and modes are copied as well, so that the image which is built already is found.
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copy2(source, folder / name)
        found = composes(self.environment)
        assert found, "make test-docker installs docker-compose"
        self.composes = found
        if shutil.which("docker-compose") is None:
            shim = folder / "bin" / "docker-compose"
            shim.parent.mkdir()
            shim.write_text('#!/bin/sh\nexec docker compose "$@"\n')
            shim.chmod(0o755)
            self.environment["PATH"] = f"{shim.parent}:{os.environ['PATH']}"

    def bash(self, script: str, timeout_s: float = 600) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def compose(self, words: str) -> str:
        return self.bash(f"COMPOSE_FILE=deploy/compose.yaml docker-compose {words}")


@pytest.fixture(scope="module")
def quickstart(
    engine: Engine, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Quickstart]:
    made = Quickstart(engine, tmp_path_factory.mktemp("quickstart"))
    yield made
    made.compose("--profile monitoring down -v")


def test_the_compose_file_is_valid(quickstart: Quickstart) -> None:
    for compose in quickstart.composes:
        text = quickstart.bash(f"{' '.join(compose)} -f deploy/compose.yaml config")
        assert all(f"{name}:" in text for name in STORES)


def test_the_commands_of_the_page(quickstart: Quickstart) -> None:
    blocks = page_commands(PAGE)
    assert len(blocks) == 9
    # All steps are one script, because a step uses what an earlier one sets. The last step is left
    # out: it stops the cluster.
    shown = quickstart.bash("\n".join(blocks[:-1]))
    assert "first record" in shown
    assert "[b'begin', b'commit']" in shown
    # It may warn of the machine's slow disk, so this does not ask that nothing is wrong.
    well = "3 of 3 stores ready, 2 of 2 shards have a leader"
    doctor = "COMPOSE_FILE=deploy/compose.yaml docker-compose run --rm logctl doctor"
    quickstart.bash(f"until {doctor} | grep -F '{well}'; do sleep 1; done")


def test_prometheus_sees_every_store(quickstart: Quickstart) -> None:
    url = f"http://127.0.0.1:{quickstart.prometheus}/api/v1/query?query=up"
    deadline = time.monotonic() + 180
    up: dict[str, str] = {}
    while up != {f"{name}:7601": "1" for name in STORES}:
        assert time.monotonic() < deadline, up
        time.sleep(0.5)
        with contextlib.suppress(OSError):  # it may still be starting
            with urllib.request.urlopen(url, timeout=60) as response:
                found = json.load(response)["data"]["result"]
            up = {one["metric"]["instance"]: one["value"][1] for one in found}


def test_a_store_sees_its_own_keys_only(quickstart: Quickstart) -> None:
    for name in STORES:
        find = "find / -name '*.key' -not -path '/proc/*' 2>/dev/null || true"
        keys = quickstart.compose(f'exec -T {name} sh -c "{find}"').split()
        assert sorted(keys) == [f"/etc/logservice/tls/{p}-plane.key" for p in ("client", "peer")]
        shown = quickstart.compose(
            f"exec -T {name} logservice certs show /etc/logservice/tls/client-plane.pem -o json"
        )
        assert f"/store/{name}" in shown


def test_the_last_command_stops_everything(quickstart: Quickstart) -> None:
    quickstart.bash(f"export COMPOSE_FILE=deploy/compose.yaml\n{page_commands(PAGE)[-1]}")
    assert quickstart.compose("ps -q").split() == [] or "Up" not in quickstart.compose("ps")
