"""A report that looked nothing up is "not checked", never "clean"."""

from __future__ import annotations

import subprocess

import pytest

from tools import audit_dependencies
from tools.audit_dependencies import read_report

FINE = {"name": "click", "version": "8.5.1", "vulns": []}
SKIPPED = {"name": "rich", "skip_reason": "Dependency not found on PyPI"}
BAD = {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1"}, {"id": "GHSA-2"}]}


@pytest.mark.parametrize(
    ("packages", "words", "code"),
    [
        ([FINE, SKIPPED], "clean: 1 of 2 packages were looked up; 1 could NOT", 0),
        ([FINE, FINE], "clean: 1 of 1 packages were looked up", 0),
        ([SKIPPED], "not checked: none of 1 packages", 0),
        ([], "not checked: none of 0 packages", 0),
        ([FINE, BAD, SKIPPED], "VULNERABLE: old 1.0: PYSEC-1, GHSA-2", 1),
    ],
)
def test_verdicts(packages: list[dict[str, object]], words: str, code: int) -> None:
    line, found = read_report({"dependencies": packages}).verdict()
    assert line.startswith(words)
    assert found == code


@pytest.mark.parametrize("error", [OSError("no network"), subprocess.TimeoutExpired("pip", 1)])
def test_what_cannot_run_is_not_checked(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: str) -> str:
        raise error

    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", fail)
    assert audit_dependencies.main() == 0
    assert capsys.readouterr().out.startswith("not checked")


def test_garbage_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_dependencies, "_run_pip_audit", lambda _: "<html>")
    assert audit_dependencies.main() == 0
    assert capsys.readouterr().out.startswith("not checked")
