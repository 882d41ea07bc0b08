"""Real store processes read their configuration again: by the verb, by SIGHUP, and at bad times."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "c"
    with started_cluster(folder, stores=1, zones=1, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


@pytest.fixture
def file(cluster: LocalCluster) -> Iterator[Path]:
    """The configuration of store-1, which has its first content again afterwards."""
    path = cluster.directory / "store-1" / "store.toml"
    first = path.read_text()
    yield path
    path.write_text(first)
    os.kill(pid(cluster), signal.SIGHUP)


def pid(cluster: LocalCluster) -> int:
    found = cluster.pids()["store-1"]
    assert found is not None
    return found


def log_of(cluster: LocalCluster) -> str:
    return (cluster.directory / "store-1" / "store.log").read_text()


def edited(path: Path, key: str, value: str) -> None:
    """Replace the value of a key that is in the file."""
    text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", path.read_text(), count=1)
    assert count == 1
    path.write_text(text)


def test_the_verb_says_what_was_taken_up_and_labels_reach_the_cluster(
    ctl: Program, file: Path
) -> None:
    edited(file, "labels", '{ zone = "moved", rack = "7" }')
    edited(file, "segment_bytes", str(8 << 20))
    looked = ctl.json("store", "store-1", "reload", "--dry-run")
    assert isinstance(looked, dict)
    assert looked["would_take_up"] == ["store.labels"]
    before = ctl.json("store", "store-1")
    found = ctl.json("store", "store-1", "reload")
    assert isinstance(found, dict)
    assert (found["taken_up"], found["needs_restart"]) == (
        ["store.labels"],
        ["storage.segment_bytes"],
    )
    assert isinstance(before, dict)
    assert before["config"]["digest"] == looked["config"] != found["config"]

    def told() -> tuple[object, object]:
        config = ctl.json("store", "store-1")["config"]  # type: ignore[index,call-overload]
        return config["digest"], config.get("waiting")

    # The store makes its status anew once a second.
    wait_until(lambda: told() == (found["config"], ["storage.segment_bytes"]))
    wait_until(lambda: ctl.json("stores")[0]["zone"] == "moved")  # type: ignore[index,call-overload]
    assert "waiting for restart" in ctl("store", "store-1").out


def test_a_wrong_file_is_refused_with_the_path_and_the_store_goes_on(
    ctl: Program, cluster: LocalCluster, file: Path
) -> None:
    process = pid(cluster)
    edited(file, "labels", '{ zone = "never" }')
    file.write_text(file.read_text() + "\n[limits]\nread_bytes_maximum = 1\n")
    refused = ctl("store", "store-1", "reload")
    assert refused.code == exit_codes.USAGE
    assert "limits.read_bytes_maximum: unknown key" in refused.err
    file.write_text("[store")
    os.kill(process, signal.SIGHUP)
    wait_until(lambda: "nothing of it was taken up: not TOML" in log_of(cluster))
    assert pid(cluster) == process
    assert ctl("append", 1, "still here").code == 0
    assert ctl.json("stores")[0]["zone"] != "never"  # type: ignore[index,call-overload]
    assert ctl("store", "store-1", "--dry-run").code == exit_codes.USAGE
    assert ctl("store", "store-1", "reload", "debug").code == exit_codes.USAGE


def test_a_hundred_signals_leave_the_last_file_in_effect(
    ctl: Program, cluster: LocalCluster, file: Path
) -> None:
    process = pid(cluster)
    reloads = log_of(cluster).count("the configuration was read again and is")
    for number in range(100):
        edited(file, "labels", f'{{ zone = "z{number}" }}')
        os.kill(process, signal.SIGHUP)
    wait_until(lambda: ctl.json("stores")[0]["zone"] == "z99")  # type: ignore[index,call-overload]
    assert pid(cluster) == process
    done = log_of(cluster).count("the configuration was read again and is") - reloads
    assert 1 <= done <= 100
    assert ctl("append", 1, "still here").code == 0


def started(file: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "logservice", "store", "run", "-c", str(file), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_signals_during_start_and_stop_end_nothing_and_words_of_the_command_line_win(
    tmp_path: Path,
) -> None:
    """The signals begin as soon as the program has its handler, and go on until it has ended."""
    made = LocalCluster.create(tmp_path / "c", stores=1, settings=SETTINGS)
    file = made.directory / "store-1" / "store.toml"
    with started(file, "--set", "logging.level=info", "--set", "store.labels={zone='mine'}") as run:
        assert run.stderr is not None
        seen = []
        try:
            wait_until(lambda: _handles_hang_up(run.pid))
            file.write_text(file.read_text() + '\n[logging]\nlevel = "error"\n')
            os.kill(run.pid, signal.SIGHUP)
            for line in run.stderr:
                seen.append(line)
                os.kill(run.pid, signal.SIGHUP)
                if "the configuration was read again and is" in line:
                    break
            assert "taken up: nothing; needs a restart: nothing" in seen[-1]
            run.send_signal(signal.SIGTERM)
            while run.poll() is None:
                os.kill(run.pid, signal.SIGHUP)
                try:
                    run.wait(0.01)
                except subprocess.TimeoutExpired:
                    continue
            seen += run.stderr.readlines()
        finally:
            run.kill()
    assert run.returncode == exit_codes.OK, seen
    assert "store-1 has stopped" in seen[-1]


def _handles_hang_up(process: int) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    [caught] = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGHUP - 1) & 1)


def test_the_page_of_the_store_names_the_configuration(ctl: Program, cluster: LocalCluster) -> None:
    shown = ctl("store", "store-1", "-o", "json")
    assert re.fullmatch("[0-9a-f]{16}", json.loads(shown.out)["config"]["digest"])
