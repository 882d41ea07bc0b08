"""Lists every bound: its value, why it is that, and the tests that reach it.

The numbers live in `logservice/bounds/` and the client's two `bounds.py`; docs/limits.md is made
from them, so that the two cannot disagree. A number that can be met from outside is a *limit* (its
name says MAX, MIN, WINDOW or TIMEOUT); the page names the tests that reach its edge. Every other
number is a *pace*: how often, how much at once, how long a pause.

A test reaches a limit when its source names the number itself, or the key or argument that sets it
small; that has the same name in small letters, without the name of the layer. Where neither is
natural, a comment or a docstring says ``reaches NAME``.

    python -m tools.list_limits            prints the document
    python -m tools.list_limits --write    writes docs/limits.md
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from logservice import memory_budget
from tools.made_document import print_or_write

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "limits.md"
SOURCES = {
    "on disk and between stores (hard: a change is a format change)": "logservice/bounds/hard.py",
    "connections between stores": "logservice/bounds/transport.py",
    "callers, audit, certificates": "logservice/bounds/security.py",
    "tokens": "logservice/bounds/tokens.py",
    "calls, connections, the admin port": "logservice/bounds/server.py",
    "requests, truncation, HAKeeper's shell, repair": "logservice/bounds/nodehost.py",
    "the consensus core": "logservice/bounds/raft.py",
    "log storage": "logservice/bounds/logdb.py",
    "the archiver": "logservice/bounds/archive.py",
    "mirrors in a second cluster": "logservice/bounds/mirror.py",
    "what client and server must agree on": "client/logservice_wire/bounds.py",
    "the client": "client/logservice_client/bounds.py",
}
ATTACKS = ROOT / "tools" / "limits_attacks.md"
_LIMIT = re.compile(r"_(?:MAX|MIN|WINDOW|TIMEOUT)(?:_|$)")
_PACE = re.compile(r"BACKOFF_|KEEPALIVE_|_BACKLOG_|_PER_PASS_|ATTEMPT_TIMEOUT_")
_WORD = re.compile(r"\b(?:[A-Z0-9]+(?:_[A-Z0-9]+)+|[a-z0-9]+(?:_[a-z0-9]+)+)\b")
_LAYER = re.compile(r"^(?:LOGDB|RAFT)_")
_TESTS_SHOWN = 2

HEADER = """# Limits

Every bound of the system: its value, why, and the tests that reach it. Made from the code by
`make limits`; a test fails when this page is old. Bytes are written as they are configured: 1048576
is a MiB. A *limit* can be met, and names tests that reach its edge; a *pace* is how often, how much
at once, how long a pause. What an attack may cost a store is
[at the end](#what-an-attack-may-cost).
"""


@dataclass(slots=True)
class Bound:
    """One number and everything the tree says about it."""

    name: str
    value: object
    reason: str
    tests: list[str] = field(default_factory=list)

    @property
    def is_limit(self) -> bool:
        """Whether a caller can meet it; otherwise it is a pace."""
        return bool(_LIMIT.search(self.name)) and not _PACE.search(self.name)


def bounds_in(root: Path, source: str) -> Iterator[Bound]:
    """The public numbers of one module, in their order, with the text below each."""
    module = importlib.import_module(
        source.removeprefix("client/").removesuffix(".py").replace("/", ".")
    )
    body = ast.parse((root / source).read_text(encoding="utf-8")).body
    waiting: list[Bound] = []
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        value = getattr(module, node.target.id)
        if node.target.id.startswith("_") or not isinstance(value, int | float):
            continue
        waiting.append(Bound(node.target.id, value, ""))
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                # Neighbouring numbers share the text below the last one.
                for bound in waiting:
                    bound.reason = " ".join(text.split())
                yield from waiting
                waiting = []
    yield from waiting


def tests_by_word(root: Path) -> dict[str, list[str]]:
    """Which tests name what, in capitals or in small letters: ``file::test``."""
    found: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        if "tidy" in path.parts:  # these tests read the code, and reach no limit
            continue
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if not node.name.startswith("test_"):
                continue
            # The text of a decorator (a table of sizes) belongs to the test.
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            # A new line that is written inside of a text is no letter of the word behind it.
            for word in dict.fromkeys(_WORD.findall(text.replace("\\n", " "))):
                found.setdefault(word, []).append(f"{path.relative_to(root)}::{node.name}")
    return found


def collect(root: Path = ROOT, sources: Mapping[str, str] = SOURCES) -> dict[str, list[Bound]]:
    """All bounds by section."""
    words = tests_by_word(root)
    found = {title: list(bounds_in(root, source)) for title, source in sources.items()}
    for bounds in found.values():
        for bound in bounds:
            key = _LAYER.sub("", bound.name).lower()
            bound.tests = list(dict.fromkeys([*words.get(bound.name, []), *words.get(key, [])]))
    return found


def render(found: dict[str, list[Bound]], attacks: str) -> str:
    """The document."""
    parts = [HEADER]
    for title, bounds in found.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        limits = [bound for bound in bounds if bound.is_limit]
        if limits:
            parts.append("\n| limit | value | why | reached by |\n|---|---|---|---|\n")
            parts += [_row(bound, tests=True) for bound in limits]
        paces = [bound for bound in bounds if not bound.is_limit]
        if paces:
            parts.append("\n| pace | value | why |\n|---|---|---|\n")
            parts += [_row(bound, tests=False) for bound in paces]
    parts.append("\n" + attacks)
    return "".join(parts)


def _row(bound: Bound, *, tests: bool) -> str:
    cells = [f"`{bound.name}`", f"{bound.value}", bound.reason.replace("|", "\\|")]
    if tests:
        cells.append(", ".join(f"`{place}`" for place in bound.tests[:_TESTS_SHOWN]))
    return f"| {' | '.join(cells)} |\n"


def document() -> str:
    """What docs/limits.md has to say."""
    attacks = ATTACKS.read_text(encoding="utf-8")
    return render(collect(), attacks.replace("{memory_budget}", budget_table()))


def budget_table() -> str:
    """The parts of the memory budget, and their sum for one data directory."""
    limits = memory_budget.limits_of({}, 1)
    rows = ["| part | MiB | key of [limits] | when it is full |", "|---|---|---|---|"]
    for part in memory_budget.PARTS:
        size = f"{limits[part.name] >> 20}"
        if part.copies > 1:
            size += f" ({part.copies} x {part.limit_bytes >> 20})"
        if part.each_directory:
            size += " for each data directory"
        key = f"`{part.key}`" if part.key else ""
        rows.append(f"| `{part.name}` | {size} | {key} | {part.when_full} |")
    total = sum(limits.values())
    rows.append(f"| all, with one data directory | {total >> 20} | `memory_bytes_max` | |")
    return "\n".join(rows)


def main() -> None:
    """Print or write the document."""
    print_or_write(__doc__, DOCUMENT, document)


if __name__ == "__main__":
    main()
