"""Bounds: each is stated once, and code imports it from the package, whichever module has it."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from logservice import bounds

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "logservice" / "bounds"


def stated(path: Path) -> list[str]:
    """Public names that a module gives a value to."""
    return [
        node.target.id
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and not node.target.id.startswith("_")
    ]


def test_each_bound_is_stated_once_and_the_package_has_it() -> None:
    names = Counter(name for path in PACKAGE.glob("*.py") for name in stated(path))
    assert len(names) > 150
    assert [name for name, count in names.items() if count > 1] == []
    assert {name for name in vars(bounds) if name.isupper() and name[0] != "_"} == set(names)


def test_each_module_is_in_the_table_of_the_package() -> None:
    assert bounds.__doc__ is not None
    for path in PACKAGE.glob("[a-z]*.py"):
        assert f"`{path.stem}`" in bounds.__doc__, path.stem


def imported(path: Path) -> set[str]:
    """Modules that a file imports something from."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_only_the_package_knows_its_modules() -> None:
    folders = ("logservice", "tests", "bench", "tools", "examples", "client")
    nosy = [
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if PACKAGE not in path.parents
        and any(module.startswith("logservice.bounds.") for module in imported(path))
    ]
    assert nosy == []
