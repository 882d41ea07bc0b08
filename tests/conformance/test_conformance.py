"""Data-driven files, directive by directive: those of the folder that LOGSERVICE_CONFORMANCE_DIR
names, and our own beside this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.runner import run_file

FOLDER = os.environ.get("LOGSERVICE_CONFORMANCE_DIR", "")
FILES = sorted(Path(FOLDER).rglob("*.txt")) if FOLDER else []
OWN = sorted((Path(__file__).parent / "own").glob("*.txt"))


@pytest.mark.skipif(not FOLDER, reason="LOGSERVICE_CONFORMANCE_DIR names no folder of test files")
def test_the_folder_holds_files() -> None:
    assert FILES, f"no test file in {FOLDER}"


def test_there_are_own_files() -> None:
    assert [path.stem for path in OWN] == ["lsn_assignment", "ordered_change", "quiesce", "witness"]


@pytest.mark.parametrize("path", FILES + OWN, ids=[path.stem for path in FILES + OWN])
def test_file(path: Path) -> None:
    count = 0
    for result in run_file(path):
        assert result is None, f"line {result.directive.line}: {result.directive.text}"
        count += 1
    assert count, "no directive found"
