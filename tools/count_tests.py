"""How many tests a run of several lanes executed: ``tests: N passed, M failed, K skipped``.

As a plugin of pytest (``-p tools.count_tests --count-tests=FILE``) it hears pytest's own reports
and, at the end of a session, appends their counts to FILE, a line of JSON per session. Where tests
run in several processes the controller counts, which hears of all. `.ci/run` gives every lane a
file named after it. As a program it adds up a folder of such files; nothing is read from what a
runner printed.

A test counts once, as failed if any part of it did: its call, its fixtures, or the import of its
file. An expected failure counts as skipped.

Exit code 1: a lane named with ``--required`` executed no test, or left no counts. A run that tested
nothing must not look like one that passed.

    python -m tools.count_tests FOLDER --required test
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests of a session, of a lane, or of several."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    @property
    def executed(self) -> int:
        """Tests that really ran."""
        return self.passed + self.failed


class Counter:
    """The plugin of one session."""

    def __init__(self, file: Path) -> None:
        """`file`: where the session's counts are appended."""
        self._file = file
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._skipped: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear of one part of a test: its fixtures, its call, or its fixtures' ends."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.skipped:
            self._skipped.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Hear of one file; every process that collects it reports it."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.skipped:
            self._skipped.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the counts: all reports were heard."""
        counts = Counts(
            len(self._passed - self._failed),
            len(self._failed),
            len(self._skipped - self._failed),
        )
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(counts)) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's one option."""
    parser.addoption("--count-tests", type=Path, metavar="FILE", help="append the counts to FILE")


def pytest_configure(config: pytest.Config) -> None:
    """Count only in the process that hears of all tests."""
    file = config.getoption("--count-tests")
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counter(file))


def read(file: Path) -> Counts:
    """The counts of a lane: of all sessions of pytest that it had."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return sum((Counts(**json.loads(line)) for line in lines), Counts())


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the sums as the last line, and what is wrong before it."""
    parser = argparse.ArgumentParser(prog="python -m tools.count_tests")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--required", action="append", default=[], metavar="LANE")
    given = parser.parse_args(arguments)
    lanes = {file.name: read(file) for file in given.folder.iterdir()}
    idle = [name for name in given.required if not lanes.get(name, Counts()).executed]
    for name in idle:
        print(f"lane {name} executed no test")
    print(f"tests: {sum(lanes.values(), Counts())}", flush=True)
    return 1 if idle else 0


if __name__ == "__main__":
    sys.exit(main())
