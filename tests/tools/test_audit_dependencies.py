"""A package that no database looked up is "not checked", never "clean"."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools import audit_dependencies
from tools.audit_dependencies import Findings, NotAnswered

FINE = {"name": "click", "version": "8.5.1", "vulns": []}
SKIPPED = {"name": "rich", "skip_reason": "Dependency not found on PyPI"}
BAD = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "GHSA-2"}]}


@pytest.mark.parametrize(
    ("packages", "words", "code"),
    [
        (
            [FINE, SKIPPED],
            "clean: 1 of 2 packages were looked up; 1 could NOT be looked up; pypi: Dependency not",
            0,
        ),
        ([FINE, FINE], "clean: 1 of 1 packages were looked up", 0),
        ([SKIPPED], "not checked: none of 1 packages could be looked up; pypi: Dependency not", 3),
        ([], "not checked: none of 0 packages", 3),
        ([FINE, BAD, SKIPPED], "VULNERABLE: old 1.0: PYSEC-1, GHSA-2", 1),
    ],
)
def test_verdicts(packages: list[dict[str, object]], words: str, code: int) -> None:
    findings = Findings()
    findings.take(packages, "pypi")
    line, found = findings.verdict()
    assert line.startswith(words)
    assert found == code


def test_a_package_of_several_files_counts_once() -> None:
    findings = Findings()
    findings.take([FINE, BAD], "pypi")
    findings.take([FINE, BAD], "pypi")
    assert findings.verdict() == ("VULNERABLE: old 1.0: PYSEC-1, GHSA-2", 1)
    assert len(findings.audited) == 2


def report(*packages: dict[str, object]) -> str:
    return json.dumps({"dependencies": packages})


def test_the_second_database_is_asked_for_what_the_first_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"name": "rich", "version": "15.0.0", "vulns": []}

    def audit(_: str, database: str) -> str:
        return report(FINE, SKIPPED) if database == "pypi" else report(FINE, known)

    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", audit)
    assert audit_dependencies.main() == 0
    assert capsys.readouterr().out == "clean: 2 of 2 packages were looked up\n"


def test_the_second_database_is_not_asked_when_the_first_knows_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = set()

    def audit(_: str, database: str) -> str:
        asked.add(database)
        return report(FINE)

    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", audit)
    assert audit_dependencies.main() == 0
    assert asked == {"pypi"}


@pytest.mark.parametrize(
    "error",
    [OSError("no network"), subprocess.TimeoutExpired("pip", 1), NotAnswered("no such host")],
)
def test_what_cannot_run_is_not_checked(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str, __: str) -> str:
        raise error

    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", fail)
    assert audit_dependencies.main() == audit_dependencies.NOT_CHECKED
    line = capsys.readouterr().out
    assert line.startswith("not checked")
    assert str(error) in line


@pytest.mark.parametrize("garbage", ["<html>", "{}"])
def test_garbage_is_not_checked(
    garbage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", lambda *_: garbage)
    assert audit_dependencies.main() == 3
    assert capsys.readouterr().out.startswith("not checked")
    assert audit_dependencies.main(["--allow-unchecked"]) == 0
    assert capsys.readouterr().out.startswith("not checked")
    assert audit_dependencies.main(["--unchecked"]) == 2


def test_a_program_that_says_nothing_is_not_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "python").symlink_to("/bin/false")
    monkeypatch.setattr(audit_dependencies, "own_environment", lambda name: tmp_path)
    with pytest.raises(NotAnswered, match="ended with 1"):
        audit_dependencies._run_pip_audit("runtime", "pypi")
