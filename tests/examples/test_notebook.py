"""The notebook runs, and shows what its committed outputs say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.notebook_cells import code_cells, shown
from tools.own_environment import ROOT

pytestmark = pytest.mark.processes

NOTEBOOK = ROOT / "examples" / "notebook" / "first_steps.ipynb"
LIMIT_S = 300


def test_it_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.examples.notebook_cells", str(NOTEBOOK)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    cells = code_cells(json.loads(NOTEBOOK.read_text()))
    assert json.loads(done.stdout) == [shown(cell) for cell in cells]
    assert sum(bool(shown(cell)) for cell in cells) >= 6


def test_it_is_a_notebook_that_every_program_opens() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["cells"][0]["cell_type"] == "markdown"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
