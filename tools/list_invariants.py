"""Lists every invariant: what it says, where it is checked, which tests name it.

The ids (``INV-<AREA>-<NAME>``) live in the code; docs/invariants.md is made from it, so the two
cannot disagree. A statement is the text after the id in the docstring or comment that introduces
it: the first one that *begins* a paragraph or list item with the id, else the first one that
mentions it. An id that no prose mentions is stated by the condition that is checked.

    python tools/list_invariants.py            prints the document
    python tools/list_invariants.py --write    writes docs/invariants.md
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.made_document import print_or_write

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "invariants.md"
PRODUCT_FOLDERS = ("logservice", "client")
INVARIANT_ID = re.compile(r"\bINV-[A-Z0-9]+(?:-[A-Z0-9]+)*\b")
PARAGRAPH_END = re.compile(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+")

HEADER = """# Invariants

Made from the code by `make invariants`; a test fails when an id is missing here. *Checked in
production*: the code there calls `invariant(...)` with this id (`logservice/invariants.py`), and a
violation stops the replica or the store. Others hold by construction: they are stated where the
code keeps them, and the tests that name them fail without it.

| id | what holds | checked in production | tests that name it | stated in |
|---|---|---|---|---|
"""


@dataclass(slots=True)
class Invariant:
    """One id and everything the tree says about it."""

    statement: str = ""
    introduces: bool = False
    conditions: set[str] = field(default_factory=set)
    checked_in: set[str] = field(default_factory=set)
    mentioned_in: set[str] = field(default_factory=set)
    tested_in: set[str] = field(default_factory=set)


def prose_of(source: str) -> Iterator[str]:
    """Docstrings (and bare strings), then runs of comment lines."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
    run: list[str] = []
    last_line = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last_line + 1 and run:
            yield "\n".join(run)
            run = []
        run.append(token.string.lstrip("#").removeprefix(" "))
        last_line = token.start[0]
    if run:
        yield "\n".join(run)


def _bare(text: str) -> str:
    """`text` without what joins it to the ids before and behind it. A backtick without its pair, or
    a parenthesis that opens at the end, belongs to such an id; a pair belongs to the text.
    """
    marks = " :,;.*-"
    text = text.strip(marks)
    if text.count("`") % 2:
        text = text.removeprefix("`") if text.startswith("`") else text.removesuffix("`")
    return text.rstrip(marks + "(").lstrip(marks + ")")


def statements_in(prose: str) -> Iterator[tuple[str, str, bool]]:
    """`(id, text after it, whether it begins its paragraph)` for each id in a piece of prose."""
    for paragraph in PARAGRAPH_END.split("\n" + prose):
        found = list(INVARIANT_ID.finditer(paragraph))
        for position, match in enumerate(found):
            end = found[position + 1].start() if position + 1 < len(found) else len(paragraph)
            text = _bare(" ".join(paragraph[match.end() : end].split()))
            lead = paragraph[: match.start()].strip(" \n-*`(")
            yield match.group(), text, position == 0 and not lead


def checks_in(source: str) -> Iterator[tuple[str, str]]:
    """`(id, condition)` of every call that is given an id: the checks themselves."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            for argument in node.args:
                match argument:
                    case ast.Constant(value=str(text)) if INVARIANT_ID.fullmatch(text):
                        condition = node.args[0]
                        yield text, "" if condition is argument else ast.unparse(condition)


def collect(root: Path) -> dict[str, Invariant]:
    """All invariants of the tree under `root`, by id."""
    invariants: dict[str, Invariant] = {}
    for folder in PRODUCT_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            if path == root / "logservice" / "invariants.py":
                continue  # this file defines the check; the id in its prose is an example
            source = path.read_text(encoding="utf-8")
            name = str(path.relative_to(root))
            for identifier in INVARIANT_ID.findall(source):
                invariants.setdefault(identifier, Invariant()).mentioned_in.add(name)
            for identifier, condition in checks_in(source):
                invariants[identifier].checked_in.add(name)
                invariants[identifier].conditions.add(condition)
            for prose in prose_of(source):
                for identifier, text, introduces in statements_in(prose):
                    known = invariants[identifier]
                    if text and (not known.statement or introduces > known.introduces):
                        known.statement, known.introduces = text, introduces
    for path in sorted((root / "tests").rglob("*.py")):
        for identifier in INVARIANT_ID.findall(path.read_text(encoding="utf-8")):
            if identifier in invariants:
                invariants[identifier].tested_in.add(str(path.relative_to(root)))
    return invariants


def render(invariants: dict[str, Invariant]) -> str:
    """The document."""
    rows = []
    for identifier, known in sorted(invariants.items()):
        checked = ", ".join(f"`{name}`" for name in sorted(known.checked_in))
        stated = ", ".join(f"`{name}`" for name in sorted(known.mentioned_in - known.checked_in))
        tests = ", ".join(f"`{name}`" for name in sorted(known.tested_in))
        statement = known.statement or "; ".join(f"`{text}`" for text in sorted(known.conditions))
        statement = statement.replace("|", "\\|")
        rows.append(f"| {identifier} | {statement} | {checked} | {tests} | {stated} |\n")
    return HEADER + "".join(rows)


def main() -> None:
    """Print or write the document."""
    print_or_write(__doc__, DOCUMENT, lambda: render(collect(ROOT)))


if __name__ == "__main__":
    main()
