"""How peers are had: built from pinned modules, or taken out of Debian's packages.

Everything goes below ``artifacts/peers/`` and nothing is installed. A build that is up to date
costs a second or two. All raise `Unavailable` with the last line of what the tool said.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.peers.peer import Unavailable
from tools.own_environment import ROOT, own_environment

ARTIFACTS: Final = ROOT / "artifacts" / "peers"
_BUILD_S: Final = 1800
_USUAL_GO: Final = "/usr/local/go/bin/go"


def built_with_go(module: Path, package: str, name: str) -> Path:
    """The program of `package`, built in the folder of the go.mod that pins it."""
    go = shutil.which("go") or shutil.which(_USUAL_GO)
    if go is None:
        raise Unavailable("no Go here to build it with")
    binary = ARTIFACTS / name
    _run([go, "build", "-o", str(binary), package], module)
    return binary


def built_with_maven(module: Path, name: str) -> Path:
    """The folder with the jar of `module` and a folder ``lib`` of those that it needs.

    Its pom.xml takes the folder as the property ``place``.
    """
    for tool in ("javac", "mvn"):
        if shutil.which(tool) is None:
            raise Unavailable(f"no {tool} here to build it with")
    place = ARTIFACTS / name
    _run(["mvn", "-q", "-B", "-ntp", f"-Dplace={place}", "package"], module)
    return place


def from_debian(package: str, program: str) -> Path:
    """A program of one of Debian's packages: the installed one, or one that is unpacked here."""
    if found := shutil.which(program):
        return Path(found)
    place = ARTIFACTS / package
    if not place.exists():
        if shutil.which("apt-get") is None:
            raise Unavailable(f"no {program} here, and no apt-get to fetch Debian's")
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ARTIFACTS) as name:
            _run(["apt-get", "download", "-q", package], Path(name))
            (archive,) = Path(name).glob("*.deb")
            _run(["dpkg", "-x", str(archive), "unpacked"], Path(name))
            (Path(name) / "unpacked").rename(place)
    for binary in place.glob(f"usr/*bin/{program}"):
        return binary
    raise Unavailable(f"Debian's {package} has no {program}")


def python_for_peers() -> Path:
    """The interpreter of the environment that has the peers' Python packages."""
    try:
        return own_environment("peers", from_source=True) / "python"
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"its Python packages cannot be had: {error}") from error


def _run(command: list[str], folder: Path) -> None:
    what = " ".join(command[:2])
    try:
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, timeout=_BUILD_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise Unavailable(f"{what} failed: {said[-1] if said else 'it said nothing'}")
