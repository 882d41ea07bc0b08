"""The doctor and `top` on a real cluster in which one thing after the other goes wrong."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(
        tmp_path_factory.mktemp("cluster") / "c", shards=3, settings=SETTINGS
    ) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


def codes(ctl: Program) -> set[str]:
    result = ctl("doctor", "-o", "json")
    found = json.loads(result.out)
    nothing_seen = any(finding["code"] == "nobody_answers" for finding in found)
    bad = any(finding["severity"] != "notice" for finding in found)
    expected = exit_codes.NEGATIVE if bad else exit_codes.OK
    assert result.code == (exit_codes.UNAVAILABLE if nothing_seen else expected), result.err
    # The machine of the tests may be busy. Whether its disk is slow is not tested here.
    return {finding["code"] for finding in found} - {"slow_disk"}


def until(ctl: Program, wanted: set[str]) -> None:
    deadline = time.monotonic() + 90
    while codes(ctl) != wanted:
        assert time.monotonic() < deadline, (codes(ctl), wanted)
        time.sleep(0.2)


def unready(cluster: LocalCluster, store: str) -> set[tuple[str, int]]:
    """The reasons that `/readyz` of a store gives, each with the shard."""
    try:
        answer = urllib.request.urlopen(f"http://{cluster.stores[store].admin}/readyz", timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        found = json.load(answer)
    assert (answer.status == 200) == found["ready"] == (not found["reasons"])
    assert answer.status in (200, 503)
    return {(reason["code"], reason["shard"]) for reason in found["reasons"]}


def test_a_healthy_cluster(ctl: Program, cluster: LocalCluster) -> None:
    until(ctl, set())
    wait_until(lambda: "3 of 3 stores ready" in ctl("doctor").out)
    wait_until(lambda: not any(unready(cluster, store) for store in cluster.stores))


def test_a_forgotten_hold(ctl: Program) -> None:
    for number in range(5):
        ctl("append", 1, f"record-{number}")
    ctl("hold", "set", 1, "backup", 2)
    ctl("truncate", 1, 4)
    until(ctl, {"hold"})
    shown = ctl("doctor").out
    assert "logctl hold release 1 backup" in shown
    assert ctl("hold", "release", 1, "backup").code == 0
    ctl("truncate", 1, 4)
    until(ctl, set())


def test_a_store_down_then_a_lost_quorum_then_well_again(
    ctl: Program, cluster: LocalCluster
) -> None:
    cluster.kill("store-3")
    until(ctl, {"store_down"})
    cluster.kill("store-2")
    until(ctl, {"store_down", "hakeeper_silent", "lost_quorum"})
    shown = ctl("doctor").out
    assert shown.startswith("BROKEN")
    assert "store-2, store-3" in shown
    wanted = {("no_leader", shard) for shard in range(4)}
    deadline = time.monotonic() + 90
    while (found := unready(cluster, "store-1")) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)
    cluster.kill("store-1")
    until(ctl, {"nobody_answers"})
    for store in cluster.stores:
        cluster.start(store)
    until(ctl, set())


def test_an_endpoint_of_nobody(ctl: Program, cluster: LocalCluster) -> None:
    wrong = ",".join([*cluster.endpoints(), "127.0.0.1:1"])

    def told_and_not_bad() -> bool:
        result = ctl("--endpoints", wrong, "doctor", "--fail-on", "danger", "-o", "json")
        assert "unknown_endpoint" in result.out
        return not result.code  # there are more findings while a store is late for a moment

    wait_until(told_and_not_bad)
    assert ctl("--endpoints", wrong, "doctor").code == exit_codes.NEGATIVE, "it is a warning"


def test_top(ctl: Program) -> None:
    found = ctl.json("top")
    assert isinstance(found, dict)
    assert set(found) == {
        "cluster",
        "stores",
        "shards",
        "operators",
        "services",
        "tn_shards",
        "feed",
    }
    shown = ctl("top", "--count", 2, "--interval", 0.5)
    assert shown.code == 0
    assert "store-1" in shown.out


def test_no_endpoints(capfd: pytest.CaptureFixture[str], cluster: LocalCluster) -> None:
    program = Program(logctl, cluster, capfd)
    for command in ("doctor", "top"):
        assert program("--endpoints", "", command).code == 2
