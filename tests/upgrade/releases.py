"""Releases: programs that were released, installed as they were, each in a folder of its own.

A release is the tree of its tag. A clone may lack tags, so the table names the commits, too; a
release that is missing here is not tried. `Program.environment` makes a child run that program and
no other: neither the working directory nor what is installed beside it is looked at first.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

RELEASES: Final = {"0.1.0": "4116c9dc7f7747ac490befe3afc86a6051911c7e"}
"""Version -> the commit of its tag."""

_PARTS: Final = ("pyproject.toml", "README.md", "logservice", "client", "docs/operations")
"""What the wheels are made of. The runbooks are no part of release 0.1.0."""


@dataclass(frozen=True, slots=True)
class Program:
    """An installed program: the service, `logctl` and the client library."""

    name: str
    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What a child's environment has to say."""
        return {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"}

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Children that are started meanwhile run this program."""
        before = dict(os.environ)
        os.environ.update(self.variables)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this program to its end."""
        return subprocess.run(
            [sys.executable, "-m", *words],
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def install_release(version: str, work: Path) -> Program:
    """The program of a release."""
    tag, commit = f"v{version}", RELEASES[version]
    known = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--verify", "-q", f"{tag}^{{commit}}"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    if known and known != commit:
        raise RuntimeError(f"the tag {tag} is {known}, and RELEASES says {commit}")
    source = work / f"source-{version}"
    source.mkdir(parents=True)
    git = ["git", "-C", str(ROOT)]
    listed = subprocess.run(
        [*git, "ls-tree", "--name-only", commit, *_PARTS],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    archive = subprocess.run(
        [*git, "archive", commit, *listed], capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    return _installed(version, source, work / version)


def install_this(work: Path) -> Program:
    """The program of this tree, as it lies on the disk."""
    source = work / "source-this"
    source.mkdir(parents=True)
    archive = subprocess.run(
        ["tar", "-c", "-C", str(ROOT), "--exclude=__pycache__", *_PARTS],
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    return _installed("this", source, work / "this")


def _installed(name: str, source: Path, folder: Path) -> Program:
    options = ("--no-deps", "--no-build-isolation", "--no-index", "-q")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            *options,
            "--target",
            folder,
            source,
            source / "client",
        ],
        check=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    return Program(name, folder)
