"""The sums of campaigns, also from ledgers that are damaged or copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from logservice.sim.campaign import ledger_line, read_ledger, run_seed
from logservice.sim.ledgers import main


def line(seed: int, **changes: Any) -> dict[str, Any]:
    counts = {"client Append": 7, "client Read": 3, "entries applied": 20, "fault crash": 2}
    made = {
        "seed": seed,
        "short": False,
        "calm": False,
        "virtual_s": 1800.0,
        "cpu_s": 10.0,
        "violations": [],
        "counts": counts,
        "digest": 0,
    }
    return {**made, **changes}


def write(path: Path, *lines: dict[str, Any], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + tail)
    return path


def sums(*paths: Path) -> dict[str, str]:
    done = CliRunner().invoke(main, ["--json", *map(str, paths)])
    assert done.exit_code == 0, done.output
    found: dict[str, str] = json.loads(done.output)
    return found


def test_files_are_summed(tmp_path: Path) -> None:
    one = write(tmp_path / "1", line(1), line(2, violations=["history: wrong"]))
    two = write(tmp_path / "2", line(1, short=True, counts={"fault pause": 5, "client Append": 1}))
    found = sums(one, two)
    assert found["seeds"] == "3 (0 calm)"
    assert found["simulated cluster-hours"] == "1.50"
    assert found["client operations"] == "21"
    assert (found["fault crash"], found["fault pause"]) == ("4", "5")
    assert found["seeds with violations"] == "1"


def test_a_copied_line_counts_once_and_a_cut_one_not_at_all(tmp_path: Path) -> None:
    one = write(tmp_path / "1", line(1), tail='{"seed": 2, "calm"')
    two = write(tmp_path / "2", line(1), line(1, cpu_s=11.0))
    assert sums(one, two)["seeds"] == "2 (0 calm)"


def test_no_ledger_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", write(tmp_path / "empty")):
        assert CliRunner().invoke(main, [str(path)]).exit_code == 1


def test_a_real_line_has_what_is_summed(tmp_path: Path) -> None:
    # One short world may be less than a hundredth of a cluster-hour, which is shown as none.
    path = write(tmp_path / "1", *(ledger_line(run_seed(seed, short=True)) for seed in (5, 6, 7)))
    assert read_ledger(path)[0]["short"] is True
    assert float(sums(path)["simulated cluster-hours"]) > 0
