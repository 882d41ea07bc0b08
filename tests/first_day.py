"""first_day: docs/operations/first-day.md as one script, and the two trees that it wants.

The day begins with the newest release that this clone knows, and ends with this tree. A clone
without that release's commit has this tree twice, as the page says.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from tests.page_commands import page_commands
from tests.upgrade.releases import RELEASES, ROOT

PAGE: Final = ROOT / "docs" / "operations" / "first-day.md"
STEPS: Final = (
    "Install",
    "Secure",
    "Load",
    "Break",
    "Diagnose",
    "Grow",
    "Upgrade",
    "Shrink",
    "Archive",
    "Restore",
)
"""The headings of the page; each has commands."""

_PARTS: Final = (
    "pyproject.toml",
    "README.md",
    "logservice",
    "client",
    "requirements",
    "docs/operations",
)
"""What is installed from this tree."""


def day_script() -> str:
    """The page's commands as one script for bash: a step uses what an earlier one sets."""
    return "\n".join(page_commands(PAGE))


def day_trees(work: Path) -> tuple[Path, Path]:
    """``$OLD`` and ``$NEW``, copies that may be written to."""
    new = work / "this"
    _copied(new, ["tar", "-c", "-C", str(ROOT), "--exclude=__pycache__", *_PARTS])
    version, commit = list(RELEASES.items())[-1]
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return new, new
    old = work / version
    _copied(old, ["git", "-C", str(ROOT), "archive", commit])
    return old, new


def check_day(said: str, folder: Path) -> None:
    """That the day went as the page says: which programs ran, and what came back."""
    assert said.count("logservice, version") == 2
    assert (folder / "acknowledged.txt").read_text().count("order") >= 100
    assert (folder / "missing.txt").read_text() == ""
    assert (folder / "shop.json").read_bytes() == (folder / "again.json").read_bytes()


def _copied(folder: Path, command: list[str]) -> None:
    folder.mkdir(parents=True)
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
