"""There is no circle: whoever reads a room or a file needs to know only its imports.

Imports for type checkers and inside functions count, too. See docs/engineering-notes/the-house.md.
"""

from __future__ import annotations

import ast

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


def test_every_package_says_what_lives_there() -> None:
    silent = [
        package
        for package in PACKAGES
        if not ast.get_docstring(
            ast.parse((ROOT / "logservice" / package / "__init__.py").read_text())
        )
    ]
    assert silent == []
