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


# --- hard bounds ----------------------------------------------------------------------------------

DECIDING = ("hakeeper", "rsm", "raft")
"""Folders whose code every replica runs on the same entries."""

NOT_REPLICATED = {
    "HAKEEPER_EVENTS_PER_PAGE_MAX": "cuts the answer to a question, which changes no state",
    "HAKEEPER_SHARDS_PER_PAGE_MAX": "cuts the answer to a question, which changes no state",
    "HAKEEPER_PLAN_MOVES_MAX": "cuts the answer to a question, which changes no state",
    "PENDING_READS_MAX": "what one replica keeps in memory",
    "RAFT_COMMITTED_BYTES_PER_READY_MAX": "how one replica cuts what it applies",
    "RAFT_INFLIGHT_BYTES_MAX": "how fast one leader sends",
    "RAFT_INFLIGHT_MESSAGES_MAX": "how fast one leader sends",
    "RAFT_MESSAGE_BYTES_MAX": "how one leader cuts what it sends",
    "STORES_NAMED_MAX": "cuts the words of a refusal, which changes no state",
    "RAFT_UNCOMMITTED_BYTES_MAX": "what one leader takes before it has to wait",
}
"""Bounds that those folders read and that need not be alike on all stores, with the reason."""


def hashed() -> set[str]:
    """The names of the bounds that the hash of the newest cluster version is of."""
    lists = [
        node.value
        for node in ast.parse((PACKAGE / "hard.py").read_text()).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id.startswith("_HARD")
    ]
    names = (node for one in lists if one is not None for node in ast.walk(one))
    return {node.id for node in names if isinstance(node, ast.Name)} - {"_HARD_1"}


def read_in(path: Path) -> set[str]:
    """The bounds that a file reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "logservice.bounds":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} if node.value.id == "bounds" else set()
    return found


def test_what_every_replica_must_decide_alike_is_hashed() -> None:
    """A store with another value would decide otherwise, so it must not start on such data."""
    read = {
        name
        for folder in DECIDING
        for path in (ROOT / "logservice" / folder).rglob("*.py")
        for name in read_in(path)
    }
    assert len(read) > 50
    assert sorted(read - hashed() - set(NOT_REPLICATED)) == []
    assert sorted(set(NOT_REPLICATED) - read) == []
    assert set(NOT_REPLICATED).isdisjoint(hashed())
