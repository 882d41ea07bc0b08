"""The ledger of `make nightly-crash`: a run goes on where the ledger ends, and hides no failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.crash import __main__ as command
from tests.crash.campaign import Outcome
from tests.crash.scenarios import SCENARIOS

STATES = 100


class Runs:
    """Runs of scenarios that only record their names."""

    def __init__(self, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = ledger
        self.names: list[str] = []
        self.failing: set[str] = set()
        monkeypatch.setattr(command, "run", self._run)

    def _run(self, name: str, work: Path, *, pairs: bool) -> Outcome:
        self.names.append(name)
        failures = [f"replay {name}"] if name in self.failing else []
        return Outcome(name, calls=9, moments=5, built=200, states=STATES, failures=failures)

    def go_on(self, states: int) -> int:
        """The exit code of a run that goes on until `states` are in the ledger."""
        self.names.clear()
        arguments = ["--ledger", str(self.ledger), "--states", str(states)]
        return CliRunner().invoke(command.main, arguments).exit_code


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path / "artifacts" / "ledger", monkeypatch)


def test_it_goes_on_where_it_ended(runs: Runs) -> None:
    assert runs.go_on(3 * STATES) == 0
    assert runs.names == list(SCENARIOS)[:3]
    assert runs.go_on(3 * STATES) == 0
    assert runs.names == []
    assert runs.go_on((len(SCENARIOS) + 2) * STATES) == 0
    assert runs.names == [*list(SCENARIOS)[3:], "random-1", "random-2"]
    assert len(runs.ledger.read_text().splitlines()) == len(SCENARIOS) + 2


def test_what_failed_fails_again_until_it_passes(runs: Runs) -> None:
    second = list(SCENARIOS)[1]
    runs.failing = {second}
    assert runs.go_on(3 * STATES) == 1
    assert runs.names == list(SCENARIOS)[:3]
    assert runs.go_on(3 * STATES) == 1
    assert runs.names == [second]
    runs.failing = set()
    assert runs.go_on(3 * STATES) == 0
    assert runs.names == [second]
    assert runs.go_on(3 * STATES) == 0
    assert runs.names == []
    assert [json.loads(line)["scenario"] for line in runs.ledger.read_text().splitlines()] == [
        *list(SCENARIOS)[:3],
        second,
        second,
    ]
