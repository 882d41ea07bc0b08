"""docs/guarantees.md names tests for every guarantee, and they exist."""

from __future__ import annotations

import re

from tests.tidy.source_tree import ROOT

DOCUMENT = ROOT / "docs" / "guarantees.md"


def test_every_guarantee_has_tests_and_they_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    stated = re.findall(r"^\*\*(G[1-9]) ", text, re.MULTILINE)
    assert stated == [f"G{number}" for number in range(1, 10)]
    rows = {row[0]: row[1] for row in re.findall(r"^\| (G[1-9]) \|(.*)$", text, re.MULTILINE)}
    for guarantee in stated:
        files = re.findall(r"`(tests/[\w/.]+)`", rows[guarantee])
        assert files, guarantee
        missing = [name for name in files if not (ROOT / name).is_file()]
        assert missing == [], guarantee


def test_the_rules_of_the_log_carry_the_guarantee_in_their_names() -> None:
    source = (ROOT / "tests" / "rsm" / "test_log_rsm.py").read_text(encoding="utf-8")
    for number in (2, 4, 5, 9):
        assert len(re.findall(rf"^def test_g{number}_", source, re.MULTILINE)) >= 3
