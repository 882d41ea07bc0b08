"""No circle: a room, or a file, can be read knowing only what it imports.

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


KNOWN: dict[str, list[list[str]]] = {
    "nodehost": [
        ["describing", "hearing", "peer_requests", "replica", "replica_host", "start_point"],
        ["node_host", "router"],
    ]
}
"""Circles that are being taken apart. Nothing is added here."""


def test_no_rooms_of_a_package_import_each_other_in_a_circle() -> None:
    found = {package: circles(rooms(FILES, package)) for package in PACKAGES}
    new = {
        package: [one for one in some if not any(set(one) <= set(old) for old in known(package))]
        for package, some in found.items()
    }
    assert {package: some for package, some in new.items() if some} == {}


def known(package: str) -> list[list[str]]:
    return KNOWN.get(package, [])


def test_no_files_import_each_other_in_a_circle() -> None:
    found = circles({name: file.imports for name, file in FILES.items()})
    assert [one for one in found if not all(name.startswith("nodehost.") for name in one)] == []


def test_every_package_says_what_lives_there() -> None:
    silent = [
        package
        for package in PACKAGES
        if not ast.get_docstring(
            ast.parse((ROOT / "logservice" / package / "__init__.py").read_text())
        )
    ]
    assert silent == []
