"""Runs data-driven files, directive by directive: those in the folder that
LOGSERVICE_CONFORMANCE_DIR names, and our own beside this file.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.runner import run_file
from tests.conformance.words import quoted

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


@pytest.mark.parametrize(
    ("payload", "printed"),
    [
        (b'say "no" \\', r'"say \"no\" \\"'),
        (bytes((0, 1, 7, 8, 9, 10, 11, 12, 13, 27, 127)), r'"\x00\x01\a\b\t\n\v\f\r\x1b\x7f"'),
        (b"\xff\xc3(a", r'"\xff\xc3(a"'),
        (
            "\u00e9\u20ac\u200b\u2028\U0001f600\U000e0001".encode(),
            '"\u00e9\u20ac\\u200b\\u2028\U0001f600\\U000e0001"',
        ),
    ],
)
def test_a_payload_is_printed_as_go_does(payload: bytes, printed: str) -> None:
    """What go1.26 prints for ``%q``."""
    assert quoted(payload) == printed
