"""What the bench's peers have in common, without any of them: requests as bytes, programs and their
lines, and what is said where a peer cannot be had.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from bench.load.closed_loop import Sample
from bench.peers import getting
from bench.peers.etcd import wire
from bench.peers.peer import Lost, Unavailable, Workload
from bench.peers.program import answer_of, read_sample, started
from tools.own_environment import ROOT

HEADER = b"\x08\x01\x10\xac\x02\x18\x96\x01"  # cluster_id 1, member_id 300, revision 150
WORKLOAD = Workload(callers=2, size=3)


def answered(rest: bytes = b"") -> bytes:
    return b"\x0a" + bytes([len(HEADER)]) + HEADER + rest


def program(tmp_path: Path, *lines: str) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text("\n".join(lines))
    return [sys.executable, str(file)]


def test_a_put_is_encoded_as_etcd_reads_it() -> None:
    assert wire.put_request(b"k", b"v" * 200) == b"\x0a\x01k\x12\xc8\x01" + b"v" * 200


def test_a_read_is_encoded_as_etcd_reads_it() -> None:
    assert wire.range_request(b"key") == b"\x0a\x03key"


def test_the_leader_is_the_member_that_names_itself() -> None:
    status = answered(b"\x12\x053.4.1\x18\x05")
    assert wire.is_leader(status + b"\x20\xac\x02")
    assert not wire.is_leader(status + b"\x20\xad\x02")
    assert not wire.is_leader(status)


def test_every_answer_tells_the_revision() -> None:
    assert wire.revision(answered()) == 150
    assert wire.revision(answered(b"\x20\x01")) == 150
    assert wire.revision(b"") == 0


def test_a_sample_outlives_its_line() -> None:
    sample = Sample(30, 2.5, (0.25, 0.25, 1.0, 12.345))
    assert answer_of(sample)["latencies_us"] == {250: 2, 1000: 1, 12_345: 1}
    assert read_sample(answer_of(sample)) == sample


def test_what_a_program_lost_or_failed_at_is_raised() -> None:
    with pytest.raises(Lost, match="two records"):
        read_sample({"lost": "two records"})
    with pytest.raises(RuntimeError, match="no leader"):
        read_sample({"error": "no leader"})


def test_a_program_measures_window_after_window(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        "from bench.load.closed_loop import Sample",
        "from bench.peers.peer import Lost",
        "from bench.peers.program import serve",
        "def measure(workload, warmup_s, seconds):",
        "    if workload.size > 3: raise Lost('a record')",
        "    if workload.callers > 2: raise ValueError('too many')",
        "    return Sample(workload.callers, seconds, (warmup_s,))",
        "serve(measure, lambda: {'leads': True})",
    )
    # The file's folder is what it imports from first, so the house is named.
    command = ["env", f"PYTHONPATH={ROOT}", *command]
    with started(command, tmp_path / "log", tmp_path) as running:
        for seconds in (1, 2):
            sample = asyncio.run(running.sample(WORKLOAD, warmup_s=0.5, seconds=seconds))
            assert sample == Sample(2, seconds, (0.5,))
        assert running.ask({}) == {"leads": True}
        with pytest.raises(Lost, match="a record"):
            asyncio.run(running.sample(Workload(1, 4), warmup_s=0, seconds=1))
        with pytest.raises(RuntimeError, match="ValueError: too many"):
            asyncio.run(running.sample(Workload(3, 3), warmup_s=0, seconds=1))
        assert running.ask({}) == {"leads": True}, "it went on"


def test_a_program_that_ends_is_quoted(tmp_path: Path) -> None:
    command = program(tmp_path, "import sys", "sys.exit('no such disk')")
    with (
        pytest.raises(RuntimeError, match="no such disk"),
        started(command, tmp_path / "driver.log", tmp_path),
    ):
        pytest.fail("it was never ready")


def test_a_program_that_says_nothing_is_ended(tmp_path: Path) -> None:
    command = program(
        tmp_path,
        "import time",
        "print('{\"ready\": true}', flush=True)",
        "time.sleep(1000)",
    )
    with started(command, tmp_path / "driver.log", tmp_path) as running:
        with pytest.raises(RuntimeError, match="driver ended"):
            running.ask({}, timeout_s=0.2)
        with pytest.raises(RuntimeError, match="driver ended"):
            running.ask({})


def test_a_program_ends_with_the_block(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    command = program(
        tmp_path,
        "import sys",
        "print('{\"ready\": true}', flush=True)",
        "sys.stdin.read()",
        f"open({str(file)!r}, 'w')",
    )
    with started(command, tmp_path / "log", tmp_path):
        assert not file.exists()
    assert file.exists()


def test_where_there_is_no_tool_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(getting, "_USUAL_GO", str(tmp_path / "go"))
    monkeypatch.setattr(getting, "ARTIFACTS", tmp_path / "artifacts")
    with pytest.raises(Unavailable, match="no Go here"):
        getting.built_with_go(tmp_path, ".", "peer")
    with pytest.raises(Unavailable, match="no javac here"):
        getting.built_with_maven(tmp_path, "peer")
    with pytest.raises(Unavailable, match="no etcd here, and no apt-get"):
        getting.from_debian("etcd-server", "etcd")


@pytest.mark.skipif(shutil.which("go") is None, reason="no Go here")
def test_what_the_tool_says_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getting, "ARTIFACTS", tmp_path / "artifacts")
    (tmp_path / "go.mod").write_text("module nothing\n")
    with pytest.raises(Unavailable, match=r"build failed: .*no Go files"):
        getting.built_with_go(tmp_path, ".", "peer")
