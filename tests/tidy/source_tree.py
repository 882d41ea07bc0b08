"""The files that the house rules apply to, and the rules as functions over source text.

A rule takes text and returns what is wrong as ``line: message`` strings, so that the rules
themselves can be tested on snippets (`test_rules.py`) and then applied to the tree
(`test_tree.py`).
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("logservice", "client", "tools", "bench", "examples")
GENERATED = ROOT / "client" / "logservice_wire" / "v1"

FUNCTION_LINES_MAX = 70

BANNED_WORDS = {
    r"\bTODO\b": "finish it or file an issue",
    r"\bFIXME\b": "finish it or file an issue",
    r"\bXXX\b": "finish it or file an issue",
    r"\bNotImplementedError\b": "no placeholders",
    r"# fmt: (?:skip|off)": "name the value, or take the formatter's lines",
    r"(?<![\w.])/(?:work|root|home|tmp)/\w": "a path of one machine",
}
BANNED_IDENTIFIERS = {
    r"(?:^|_)nodes?(?!_?host)(?:_|$)": "store, or replica",
    r"(?:^|_)raft_group(?:_|$)": "shard",
    r"(?:^|_)log_id(?:_|$)": "shard_id",
    r"(?:^|_)snapshot_lsn_min(?:_|$)": "truncation_lsn",
}


def python_files(*folders: str) -> list[Path]:
    """Every Python file we wrote below the folders."""
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if GENERATED not in path.parents]


def text_files() -> Iterator[Path]:
    """Everything of ours that people read, except these rules."""
    yield from python_files(*PRODUCT, "tests")
    for pattern in (
        "*.md",
        "*.toml",
        "Makefile",
        "docs/**/*.md",
        "proto/**/*.proto",
        "deploy/**/*",
    ):
        yield from (path for path in sorted(ROOT.glob(pattern)) if path.is_file())
    yield from (path for path in sorted((ROOT / "tools").rglob("*.sh")))


def relative(path: Path) -> str:
    """The path as a violation shows it."""
    return str(path.relative_to(ROOT))


def long_functions(source: str) -> list[str]:
    """Functions longer than the limit; the docstring does not count."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0]
        docstring_lines = 0
        if ast.get_docstring(node, clean=False) is not None:
            docstring_lines = (first.end_lineno or first.lineno) - first.lineno + 1
        lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines
        if lines > FUNCTION_LINES_MAX:
            problems.append(f"{node.lineno}: {node.name} has {lines} lines")
    return problems


def missing_header(source: str) -> list[str]:
    """A file opens with its theory of operation; an empty package marker needs none."""
    module = ast.parse(source)
    if module.body and not ast.get_docstring(module):
        return ["1: no module docstring"]
    return []


def banned_words(text: str) -> list[str]:
    """Words that must not appear in any file."""
    return [
        f"{number}: {match.group()!r}: {advice}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, advice in BANNED_WORDS.items()
        if (match := re.search(pattern, line))
    ]


def banned_identifiers(source: str) -> list[str]:
    """Names that use another word for one of our ideas (docs/glossary.md)."""
    names: set[tuple[int, str]] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            names.add((node.lineno, node.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add((node.lineno, node.attr))
    return [
        f"{line}: {name!r}: say {advice}"
        for line, name in sorted(names)
        for pattern, advice in BANNED_IDENTIFIERS.items()
        if re.search(pattern, name.lower())
    ]


@functools.cache
def imported_modules(source: str) -> set[str]:
    """Top-level names of everything the file imports, lazily or not. Remembered, since every module
    that one file alone may import asks all files again.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def bare_tasks(source: str) -> list[str]:
    """Tasks of the loop, whose end is left to chance. A group of tasks notices it (`group`)."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="group"), attr="create_task")):
                pass
            case ast.Call(func=ast.Attribute(attr="create_task" | "ensure_future" as name)):
                problems.append(f"{node.lineno}: {name}")
    return problems


def file_calls(source: str) -> list[str]:
    """Calls that reach the file system: `open` and the functions of `os` and `shutil`."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id="open"):
                problems.append(f"{node.lineno}: open()")
            case ast.Attribute(value=ast.Name(id="os" | "shutil" as module), attr=name) if (
                name not in {"strerror", "fspath"}
            ):
                problems.append(f"{node.lineno}: {module}.{name}()")
    return problems


def wall_clock_reads(source: str) -> list[str]:
    """Where the wall clock is read, or handed on as a function."""
    reads = {"time": {"time", "time_ns"}, "datetime": {"now", "utcnow", "today"}}
    problems = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name) if (
                name in reads.get(owner, ())
            ):
                problems.append(f"{node.lineno}: {owner}.{name}")
    return problems


def code_evaluation(source: str) -> list[str]:
    """Calls of eval, exec, compile and __import__."""
    return [
        f"{node.lineno}: {node.func.id}()"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec", "compile", "__import__"}
    ]
