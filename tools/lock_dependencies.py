"""Makes `requirements/NAME.txt` from `requirements/NAME.in`: the same pins, and the SHA-256 of
every file that the package index has for each of them.

People write the `.in` files: complete lists of exact versions, dependencies of dependencies
included (`pip check` in the set-up finds what is missing). Machines install from the `.txt` files,
and pip refuses a file with another hash, whoever serves it. A lock has the hashes for all platforms
and Pythons, so that it serves x86_64 and aarch64 alike, and packages that come as source are pinned
as well.

Run `make lock` after a change of an `.in` file. `tests/tools/test_lock_dependencies.py` checks
without a network that the two are in step.

uv makes the lists. It does not read pip's configuration: behind a mirror, UV_DEFAULT_INDEX names
it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tools.own_environment import ROOT, own_environment

HEADER = """\
# Made by `make lock` from {name}.in: do not edit. Every file of another hash is refused.
"""
OLDEST_PYTHON = "3.11"


def lock(uv: Path, name: str) -> None:
    """Write one lock file. Raises subprocess.CalledProcessError when a pin does not exist."""
    command = [str(uv), "pip", "compile", "-q", "--generate-hashes", "--no-deps", "--universal"]
    command += ["--python-version", OLDEST_PYTHON, "--no-header", "--no-annotate"]
    command.append(str(_source(name)))
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _target(name).write_text(HEADER.format(name=name) + listed, encoding="utf-8")


def names() -> list[str]:
    """The names of all lists of pins."""
    return sorted(path.stem for path in (ROOT / "requirements").glob("*.in"))


def _source(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.in"


def _target(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def main() -> int:
    """Lock everything."""
    uv = own_environment("lock") / "uv"
    for name in names():
        lock(uv, name)
        print(f"requirements/{name}.txt")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
