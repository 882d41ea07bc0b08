"""value: equal by fields, hashable, without a dictionary; the type checker keeps it immutable."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from logservice_wire.value import value


@value
class Point:
    x: int
    y: int = 2


@value(kw_only=True)
class Named:
    name: str


def test_values_are_equal_and_hash_by_their_fields() -> None:
    assert Point(1) == Point(1, 2) != Point(1, 3)
    assert len({Point(1), Point(1, 2), Named(name="a"), Named(name="a")}) == 2
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)


def test_values_have_slots_and_no_positional_names() -> None:
    assert not hasattr(Point(1), "__dict__")
    with pytest.raises(TypeError):
        Named("a")  # type: ignore[misc]


def test_the_type_checker_refuses_an_assignment(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from logservice.entry import Entry\n"
        "def change(entry: Entry) -> None:\n"
        "    entry.payload = b''\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", str(program)],
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": "client:.", "PATH": ""},
    )
    assert "is read-only" in checked.stdout, checked.stdout + checked.stderr
