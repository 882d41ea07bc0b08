"""docs/guarantees.md names tests for every guarantee, and they exist."""

from __future__ import annotations

import re

from logservice_wire import rpcs

from tests.tidy.source_tree import ROOT

DOCUMENT = ROOT / "docs" / "guarantees.md"
RPCS = {row.name: row for row in vars(rpcs).values() if isinstance(row, rpcs.Rpc)}


def test_every_guarantee_has_tests_and_they_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    stated = re.findall(r"^\*\*(G\d+) ", text, re.MULTILINE)
    assert stated == [f"G{number}" for number in range(1, 11)]
    rows = {row[0]: row[1] for row in re.findall(r"^\| (G\d+) \|(.*)$", text, re.MULTILINE)}
    for guarantee in stated:
        files = re.findall(r"`(tests/[\w/.]+)`", rows[guarantee])
        assert files, guarantee
        missing = [name for name in files if not (ROOT / name).is_file()]
        assert missing == [], guarantee


def test_the_rules_of_the_log_carry_the_guarantee_in_their_names() -> None:
    source = (ROOT / "tests" / "rsm" / "test_log_rsm.py").read_text(encoding="utf-8")
    for number in (2, 4, 5, 9):
        assert len(re.findall(rf"^def test_g{number}_", source, re.MULTILINE)) >= 3


def test_every_rpc_has_a_promise_and_every_promise_an_rpc() -> None:
    """The first column of some tables names calls, each in one row."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z]\w+(?:, [A-Z]\w+)*) \|", text, re.MULTILINE)
    named = [name for row in rows for name in row.split(", ") if not re.fullmatch(r"G\d+", name)]
    assert "(`WatchEvents`" in text, "it has a section of its own"
    assert sorted([*named, "WatchEvents"]) == sorted(RPCS)


def test_the_calls_that_are_not_sent_again_are_named() -> None:
    """The table of the RPCs says which; here people read it."""
    text = DOCUMENT.read_text(encoding="utf-8")
    [sentence] = re.findall(r"The exceptions are (.+?)\.\n", text, re.DOTALL)
    named = {name for name in RPCS if re.search(rf"\b{name}\b", sentence)}
    assert named == {name for name, row in RPCS.items() if row.mutates and not row.idempotent}


def test_every_test_that_is_named_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|logservice|client)/[\w/.]+)`", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
