"""docs/limits.md says what the code says; every limit and every stated cost has a test."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from tools import list_limits

BOUNDS = '''"""Theory."""

from typing import Final

A_BYTES_MAX: Final = 3 * 1024
"""What A
takes."""

B_MAX: Final = 1
B_FIRST_S: Final = 0.5
"""Both of B."""

_HIDDEN_MAX: Final = 7
NAMES: Final = ("x",)
'''

TESTS = '''"""Nobody's: B_MAX."""

from bounds_of_a import A_BYTES_MAX


def helper():
    return A_BYTES_MAX


def test_by_name():
    """It reaches A_BYTES_MAX."""


class TestKeys:
    async def test_by_key(self):
        configured("[limits]\\na_bytes_max = 3")


@pytest.mark.parametrize("size", [A_BYTES_MAX])
def test_by_decorator(size): ...
'''


BOUNDS_OF_THE_STORE = list_limits.ROOT / "logservice" / "bounds"


def test_the_page_is_what_the_code_says() -> None:
    page = list_limits.DOCUMENT.read_text(encoding="utf-8")
    assert page == list_limits.document(), "run `make limits`"


def test_every_bound_has_a_reason() -> None:
    found = list_limits.collect()
    assert [bound.name for bounds in found.values() for bound in bounds if not bound.reason] == []


def test_every_limit_has_a_test() -> None:
    """A test that names the limit, or says that it reaches it."""
    found = list_limits.collect()
    bounds = [bound for section in found.values() for bound in section]
    assert [bound.name for bound in bounds if bound.is_limit and not bound.tests] == []


def test_every_module_of_bounds_is_listed() -> None:
    modules = {f"logservice/bounds/{path.name}" for path in BOUNDS_OF_THE_STORE.glob("[a-z]*.py")}
    assert modules <= set(list_limits.SOURCES.values())


def test_the_costs_are_those_that_are_asserted() -> None:
    """The number, the name and the test of each row of the last section."""
    rows = re.findall(
        r"^\|[^|]+\| (\d+) \| `(\w+)` \| `(tests/[\w/]+)\.py::(\w+)` \|$",
        list_limits.ATTACKS.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert len(rows) >= 6
    for mebibytes, name, module, test in rows:
        found = importlib.import_module(module.replace("/", "."))
        assert getattr(found, name) == int(mebibytes), name
        assert name in getattr(found, test).__code__.co_names, test


def test_bounds_reasons_and_tests_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bounds_of_a.py").write_text(BOUNDS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(TESTS)
    monkeypatch.syspath_prepend(tmp_path)
    found = list_limits.collect(tmp_path, {"the part a": "bounds_of_a.py"})
    sys.modules.pop("bounds_of_a")
    known = {bound.name: bound for bound in found["the part a"]}
    assert set(known) == {"A_BYTES_MAX", "B_MAX", "B_FIRST_S"}
    assert known["A_BYTES_MAX"].value == 3072
    assert known["A_BYTES_MAX"].reason == "What A takes."
    assert known["A_BYTES_MAX"].tests == [
        "tests/test_a.py::test_by_name",
        "tests/test_a.py::test_by_decorator",
        "tests/test_a.py::test_by_key",
    ]
    assert known["B_MAX"].tests == []
    assert known["B_MAX"].reason == known["B_FIRST_S"].reason == "Both of B."
    page = list_limits.render(found, "## The end\n")
    assert "\n## The part a\n\n| limit | value | why | reached by |\n" in page
    assert "| `B_MAX` | 1 | Both of B. |  |\n" in page
    assert "| pace | value | why |\n|---|---|---|\n| `B_FIRST_S` | 0.5 | Both of B. |\n" in page
    assert page.endswith("\n\n## The end\n")


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("BLOCK_BYTES_MAX", True),
        ("DESCRIPTORS_MIN", True),
        ("SESSION_WINDOW", True),
        ("PEER_CONNECT_TIMEOUT_S", True),
        ("RPC_TIMEOUT_MAX_S", True),
        ("CONNECTION_IDLE_MAX_S", True),
        ("ANSWER_WAIT_S", False),
        ("PEER_BACKOFF_MAX_S", False),
        ("KEEPALIVE_TIMEOUT_MS", False),
        ("PEER_ACCEPTS_PER_PASS_MAX", False),
        ("PEER_BACKLOG_MAX", False),
        ("HAKEEPER_ATTEMPT_TIMEOUT_S", False),
    ],
)
def test_limits_and_paces(name: str, *, limit: bool) -> None:
    assert list_limits.Bound(name, 1, "").is_limit is limit
