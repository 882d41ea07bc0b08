"""Tests of `.ci/run`, on a tree whose Makefile only says which target it made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAKEFILE = """\
.PHONY: test .venv strace
.venv strace:
	@echo the environment
test:
	@echo first; sleep 0.3; echo last
	@echo '{"passed": $(PASSED), "failed": 0, "skipped": 1}' >>$${PYTEST_ADDOPTS##*=}
%:
	@echo made $@; test $@ != "$(BROKEN)"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/count_tests.py", tmp_path / "tools")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


def ci(tree: Path, *, broken: str = "", passed: int = 3) -> tuple[int, str]:
    asked = {
        "BROKEN": broken,
        "PASSED": str(passed),
        "PYTHONPATH": str(tree),
        "LOGSERVICE_CONFORMANCE_DIR": str(tree),
    }
    # `make test` makes the makes below it print the directory that they enter.
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=tree, env=mine | asked, capture_output=True, text=True
    )
    return done.returncode, done.stdout


def test_every_lane_speaks_in_one_piece_and_the_last_line_counts_the_tests(tree: Path) -> None:
    code, said = ci(tree)
    assert code == 0, said
    assert "=== test: make test\nfirst\nlast\ntest          ok " in said
    assert re.search(
        r"^=== sim: make sim SEEDS=\d+ SIM_FLAGS=--seconds \d+\nmade sim\nsim           ok ",
        said,
        re.MULTILINE,
    )
    lanes = {line.split()[0] for line in said.partition("=== lanes\n")[2].splitlines()}
    assert lanes >= {"setup", "test", "lint", "sim", "crash", "java", "docker", "chaos", "total"}
    assert said.splitlines()[-1] == "tests: 3 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("broken", ["crash", "demo"])
def test_a_failed_lane_of_any_track_fails_the_run_after_the_others_have_spoken(
    tree: Path, broken: str
) -> None:
    code, said = ci(tree, broken=broken)
    assert code == 1
    assert f"{broken:13} FAILED " in said
    assert "chaos         ok " in said
    assert "crash " in said.partition("=== lanes\n")[2]
    assert said.splitlines()[-1] == "tests: 3 passed, 0 failed, 1 skipped"


def test_without_an_environment_nothing_else_is_tried(tree: Path) -> None:
    (tree / "Makefile").write_text("%:\n\t@echo no $@; exit 1\n")
    code, said = ci(tree)
    assert code == 1
    assert "setup         FAILED " in said
    assert "=== lint" not in said


def test_a_run_that_tested_nothing_fails(tree: Path) -> None:
    code, said = ci(tree, passed=0)
    assert code == 1
    assert said.splitlines()[-1] == "tests: 0 passed, 0 failed, 1 skipped"
