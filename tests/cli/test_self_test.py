"""`logctl self-test` on real stores: what it shows, what it leaves, a disk that hangs meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import Busy, LogServiceError
from logservice_wire.rpcs import MEASURE
from logservice_wire.v1 import admin_pb2

from logservice.bounds import SELF_TEST_DISK_S
from logservice.cli.ctl.direct_call import call_store
from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.nodehost.measuring.disk import FILE_NAME
from tests.cli.test_processes import Program
from tests.local_stores import started_cluster
from tests.slow_disk import slow_syncs
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "reserve_bytes": 0},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 4},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", shards=2, settings=SETTINGS
    ) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


def file_of(cluster: LocalCluster, store: str) -> Path:
    return cluster.process(store).directory / "data" / FILE_NAME


def test_every_store_every_disk_and_every_way(cluster: LocalCluster, ctl: Program) -> None:
    result = ctl("self-test", "-o", "json")
    rows = [json.loads(line) for line in result.out.splitlines()]
    rows = rows[0] if len(rows) == 1 and isinstance(rows[0], list) else rows
    assert result.code == (1 if any(row["verdict"] == "bad" for row in rows) else 0)
    assert "this adds load" in result.err
    asked = {(row["store"], row["what"], row["target"]) for row in rows}
    stores = ("store-1", "store-2", "store-3")
    assert asked == {
        *((one, "machine", "") for one in stores),
        *((one, "disk", str(file_of(cluster, one).parent)) for one in stores),
        *((one, "network", other) for one in stores for other in stores if one != other),
    }
    figures = Counter(row["figure"] for row in rows)
    for name in ("fdatasync p50", "fdatasync p99", "sequential write", "sequential read", "free"):
        assert figures[name] == 3, name
    for name in ("round trip p99", "throughput", "clock offset"):
        assert figures[name] == 6, name
    assert figures["timer late p99"] == figures["open files"] == 3
    assert all(row["verdict"] in ("", "ok", "slow", "bad") for row in rows)
    assert not any(file_of(cluster, one).exists() for one in stores)


def test_one_store_as_a_table(cluster: LocalCluster, ctl: Program) -> None:
    result = ctl("self-test", "store-2", "--no-network")
    assert "fdatasync p99" in result.out
    assert "store-1" not in result.out
    assert "1/2 store-2: machine" in result.err
    assert ctl("self-test", "nowhere").code not in (0, 1)


def test_who_interrupts_it_ends_it(cluster: LocalCluster) -> None:
    """The file is gone, and the store measures for the next one."""
    words = [str(Path(sys.executable).with_name("logctl")), "self-test", "store-1", "--no-network"]
    environment = {**os.environ, "LOGSERVICE_ENDPOINTS": ",".join(cluster.endpoints())}
    path = file_of(cluster, "store-1")
    for _ in range(5):
        command = subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda command=command: path.exists() or command.poll() is not None)  # type: ignore[misc]
        if path.exists():
            break
        command.wait()
    command.send_signal(signal.SIGINT)
    assert command.wait(30) != 0
    wait_until(lambda: not path.exists())
    wait_until(lambda: measured(cluster, "store-1", "machine", "") != [])


def measured(cluster: LocalCluster, store: str, what: str, target: str) -> list[admin_pb2.Figure]:
    request = admin_pb2.MeasureRequest(what=what, target=target)
    try:
        answer = call_store(cluster.stores[store].client, MEASURE, request, SELF_TEST_DISK_S + 10)
    except Busy:
        return []
    return list(answer.figures)


def test_hundreds_at_once(cluster: LocalCluster) -> None:
    """One is served at a time, the others are told so, and appends go on."""
    address = cluster.stores["store-1"].client
    target = str(file_of(cluster, "store-1").parent)
    ended: Counter[str] = Counter()

    def ask() -> None:
        request = admin_pb2.MeasureRequest(what="disk", target=target)
        try:
            call_store(address, MEASURE, request, SELF_TEST_DISK_S + 10)
        except LogServiceError as error:
            ended[error.reason.value] += 1
        else:
            ended["served"] += 1

    threads = [threading.Thread(target=ask) for _ in range(200)]
    with SyncLogClient(cluster.endpoints()) as client:
        for thread in threads:
            thread.start()
        for number in range(20):
            client.shard(1).append(b"%d" % number, timeout=60)
        for thread in threads:
            thread.join()
    assert ended["served"] >= 1
    assert ended["BUSY"] >= 1
    assert ended["served"] + ended["BUSY"] == 200, ended
    assert not file_of(cluster, "store-1").exists()


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
)
def test_a_disk_that_hangs(cluster: LocalCluster) -> None:
    """INV-MEASURE-3: the store goes on, and says that its disk is stuck."""
    pid = cluster.pids()["store-3"]
    assert pid is not None
    target = str(file_of(cluster, "store-3").parent)
    with SyncLogClient(cluster.endpoints()) as client:
        with slow_syncs(pid, "delay_enter=40000000") as tracer:
            time.sleep(1.0)  # strace attaches
            tracer.skip_if_ended()
            found = measured(cluster, "store-3", "disk", target)
            assert [one.name for one in found] == ["answers"], found
            assert "stuck" in found[0].text
            for number in range(10):
                client.shard(1).append(b"%d" % number, timeout=60)
            # Ticks, heartbeats and calls of the stuck store go on.
            assert measured(cluster, "store-3", "machine", "")
            assert "earlier measurement" in measured(cluster, "store-3", "disk", target)[0].text
        wait_until(lambda: not file_of(cluster, "store-3").exists(), 120)
        assert cluster.pids()["store-3"] == pid
        wait_until(lambda: len(measured(cluster, "store-3", "disk", target)) > 3, 120)


def test_a_kill_leaves_no_file_behind_the_next_start(cluster: LocalCluster) -> None:
    """INV-MEASURE-1"""
    path = file_of(cluster, "store-2")
    path.write_bytes(bytes(1 << 20))
    cluster.kill("store-2")
    cluster.start("store-2")
    wait_until(lambda: not path.exists())
    with SyncLogClient(cluster.endpoints()) as client:
        client.shard(1).append(b"on", timeout=60)
