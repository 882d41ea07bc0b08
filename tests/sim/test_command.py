"""The simulator's command: a campaign goes on in its ledger, and a failure is replayed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from logservice.sim.campaign import read_ledger

ROOT = Path(__file__).resolve().parents[2]
MUTATED = """
import sys
from logservice.sim.__main__ import main
from logservice.sim.mutations import MUTATIONS
MUTATIONS["no-fsync"]()
main(sys.argv[1:])
"""


def simulate(*arguments: str, mutated: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, because a mutation lasts as long as its process."""
    program = ["-c", MUTATED] if mutated else ["-m", "logservice.sim"]
    path = f"{ROOT}{os.pathsep}{ROOT / 'client'}"
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )


def test_a_campaign_goes_on_where_its_ledger_ends(tmp_path: Path) -> None:
    ledger = tmp_path / "new" / "ledger.jsonl"
    asked = ("--short", "--first", "3", "--ledger", str(ledger))
    first = simulate(*asked, "--seeds", "2")
    assert first.returncode == 0, first.stdout + first.stderr
    lines = ledger.read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [3, 4]
    # The run was killed while it wrote the second line: that seed runs again, the first does not.
    ledger.write_text(lines[0] + "\n" + lines[1][:40] + "\n")
    again = simulate(*asked, "--seeds", "2")
    assert again.returncode == 0
    assert [line["seed"] for line in read_ledger(ledger)] == [3, 4]
    assert ledger.read_text().splitlines()[0] == lines[0]
    assert read_ledger(ledger)[1]["digest"] == json.loads(lines[1])["digest"]
    assert simulate(*asked, "--seeds", "2", "--seconds", "1e-9").returncode == 0
    assert len(read_ledger(ledger)) == 2


def test_a_failing_seed_prints_the_line_that_replays_it() -> None:
    failed = simulate("--short", "--first", "1", "--seeds", "1", mutated=True)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "seed 1 failed: seed=1 calm=" in failed.stdout
    violation = re.search(r"^  ([0-9.]+) s (durability: .*)$", failed.stdout, re.MULTILINE)
    line = re.search(r"^  replay: python -m logservice.sim (.*)$", failed.stdout, re.MULTILINE)
    assert violation is not None, failed.stdout
    assert line is not None, failed.stdout
    assert line[1] == "--replay 1 --short"
    replayed = simulate(*line[1].split(), mutated=True)
    assert replayed.returncode == 1
    assert f"{violation[1]} VIOLATION {violation[2]}" in replayed.stdout
    before, _, _ = replayed.stdout.partition(" VIOLATION ")
    events = re.findall(r"^ *([0-9]+\.[0-9]{6}) start store-[0-9]+", before, re.MULTILINE)
    assert events, "what led to it, and when"
    assert max(map(float, events)) <= float(violation[1])
