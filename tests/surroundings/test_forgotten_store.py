"""A store that HAKeeper was begun with is replaced by another one and forgotten: nothing asks for
it, although every configuration file still names it.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.cli.shell import exit_codes
from tests.cli.test_processes import SETTINGS, Program
from tests.local_stores import started_cluster
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

GOES = "store-3"
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


def consoles(cluster: LocalCluster) -> list[dict[str, Any]]:
    """What the consoles of all stores find."""
    found = []
    for place in cluster.stores.values():
        with urllib.request.urlopen(f"http://{place.admin}/api/v1/findings", timeout=60) as answer:
            found += json.load(answer)["rows"]
    return found


def until_nothing(look: Callable[[], object]) -> None:
    """Wait until what is looked for is empty; else say what it was."""
    deadline_s = time.monotonic() + LIMIT_S
    while found := look():
        assert time.monotonic() < deadline_s, found
        time.sleep(0.2)


def doctor(ctl: Program) -> tuple[int, list[dict[str, Any]]]:
    """How the doctor ended, and what it found."""
    found = ctl("doctor", "-o", "json")
    return found.code, json.loads(found.out)


def unclean(ctl: Program) -> object:
    """What the doctor finds; its exit code agrees."""
    code, found = doctor(ctl)
    assert (code == exit_codes.OK) == all(one["severity"] == "notice" for one in found)
    return found


def test_nothing_asks_for_a_store_of_the_beginning_that_was_forgotten(
    ctl: Program, cluster: LocalCluster
) -> None:
    until_nothing(lambda: unclean(ctl))
    named = (cluster.directory / "store-1" / "store.toml").read_text()
    assert GOES in named, "it stands in bootstrap.hakeeper_members"
    cluster.add("store-4")
    cluster.admit("store-4")
    wait_until(lambda: "store-4" in ctl("stores", "-o", "json").out, LIMIT_S)
    assert ctl("stores", "drain", GOES, "--wait", "4m").code == exit_codes.OK
    cluster.stop(GOES)
    wait_until(lambda: GOES in str(doctor(ctl)), LIMIT_S)
    assert doctor(ctl)[0] == exit_codes.NEGATIVE, "a finding is no success"
    assert ctl("stores", "forget", GOES).code == exit_codes.OK
    cluster.forget(GOES)  # of the cluster on this machine: its endpoint is not asked again
    until_nothing(lambda: unclean(ctl))
    until_nothing(lambda: consoles(cluster))
    # What a store knows after a restart it has from its own files, and from its configuration.
    for store in ("store-1", "store-2"):
        assert GOES in Path(cluster.directory / store / "store.toml").read_text()
        cluster.stop(store)
        cluster.start(store)
        cluster.wait_ready(120)
    until_nothing(lambda: unclean(ctl))
    until_nothing(lambda: consoles(cluster))


def test_the_exit_code_tells_fine_from_a_finding_and_from_no_look(
    ctl: Program, cluster: LocalCluster
) -> None:
    until_nothing(lambda: unclean(ctl))
    cluster.kill("store-4")
    wait_until(lambda: doctor(ctl)[0] == exit_codes.NEGATIVE, LIMIT_S)
    cluster.kill_all()
    code, [only] = doctor(ctl)
    assert (code, only["code"]) == (exit_codes.UNAVAILABLE, "nobody_answers")
