"""Tests of the rules: each finds what it is meant to find, and nothing else."""

from __future__ import annotations

import pytest

from tests.tidy import source_tree


def test_a_function_is_measured_without_its_docstring() -> None:
    documented = 'def f():\n    """' + "a\n" * 100 + '"""\n' + "    x = 1\n" * 68
    assert source_tree.long_functions(documented) == []
    assert source_tree.long_functions("def f():\n" + "    x = 1\n" * 70) == ["1: f has 71 lines"]


def test_a_file_with_code_needs_a_header() -> None:
    assert source_tree.missing_header("") == []
    assert source_tree.missing_header('"""What it decides."""\nx = 1\n') == []
    assert source_tree.missing_header("x = 1\n") == ["1: no module docstring"]


@pytest.mark.parametrize(
    "word", ["TO" + "DO", "FIX" + "ME", "/ro" + "ot/x", "NotImplemented" + "Error"]
)
def test_banned_words_are_found(word: str) -> None:
    assert len(source_tree.banned_words(f"fine\nsee {word} there\n")) == 1


def test_ordinary_words_are_not_banned() -> None:
    assert source_tree.banned_words("method, todos, a/work/b, https://host/tmp/x, .venv/bin") == []


@pytest.mark.parametrize("name", ["node", "node_id", "lost_nodes", "raft_group"])
def test_synonyms_are_found(name: str) -> None:
    assert len(source_tree.banned_identifiers(f"def f({name}): ...")) == 1
    assert len(source_tree.banned_identifiers(f"{name} = 1")) == 1


@pytest.mark.parametrize("name", ["nodehost", "node_host", "NodeHost", "group", "anode"])
def test_names_that_are_ours_pass(name: str) -> None:
    assert source_tree.banned_identifiers(f"{name} = 1") == []


def test_lazy_imports_count() -> None:
    source = "import a.b\ndef f():\n    from c.d import e\n    from . import g\n"
    assert source_tree.imported_modules(source) == {"a", "c"}


def test_file_calls_are_found() -> None:
    source = "import os\nopen('x')\nos.unlink('x')\nself.open('x')\nvfs.unlink('x')\n"
    assert source_tree.file_calls(source) == ["2: open()", "3: os.unlink()"]


def test_bare_tasks_are_found() -> None:
    source = "loop.create_task(x)\nasyncio.ensure_future(x)\ngroup.create_task(x)\nbegin_task(x)\n"
    assert source_tree.bare_tasks(source) == ["1: create_task", "2: ensure_future"]


def test_code_evaluation_is_found() -> None:
    assert source_tree.code_evaluation("eval('1')\nre.compile('x')\n") == ["1: eval()"]
