"""Tests of the adapter: it reads the format right, and finds a wrong expectation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.datadriven import FormatError, parse, semantic
from tests.conformance.runner import run_file

TEXT = """
# A comment.

first 1 name=(a, b,c) flag=true \\
  more=x
input one
input two
----
output one
  output two

second
----
----
with a

blank line
----
----

third empty=()
----
"""


def test_the_format() -> None:
    first, second, third = parse(TEXT)
    assert (first.line, first.command, first.numbers()) == (4, "first", [1])
    assert first.values("name") == ("a", "b", "c")
    assert first.flag("flag")
    assert first.value("more") == "x"
    assert first.input == ("input one", "input two")
    assert first.expected == ("output one", "  output two")
    assert second.expected == ("with a", "", "blank line")
    assert third.expected == ()


@pytest.mark.parametrize("text", ["first\n", "first\ninput\n", "first\n----\n----\nopen\n"])
def test_a_broken_file_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        list(parse(text))


def test_logger_lines_are_not_compared() -> None:
    assert semantic(("INFO 1 became leader", "  DEBUG x", "kept")) == ["kept"]
    assert semantic(("INFO 1 became leader",)) == ["ok"]
    assert semantic(()) == ["ok"]
    assert semantic(("ok",)) == ["ok"]
    assert semantic(("INFORMATION",)) == ["INFORMATION"]


OWN = """
add-nodes 1 voters=(1) index=2
----
ok

campaign 1
----
INFO whatever

stabilize
----
> 1 handling Ready
  Ready MustSync=true:
  Lead:0 State:StateCandidate
  HardState Term:1 Vote:1 Commit:2
> 1 handling Ready
  Ready MustSync=true:
  Lead:1 State:StateLeader
  Entries:
  1/3 EntryNormal ""
> 1 handling Ready
  Ready MustSync=false:
  HardState Term:1 Vote:1 Commit:3
  CommittedEntries:
  1/3 EntryNormal ""

propose 1 "it's"
----
ok

raft-state
----
1: StateLeader (Voter) Term:1 Lead:1
"""


def test_a_file_of_our_own_passes(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(OWN, encoding="utf-8")
    results = list(run_file(path))
    assert results == [None] * 5
    assert main([str(path)]) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Lead:1 State:StateLeader", "Lead:1 State:StateFollower"),
        ("Commit:3", "Commit:2"),
        ("MustSync=false", "MustSync=true"),
        ("  Entries:\n", ""),
        ("StateLeader (Voter)", "StateLeader (Non-Voter)"),
        ("raft-state", "no-such-command"),
    ],
)
def test_a_wrong_expectation_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    assert old in OWN
    path = tmp_path / "own.txt"
    path.write_text(OWN.replace(old, new, 1), encoding="utf-8")
    assert main([str(path)]) == 1
    assert str(path) in capsys.readouterr().out


def test_no_file_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_quorum_and_confchange_commands(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(
        """
committed cfg=(1,2,3) idx=(12,5,_)
----
       idx
xx>     12    (id=1)
x>       5    (id=2)
?        0    (id=3)
5

vote cfg=(1,2) cfgj=(2,3) votes=(y,y,_)
----
VotePending

committed cfg=(1,2) idx=(1)
----
error: mismatched input (explicit or _) for voters [1 2]: ['1']

leave-joint
----
can't leave a non-joint config

simple
r1
----
removed all voters
""",
        encoding="utf-8",
    )
    assert list(run_file(path)) == [None] * 5
