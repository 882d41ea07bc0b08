"""The sums come from what pytest itself reports, and a run without tests is never a good one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.count_tests import Counts, main, read

ROOT = Path(__file__).resolve().parents[2]

SUITE = """
import pytest

@pytest.fixture
def broken_end():
    yield
    raise RuntimeError("at the end")

@pytest.fixture
def broken_start():
    raise RuntimeError("at the start")

@pytest.mark.parametrize("n", range(5))
def test_passes(n): pass

def test_fails(): assert False
def test_fails_twice(broken_end): assert False
def test_fails_at_its_end(broken_end): pass
def test_cannot_start(broken_start): pass
def test_is_skipped(): pytest.skip("no")
def test_fails_as_expected(): pytest.xfail("as expected")
"""


def run_pytest(tests: Path, counts: Path, *more: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tests)]
    command += ["-p", "no:cacheprovider", "-p", "tools.count_tests", f"--count-tests={counts}"]
    # The options of the outer run are not for this one.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        [*command, *more, str(tests)], cwd=ROOT, env=own, stdout=subprocess.DEVNULL, check=False
    )


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_each_test_counts_once_wherever_it_failed(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_all_kinds.py").write_text(SUITE)
    (suite / "test_broken.py").write_text("import nothing_of_this_name")
    (suite / "test_left_out.py").write_text(
        "import pytest; pytest.skip('no', allow_module_level=True)"
    )
    run_pytest(suite, tmp_path / "test", *processes, "--continue-on-collection-errors")
    assert read(tmp_path / "test") == Counts(passed=5, failed=5, skipped=3)


def test_sessions_of_a_lane_add_up(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_one.py").write_text("def test_it(): pass")
    run_pytest(suite, tmp_path / "test")
    run_pytest(suite, tmp_path / "test")
    run_pytest(suite, tmp_path / "test", "-k", "nothing_of_this_name")
    assert read(tmp_path / "test") == Counts(passed=2)


def lane(folder: Path, name: str, passed: int, failed: int, skipped: int) -> None:
    (folder / name).write_text(
        f'{{"passed": {passed}, "failed": {failed}, "skipped": {skipped}}}\n'
    )


def test_lanes_add_up_and_the_sums_are_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane(tmp_path, "test", 40, 1, 2)
    lane(tmp_path, "ui", 3, 0, 0)
    lane(tmp_path, "docker", 0, 0, 7)
    assert main([str(tmp_path), "--required", "test"]) == 0
    assert capsys.readouterr().out == "tests: 43 passed, 1 failed, 9 skipped\n"


@pytest.mark.parametrize("skipped", [0, 4])
def test_a_required_lane_that_executed_nothing_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], skipped: int
) -> None:
    lane(tmp_path, "test", 0, 0, skipped)
    lane(tmp_path, "ui", 3, 0, 0)
    assert main([str(tmp_path), "--required", "test"]) == 1
    assert capsys.readouterr().out == (
        f"lane test executed no test\ntests: 3 passed, 0 failed, {skipped} skipped\n"
    )


def test_a_required_lane_that_left_no_counts_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path), "--required", "test"]) == 1
    assert "lane test executed no test" in capsys.readouterr().out


def test_ci_counts_in_every_lane_and_ends_with_the_sums() -> None:
    run = (ROOT / ".ci/run").read_text()
    assert 'PYTEST_ADDOPTS="-p tools.count_tests --count-tests=$counts/$name" "$@"' in run
    *_, count, last = run.rstrip().splitlines()
    assert count.endswith('tools.count_tests "$counts" --required test || failed=1')
    assert last == 'exit "$failed"'
