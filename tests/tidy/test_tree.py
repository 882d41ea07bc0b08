"""House rules, applied to every file of the tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy import source_tree
from tests.tidy.source_tree import PRODUCT, ROOT, python_files, relative

THESE_RULES = ROOT / "tests" / "tidy"

SOURCE_RULES: dict[str, Callable[[str], list[str]]] = {
    "functions fit a screen": source_tree.long_functions,
    "files open with their theory of operation": source_tree.missing_header,
    "no code is evaluated": source_tree.code_evaluation,
}


def violations(paths: list[Path], rule: Callable[[str], list[str]]) -> list[str]:
    """``path:line: message`` for every file that breaks the rule."""
    return [
        f"{relative(path)}:{problem}"
        for path in paths
        for problem in rule(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("name", SOURCE_RULES)
def test_product_files(name: str) -> None:
    assert violations(python_files(*PRODUCT), SOURCE_RULES[name]) == []


def test_one_word_per_idea() -> None:
    files = python_files("logservice", "client")
    assert violations(files, source_tree.banned_identifiers) == []


def test_test_functions_fit_a_screen() -> None:
    assert violations(python_files("tests"), source_tree.long_functions) == []


def test_no_file_says_a_banned_word() -> None:
    files = [path for path in source_tree.text_files() if THESE_RULES not in path.parents]
    assert violations(files, source_tree.banned_words) == []


def test_no_skip_without_a_reason() -> None:
    def bare_skip(text: str) -> list[str]:
        return [
            f"{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() in {"@pytest.mark.skip", "@pytest.mark.xfail", "pytest.skip()"}
        ]

    assert violations(python_files("tests"), bare_skip) == []


def importers_of(module: str, *folders: str) -> list[str]:
    """Files below the folders that import the module."""
    return [
        relative(path)
        for path in python_files(*folders)
        if module in source_tree.imported_modules(path.read_text(encoding="utf-8"))
    ]


def test_one_file_imports_plyvel() -> None:
    for name in ("plyvel", "plyvel_next"):
        assert importers_of(name, *PRODUCT) == ["logservice/logdb/io/leveldb_kv.py"]


@pytest.mark.parametrize(
    "module",
    ["pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "tarfile", "zipfile", "xml"],
)
def test_nothing_foreign_is_unpacked(module: str) -> None:
    assert importers_of(module, *PRODUCT) == []


def test_one_file_of_logdb_calls_the_file_system() -> None:
    callers = {
        relative(path)
        for path in python_files("logservice/logdb")
        if source_tree.file_calls(path.read_text(encoding="utf-8"))
    }
    assert len(callers) == 1, callers


def test_the_end_of_every_task_is_noticed() -> None:
    """INV-CLIENT-TASK, INV-TASK-END. A command awaits what it begins."""
    folders = [
        "client",
        *(f"logservice/{name}" for name in ("server", "nodehost", "archive", "mirror")),
    ]
    files = [path for path in python_files(*folders) if path.name != "background.py"]
    assert violations(files, source_tree.bare_tasks) == []


@pytest.mark.parametrize("folder", ["raft", "rsm", "hakeeper"])
def test_pure_layers_call_no_file_system(folder: str) -> None:
    assert violations(python_files(f"logservice/{folder}"), source_tree.file_calls) == []
