"""The causes of the doctor's findings: disks, files, versions and addresses of real stores are made
wrong, one at a time, and put right again.

These causes are missing here, because they take longer than seconds or more than one machine: a
clock that is off, repairs that take minutes, a follower ten thousand entries behind, a store whose
loop is stuck.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.logctl import logctl
from logservice.cli.processes.local_cluster import LocalCluster
from tests.cli.test_processes import Program
from tests.local_stores import kill_stores, started_cluster
from tests.slow_disk import slow_syncs
from tests.tmpfs import fill, mounted
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes]

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 1 << 20, "ballast_bytes": 0, "reserve_bytes": 2 << 20},
    "raft": {"tick_ms": 20},
    "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 3},
}
ILL = "store-3"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with started_cluster(tmp_path_factory.mktemp("cluster") / "c", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def ctl(cluster: LocalCluster, capfd: pytest.CaptureFixture[str]) -> Program:
    return Program(logctl, cluster, capfd)


def codes(ctl: Program, *options: object) -> set[str]:
    result = ctl(*options, "doctor", "-o", "json")
    return {finding["code"] for finding in json.loads(result.out)}


def until(ctl: Program, wanted: set[str], *options: object) -> None:
    """Wait for exactly these findings. A slow disk does not count, because the machine of the tests
    may be busy.
    """
    deadline = time.monotonic() + 90
    while (found := codes(ctl, *options)) - {"slow_disk"} != wanted - {"slow_disk"} or (
        "slow_disk" in wanted and "slow_disk" not in found
    ):
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.2)


@contextlib.contextmanager
def configured(cluster: LocalCluster, ctl: Program, old: str, new: str) -> Iterator[None]:
    """Run the ill store with another configuration, and afterwards with its own again."""
    path = cluster.process(ILL).config_path
    text = path.read_text()
    changed = re.sub(old, new, text, count=1, flags=re.MULTILINE)
    assert changed != text
    cluster.stop(ILL)
    path.write_text(changed)
    try:
        cluster.start(ILL)
        yield
    finally:
        cluster.stop(ILL)
        path.write_text(text)
        cluster.start(ILL)
        until(ctl, set())


def test_no_store_to_go_to(cluster: LocalCluster, ctl: Program) -> None:
    cluster.kill(ILL)
    until(ctl, {"store_down", "flags"})
    assert ctl("doctor").code == 1
    cluster.start(ILL)
    until(ctl, set())


def test_an_address_that_only_stores_can_use(cluster: LocalCluster, ctl: Program) -> None:
    with configured(cluster, ctl, r"^\[listen\]$", '[listen]\nadvertise_client = "127.0.0.1:1"'):
        # Its own port is not among the endpoints: a client that reaches it there needs no other.
        others = [place.client for name, place in cluster.stores.items() if name != ILL]
        until(ctl, {"unreachable_from_here"}, "--endpoints", ",".join(others))


def test_two_versions(
    cluster: LocalCluster, ctl: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "logservice-9.9.9.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: logservice\nVersion: 9.9.9\n")
    cluster.stop(ILL)
    with monkeypatch.context() as patch:
        paths = [str(tmp_path), *(entry for entry in sys.path if entry)]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        cluster.start(ILL)
    until(ctl, {"versions"})
    assert "9.9.9" in ctl("doctor").out
    cluster.stop(ILL)
    cluster.start(ILL)
    until(ctl, set())


@pytest.fixture
def small(cluster: LocalCluster, ctl: Program) -> Iterator[Path]:
    """The second data directory of the ill store, with a disk of its own."""
    path = cluster.process(ILL).directory / "small"
    directories = 'data_directories = ["data", "small"]'
    with (
        mounted([path], 16 << 20),
        configured(cluster, ctl, r"^data_directories = .*$", directories),
    ):
        until(ctl, set())
        yield path


def test_a_full_disk(ctl: Program, small: Path) -> None:
    foreign = fill(small, 0)
    until(ctl, {"disk_full"})  # HAKeeper's flag is not a second finding
    foreign.unlink()
    until(ctl, set())


def test_a_disk_that_cannot_be_written(cluster: LocalCluster, ctl: Program, small: Path) -> None:
    cluster.stop(ILL)
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    cluster.start(ILL)
    until(ctl, {"directory_failed"})
    assert "small" in ctl("doctor").out


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; `make strace` installs it"
)
def test_a_slow_disk(cluster: LocalCluster, ctl: Program) -> None:
    pid = cluster.pids()[ILL]
    with slow_syncs(pid, "delay_exit=150000") as tracer:
        deadline = time.monotonic() + 90
        while "slow_disk" not in codes(ctl):
            tracer.skip_if_ended()
            assert time.monotonic() < deadline
            ctl("append", 1, "something to sync")
    # The doctor looks at the newest groups, and a new process has none of the slow ones.
    cluster.stop(ILL)
    cluster.start(ILL)
    until(ctl, set())


def where(cluster: LocalCluster, record: bytes) -> tuple[Path, int] | None:
    """The newest place of a record on the disk of the ill store."""
    segments = cluster.process(ILL).directory.glob("data/segments/*.segment")
    for path in sorted(segments, reverse=True):
        at = path.read_bytes().rfind(record)
        if at >= 0:
            return path, at
    return None


def test_damaged_data(cluster: LocalCluster, ctl: Program) -> None:
    """The store cannot repair its damage alone; with the others it repairs the damage in place."""
    for number in range(20):
        assert ctl("append", 1, f"record {number}").code == 0
    wait_until(lambda: where(cluster, b"record 19") is not None)  # the other stores acked it, too
    # If the stop takes long, the store is killed. Damage in its newest group would then be taken
    # for a torn write, so another group follows.
    assert ctl("append", 1, "behind it").code == 0
    wait_until(lambda: where(cluster, b"behind it") is not None)
    cluster.down()
    found = where(cluster, b"record 19")
    assert found is not None
    path, at = found
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    cluster.start(ILL)
    until(ctl, {"store_down", "hakeeper_silent", "lost_quorum", "halted"})
    assert "shard 1" in ctl("doctor").out
    for store in cluster.stores:
        if store != ILL:
            cluster.start(store)
    until(ctl, set())
    assert b"record 19" in ctl("read", 1).out.encode()


def test_a_certificate_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cluster = LocalCluster.create(
        tmp_path / "c",
        stores=1,
        tls=True,
        settings={**SETTINGS, "tls": {"reload_interval_s": 0.2}},
    )
    try:
        cluster.up(60)
        ca, certificate, key = cluster.client_files()
        shown = ("--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key)
        ctl = Program(logctl, cluster, capfd)
        until(ctl, set(), *shown)
        path = cluster.directory / "certs" / "stores" / "store-1" / "client-plane.pem"
        good = path.read_bytes()
        path.write_bytes(b"half a certif")
        until(ctl, {"alarm"}, *shown)
        path.write_bytes(good)
        until(ctl, set(), *shown)
    finally:
        kill_stores(cluster)
