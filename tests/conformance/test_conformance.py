"""The data-driven files of the folder named by LOGSERVICE_CONFORMANCE_DIR, directive by
directive.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.runner import run_file

FOLDER = os.environ.get("LOGSERVICE_CONFORMANCE_DIR", "")
FILES = sorted(Path(FOLDER).rglob("*.txt")) if FOLDER else []


@pytest.mark.skipif(not FOLDER, reason="LOGSERVICE_CONFORMANCE_DIR names no folder of test files")
def test_the_folder_holds_files() -> None:
    assert FILES, f"no test file in {FOLDER}"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_file(path: Path) -> None:
    count = 0
    for result in run_file(path):
        assert result is None, f"line {result.directive.line}: {result.directive.text}"
        count += 1
    assert count, "no directive found"
