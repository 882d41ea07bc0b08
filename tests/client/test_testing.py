"""The cluster for users' tests: real processes, which end whatever becomes of those tests."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from logservice_client import InvalidArgument, NotReady, SyncLogClient
from logservice_client.bounds import KEEPER_END_S, TEST_SEGMENT_BYTES
from logservice_client.testing import local_cluster
from logservice_client.testing import server_command as server_command_module
from logservice_client.testing.server_command import server_command
from logservice_wire.bounds import BLOCK_BYTES_MAX

from tests.client.test_documented import PAGE
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def running(directory: Path) -> list[int]:
    """Processes of stores whose configuration is in the directory."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
            state = (place / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if "store" in words and any(str(directory) in word for word in words) and state != "Z":
            found.append(int(place.name))
    return found


async def test_one_store_is_ready_and_gone_afterwards() -> None:
    with local_cluster(logs=2) as cluster:
        directory = cluster.directory
        assert len(running(directory)) == 1
        async with cluster.async_client() as client:
            assert await client.shard(2).append(b"a") == 1
        assert cluster.stores == ["store-1"]
        assert set(cluster.environment) == {"LOGSERVICE_ENDPOINTS"}
        assert (
            f"segment_bytes = {TEST_SEGMENT_BYTES}"
            in (directory / "store-1" / "store.toml").read_text()
        )
    assert not running(directory)
    assert not directory.exists()
    assert BLOCK_BYTES_MAX < TEST_SEGMENT_BYTES


def test_stores_are_killed_stopped_and_started_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_cluster(stores=3, tls=True, directory=tmp_path) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        with SyncLogClient.from_env() as client:
            log = client.shard(1)
            assert log.append(b"a") == 1
            first = cluster.leader()
            cluster.kill(first)
            assert log.append(b"b") == 2
            assert len(running(tmp_path)) == 2
            cluster.start(first)
            cluster.stop(cluster.leader())
            assert log.append(b"c") == 3
        with pytest.raises(NotReady, match="store-9"):
            cluster.kill("store-9")
    assert not running(tmp_path)
    assert (tmp_path / "store-1" / "store.log").exists(), "a directory that was named stays"


PROGRAM = """
import signal, sys, time
from logservice_client.testing import local_cluster
# What is started from a shell in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with local_cluster(stores=2, directory=sys.argv[1]) as cluster:
    print("ready", flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_inv_test_cluster_the_stores_end_with_the_tests(tmp_path: Path, number: int) -> None:
    """INV-TEST-CLUSTER."""
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": f"{ROOT / 'client'}:{ROOT}"},
    )
    assert tests.stdout is not None
    assert tests.stdout.readline() == b"ready\n"
    assert len(running(tmp_path)) == 2
    tests.send_signal(number)
    tests.wait()
    tests.stdout.close()
    wait_until(lambda: not running(tmp_path), KEEPER_END_S)


def test_inv_test_cluster_also_while_it_is_being_started(tmp_path: Path) -> None:
    """INV-TEST-CLUSTER."""
    place = tmp_path / "cluster"
    tests = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place)],
        stdout=subprocess.DEVNULL,
        env={"PYTHONPATH": f"{ROOT / 'client'}:{ROOT}"},
    )
    wait_until(lambda: running(place))
    tests.kill()
    tests.wait()
    wait_until(lambda: not keepers(place), KEEPER_END_S)
    assert not running(place)


def keepers(directory: Path) -> list[str]:
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = place.read_bytes().decode()
        except OSError:
            continue
        if "keeper.py" in text and str(directory) in text:
            found.append(text)
    return found


def test_a_child_that_was_forked_off_keeps_no_store_alive(tmp_path: Path) -> None:
    """INV-TEST-CLUSTER: it has the keeper's input open."""
    program = PROGRAM.replace(
        "time.sleep(3600)",
        "child = os.fork()\n"
        "    if child:\n"
        "        print(child, flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
        "    time.sleep(3600)",
    ).replace("import signal", "import os, signal", 1)
    tests = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": f"{ROOT / 'client'}:{ROOT}"},
    )
    assert tests.stdout is not None
    assert tests.stdout.readline() == b"ready\n"
    child = int(tests.stdout.readline())
    try:
        tests.wait()
        wait_until(lambda: not running(tmp_path), KEEPER_END_S)
        assert Path(f"/proc/{child}").exists(), "it had it open all the time"
    finally:
        subprocess.run(["kill", "-9", str(child)], check=True)
        tests.stdout.close()


def test_a_cluster_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="1<=x<=9"), local_cluster(stores=10, directory=tmp_path):
        pytest.fail("there is none")
    assert not keepers(tmp_path)


def test_which_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOGSERVICE_COMMAND", raising=False)
    assert server_command() == [sys.executable, "-m", "logservice"]
    monkeypatch.setattr(server_command_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(server_command_module.shutil, "which", lambda name: "/opt/bin/logservice")
    assert server_command() == ["/opt/bin/logservice"]
    monkeypatch.setattr(server_command_module.shutil, "which", lambda name: None)
    with pytest.raises(InvalidArgument, match="LOGSERVICE_COMMAND"):
        server_command()
    monkeypatch.setenv("LOGSERVICE_COMMAND", "'/opt/with space/python' -m logservice")
    assert server_command() == ["/opt/with space/python", "-m", "logservice"]


def test_the_server_of_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    command = shlex.join([sys.executable, "-X", "utf8", "-m", "logservice"])
    monkeypatch.setenv("LOGSERVICE_COMMAND", command)
    with local_cluster() as cluster, cluster.client() as client:
        (pid,) = running(cluster.directory)
        assert client.shard(1).append(b"a") == 1
        assert pid


def test_the_documented_fixtures(tmp_path: Path) -> None:
    """The page's files, as a user has them."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    assert [name for name, _ in blocks] == ["conftest.py", "test_orders.py"]
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-W",
            "error",
            "-o",
            "asyncio_default_fixture_loop_scope=function",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT / 'client'}:{ROOT}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
