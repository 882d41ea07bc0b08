"""`tools.count_rooms` on a tree small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.count_rooms import circles, print_table, read_tree, rooms

FILES = {
    "raft/__init__.py": '"""Not counted."""\nfrom logservice.raft.core import step\n',
    "raft/core.py": "from logservice.raft.log.tail import Tail\nfrom logservice.ids import Term\n",
    "raft/log/tail.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import logservice.raft.vote\n"
    ),
    "raft/log/kept.py": "from logservice.raft.log import tail\n",
    "raft/vote.py": "def later():\n    from logservice.raft import core\n",
    "raft/alone.py": "import os\n",
    "ids.py": "Term = int\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "logservice" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_a_sub_package_is_one_room_and_an_import_one_arrow(tree: Path) -> None:
    assert rooms(read_tree(tree), "raft") == {
        "core": {"log"},  # what is outside of the package is no room of it
        "log": {"vote"},  # and an arrow inside a room is none
        "vote": {"core"},
        "alone": frozenset(),
    }


def test_circles_are_found_under_type_checking_and_inside_functions(tree: Path) -> None:
    files = read_tree(tree)
    assert circles(rooms(files, "raft")) == [["core", "log", "vote"]]
    by_file = circles({name: file.imports for name, file in files.items()})
    assert by_file == [["raft.core", "raft.log.tail", "raft.vote"]]


def test_without_the_arrow_back_there_is_no_circle(tree: Path) -> None:
    (tree / "logservice/raft/vote.py").write_text("")
    assert circles(rooms(read_tree(tree), "raft")) == []


def test_the_table(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_table(read_tree(tree))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["raft", "5", "9", "4", "3", "3", "(core", "...)"]
    assert "files 6, lines 10" in lines
