"""`make image` with a container engine, and without one. The program `docker` is played."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tools.own_environment import ROOT

ENGINE = """#!/bin/sh
echo "$*" >>"$0.asked"
case "$1 $2" in
"info --format") echo 27.0 ;;
"image inspect") echo "logservice:latest: 123 bytes" ;;
esac
"""
NO_ENGINE = """#!/bin/sh
echo "Cannot connect to the Docker daemon" >&2
exit 1
"""


def made(folder: Path, docker: str, **more: str) -> subprocess.CompletedProcess[str]:
    program = folder / "docker"
    program.write_text(docker)
    program.chmod(0o755)
    return subprocess.run(
        [ROOT / "tools" / "make_image.sh"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", **more},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_it_builds_and_says_the_size(tmp_path: Path) -> None:
    done = made(tmp_path, ENGINE)
    assert (done.returncode, done.stdout) == (0, "logservice:latest: 123 bytes\n")
    asked = (tmp_path / "docker.asked").read_text()
    assert "build -t logservice -f deploy/Dockerfile .\n" in asked


def test_another_base_is_handed_on(tmp_path: Path) -> None:
    made(tmp_path, ENGINE, BASE="a base:1")
    assert "--build-arg BASE=a base:1 .\n" in (tmp_path / "docker.asked").read_text()


@pytest.mark.parametrize("docker", [NO_ENGINE, "#!/bin/sh\nexit 127\n"])
def test_without_an_engine_it_says_so(tmp_path: Path, docker: str) -> None:
    done = made(tmp_path, docker)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no container engine answers here, so no image was built" in done.stderr
    assert "docker build -t logservice -f deploy/Dockerfile ." in done.stderr
