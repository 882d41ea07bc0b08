"""The shape of the house in figures: rooms, arrows, circles, fan-out.

A *room* of a package is a file of it, or a whole sub-package. An *arrow* is an import from one room
to another of the same package, however many names it carries; imports that only type checkers see
count, too. `__init__.py` and generated code are left out. A *circle* is a set of rooms, or of
files, that reach each other by arrows.

    python -m tools.count_rooms                  # the table
    python -m tools.count_rooms logdb            # every arrow of one package
    python -m tools.count_rooms --tree PATH      # of another checkout
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = (
    "raft",
    "rsm",
    "hakeeper",
    "logdb",
    "nodehost",
    "nodehost/transport",
    "server",
    "server/monitor",
    "cli",
    "sim",
)

Graph = Mapping[str, frozenset[str]]
"""From a name to the names that it imports."""


@dataclass(frozen=True, slots=True)
class File:
    """A module of the server: its dotted name below `logservice`, its lines, what it imports."""

    module: str
    lines: int
    imports: frozenset[str]


def read_tree(root: Path) -> dict[str, File]:
    """Every module of `root`/logservice but for `__init__.py`."""
    top = root / "logservice"
    paths = {
        ".".join(path.relative_to(top).with_suffix("").parts): path
        for path in sorted(top.rglob("*.py"))
        if path.name != "__init__.py" and not path.stem.endswith("_pb2")
    }
    return {
        module: File(module, len(text.splitlines()), frozenset(_imports(ast.parse(text), paths)))
        for module, path in paths.items()
        for text in [path.read_text("utf-8")]
    }


def _imports(tree: ast.Module, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for dotted in (node.module, *(f"{node.module}.{name.name}" for name in node.names)):
                if dotted.removeprefix("logservice.") in known:
                    yield dotted.removeprefix("logservice.")
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.removeprefix("logservice.") in known:
                    yield name.name.removeprefix("logservice.")


def rooms(files: Mapping[str, File], package: str) -> Graph:
    """The rooms of `package` and the arrows between them."""
    prefix = package.replace("/", ".") + "."
    arrows: dict[str, set[str]] = {}
    for file in files.values():
        if not file.module.startswith(prefix):
            continue
        room = file.module.removeprefix(prefix).split(".")[0]
        targets = {
            one.removeprefix(prefix).split(".")[0] for one in file.imports if one.startswith(prefix)
        }
        arrows.setdefault(room, set()).update(targets - {room})
    return {room: frozenset(to) for room, to in arrows.items()}


def circles(graph: Graph) -> list[list[str]]:
    """Sets of more than one name that reach each other, largest first."""
    reach = {name: set(to) for name, to in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach.get(middle, set())
    found = {
        frozenset([name, *(one for one in reach[name] if name in reach.get(one, ()))])
        for name in graph
    }
    return sorted(([*sorted(one)] for one in found if len(one) > 1), key=len, reverse=True)


def print_table(files: Mapping[str, File]) -> None:
    """Print the figures of each package, then those of all files."""
    print(f"{'package':20} {'files':>5} {'lines':>6} {'rooms':>5} {'arrows':>6}  circles of rooms")
    for package in PACKAGES:
        graph = rooms(files, package)
        prefix = package.replace("/", ".") + "."
        inside = [file for file in files.values() if file.module.startswith(prefix)]
        print(
            f"{package:20} {len(inside):5} {sum(file.lines for file in inside):6} {len(graph):5} "
            f"{sum(map(len, graph.values())):6}  {_sizes(circles(graph))}"
        )
    importers: dict[str, int] = defaultdict(int)
    for file in files.values():
        for one in file.imports:
            importers[one] += 1
    once = sum(count == 1 for count in importers.values())
    short = sum(file.lines <= 60 for file in files.values())
    whole = circles({file.module: file.imports for file in files.values()})
    fan_out = sorted(((len(file.imports), file.module) for file in files.values()), reverse=True)
    print(f"\nfiles {len(files)}, lines {sum(file.lines for file in files.values())}")
    print(f"files with one importer {once}, files of at most 60 lines {short}")
    print(f"circles of files: {_sizes(whole)}")
    print("fan-out: " + ", ".join(f"{module} {count}" for count, module in fan_out[:6]))


def _sizes(found: list[list[str]]) -> str:
    return "none" if not found else ", ".join(f"{len(one)} ({one[0]} ...)" for one in found)


def main() -> None:
    """Read the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("package", nargs="?", help="print every arrow of this one")
    parser.add_argument("--tree", type=Path, default=Path(), help="root of a checkout")
    asked = parser.parse_args()
    files = read_tree(asked.tree)
    if asked.package is None:
        print_table(files)
        return
    graph = rooms(files, asked.package)
    for room in sorted(graph):
        print(f"{room:24} -> {', '.join(sorted(graph[room]))}")
    for one in circles(graph):
        print("circle: " + ", ".join(one))


if __name__ == "__main__":
    main()
