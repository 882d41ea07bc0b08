"""The list in README.md and the tests are the same."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_every_test_is_listed_under_its_file_and_every_row_has_a_test() -> None:
    listed: dict[str, set[str]] = {}
    for section in (FOLDER / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        (name,) = re.findall(r"\(`(test_\w+\.py)`\)", section)
        listed[name] = set(re.findall(r"\| `(test_\w+)` \|", section))
    written = {
        path.name: set(re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M))
        for path in FOLDER.glob("test_*.py")
        if path.name != Path(__file__).name
    }
    assert listed == written
