"""There is no circle: whoever reads a room or a file needs to know only its imports.

Imports for type checkers and inside functions count, too. See docs/engineering-notes/the-house.md.
"""

from __future__ import annotations

import ast
import re

import pytest

from tests.tidy.source_tree import ROOT
from tools.count_rooms import circles, read_tree, rooms

FILES = read_tree(ROOT)
PACKAGES = sorted(
    str(path.parent.relative_to(ROOT / "logservice"))
    for path in (ROOT / "logservice").rglob("*/__init__.py")
)


def test_no_rooms_of_a_package_import_each_other_in_a_circle() -> None:
    found = {package: circles(rooms(FILES, package)) for package in PACKAGES}
    assert {name: some for name, some in found.items() if some} == {}


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles({name: file.imports for name, file in FILES.items()}) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_where_to_start_reading(package: str) -> None:
    folder = ROOT / "logservice" / package
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = {name for name in re.findall(r"\w+\.py\b", said) if (folder / name).is_file()}
    below = [name for name in re.findall(r"(?:\w+/)+\w+\.py\b", said) if (folder / name).is_file()]
    assert named or below, f"{package}/__init__.py names none of its files"
    assert re.search(r"\b[Ss]tart\b", said), f"{package}/__init__.py does not say where to start"
