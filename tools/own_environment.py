"""Environments of their own for tools that the service does not share its packages with.

Each is `.venv-NAME` at the root, made on first use from `requirements/NAME.txt` and kept until
those pins change.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 300
_ATTEMPTS = 3
"""A registry that answers slowly gets a few attempts, as in setup_environment."""


def own_environment(name: str, *, from_source: bool = False) -> Path:
    """The folder of the environment's programs. Raises OSError or subprocess.SubprocessError.

    `from_source` where packages come as source: they are built with the pins of
    `requirements/build.txt`, which the environment then has, too.
    """
    names = ["build", name] if from_source else [name]
    lists = [ROOT / "requirements" / f"{one}.txt" for one in names]
    place = ROOT / f".venv-{name}"
    digest = hashlib.sha256(b"".join(pins.read_bytes() for pins in lists))
    stamp = place / f".stamp-{digest.hexdigest()[:16]}"
    if not stamp.exists():
        venv.create(place, clear=True, with_pip=True)
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
        install += ["--disable-pip-version-check", "--no-deps", "--require-hashes"]
        if from_source:
            install.append("--no-build-isolation")
        for pins in lists:
            _run([*install, "-r", str(pins)])
        stamp.touch()
    return place / "bin"


def _run(install: list[str]) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        last = attempt == _ATTEMPTS
        done = subprocess.run(install, timeout=_TIMEOUT_S, check=last, stdout=sys.stderr)
        if done.returncode == 0:
            return


if __name__ == "__main__":
    print(own_environment(sys.argv[1]))
