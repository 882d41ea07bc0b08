"""Environments of their own for tools that the service does not share its packages with.

Each is `.venv-NAME` at the root, made on first use from `requirements/NAME.txt` and kept until
those pins change. A package that comes as source is built with the tools of `requirements/build.txt`.
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


def own_environment(name: str) -> Path:
    """The folder of the environment's programs. Raises OSError or subprocess.SubprocessError."""
    pins = ROOT / "requirements" / f"{name}.txt"
    place = ROOT / f".venv-{name}"
    stamp = place / f".stamp-{hashlib.sha256(pins.read_bytes()).hexdigest()[:16]}"
    if not stamp.exists():
        venv.create(place, clear=True, with_pip=True)
        install = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
        install += ["--disable-pip-version-check", "--no-deps", "--require-hashes", "-r", str(pins)]
        for attempt in range(1, _ATTEMPTS + 1):
            last = attempt == _ATTEMPTS
            done = subprocess.run(install, timeout=_TIMEOUT_S, check=last, stdout=sys.stderr)
            if done.returncode == 0:
                break
        stamp.touch()
    return place / "bin"


if __name__ == "__main__":
    print(own_environment(sys.argv[1]))
