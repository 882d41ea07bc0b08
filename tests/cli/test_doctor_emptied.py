"""Two of three real stores come back with empty directories: what is a person told?

No store answers for HAKeeper then, and none ever will by itself. Each store knows what is wrong
with itself, so the doctor has to ask all of them, and nothing it says may be older than it admits.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from logservice_client import ShardNotFound, SyncLogClient

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.test_doctor import unready
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes]

EMPTIED = ("store-2", "store-3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    running = LocalCluster.create(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS)
    try:
        running.up(60)
        with SyncLogClient(running.endpoints()) as client:
            # What the stores remember later is what HAKeeper has been told by then.
            wait_until(lambda: reported(client) == 3)
        for name in EMPTIED:
            running.stop(name)
            shutil.rmtree(running.process(name).directory / "data")
        for name in EMPTIED:
            running.start(name)
        yield running
    finally:
        kill_stores(running)


def reported(client: SyncLogClient) -> int:
    """Replicas of the first log that HAKeeper was told of."""
    try:
        info = client.hakeeper.shard_info(1, fresh=True, timeout=60)
    except ShardNotFound:
        return 0
    return sum(one.reported for one in info.replicas)


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


def until_refused(cluster: LocalCluster) -> None:
    def refused(name: str) -> bool:
        try:
            return ("shard_0_refused", -1) in unready(cluster, name)
        except urllib.error.URLError:
            return False  # its admin port is not open yet

    wait_until(lambda: all(map(refused, EMPTIED)))


def test_an_emptied_store_is_not_ready(cluster: LocalCluster) -> None:
    until_refused(cluster)


def told(ctl: Program) -> dict[str, dict[str, str]]:
    found = json.loads(ctl("doctor", "-o", "json").out)
    return {finding["code"]: finding for finding in found}


def test_the_doctor_says_what_the_stores_say_and_puts_that_first(
    ctl: Program, cluster: LocalCluster
) -> None:
    until_refused(cluster)
    deadline = time.monotonic() + 60
    while "majority_gone" not in (found := told(ctl)):
        assert time.monotonic() < deadline, found
    assert list(found)[:3] == ["shard_0_refused", "hakeeper_silent", "majority_gone"]
    assert (
        "store-2, store-3: shard 0 was bootstrapped with another"
        in found["shard_0_refused"]["what"]
    )
    assert "without a replica that counts: store-2, store-3" in found["majority_gone"]["what"]
    assert "no_leader" not in found
    assert "lost_quorum" not in found
    silent = found["hakeeper_silent"]["what"]
    assert "answered" in silent
    assert " 0 s ago" not in silent


def test_the_doctor_needs_no_store_that_ever_heard_hakeeper(
    ctl: Program, cluster: LocalCluster
) -> None:
    """Only the emptied stores are asked. Then the third store's process has begun again, too."""
    until_refused(cluster)
    emptied = ",".join(cluster.stores[name].client for name in EMPTIED)
    result = ctl("--endpoints", emptied, "doctor", "-o", "json")
    codes = {finding["code"] for finding in json.loads(result.out)}
    assert result.code == 1
    assert {"shard_0_refused", "hakeeper_silent", "majority_gone"} <= codes
    cluster.stop("store-1")
    cluster.start("store-1")
    deadline = time.monotonic() + 60
    while "that started" not in told(ctl).get("hakeeper_silent", {"what": ""})["what"]:
        assert time.monotonic() < deadline, told(ctl)


@pytest.mark.parametrize("command", ["stores", "shards", "repairs"])
def test_lists_are_what_the_stores_know_and_say_so(
    ctl: Program, cluster: LocalCluster, command: str
) -> None:
    until_refused(cluster)
    result: SimpleNamespace = ctl("--timeout", 6, command, "-o", "json")
    assert result.code == 4
    assert "HAKeeper does not answer" in result.err
    assert "logctl doctor" in result.err
    rows = json.loads(result.out)
    assert all("stale_s" in row for row in rows)
    if command == "stores":
        assert [row["store"] for row in rows] == list(cluster.stores)
    if command == "shards":
        assert [(row["shard"], row["leader"], row["running"]) for row in rows] == [
            (0, None, 1),
            (1, None, 1),
        ]
