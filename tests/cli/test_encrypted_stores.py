"""Real stores with encrypted segments: killed while the key is rotated, and without a key."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.errors import LogServiceError

from logservice.cli.processes.local_cluster import ClusterFailed, LocalCluster
from logservice.cli.shell import exit_codes
from logservice.sealing_keys import key_tag
from tests.cli.killed_restores import start
from tests.local_stores import kill_stores
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

MARKER = b"only for those who have the key "
KEYS = {name: base64.b64encode(os.urandom(32)).decode() for name in ("k1", "k2", "k3")}


class One:
    """A cluster of one store, and the ring of its keys."""

    def __init__(self, directory: Path) -> None:
        self.ring = directory / "keys.toml"
        self.cluster = LocalCluster.create(
            directory / "c",
            stores=1,
            settings={
                "storage": {
                    "segment_bytes": 1 << 20,
                    "ballast_bytes": 0,
                    "keys_file": str(self.ring),
                    "keys_interval_s": 0.2,
                },
                "raft": {"tick_ms": 20},
                "hakeeper": {"heartbeat_interval_s": 0.2, "store_timeout_s": 300},
                "truncation": {"interval_s": 0.5},
            },
        )

    @property
    def data(self) -> Path:
        return self.cluster.process("store-1").directory / "data"

    def keys(self, active: str, *names: str) -> None:
        """Replace the ring as a person would: by a whole file."""
        lines = [f'active = "{active}"', "[keys]", *(f'{one} = "{KEYS[one]}"' for one in names)]
        fresh = self.ring.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text("\n".join(lines))
        fresh.replace(self.ring)

    def status(self) -> dict[str, Any]:
        admin = self.cluster.stores["store-1"].admin
        with urllib.request.urlopen(f"http://{admin}/api/v1/store", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def key_bytes(self) -> dict[str, int]:
        found: dict[str, int] = self.status()["directories"][0]["key_bytes"]
        return found

    def alarms(self) -> str:
        return " ".join(self.status()["alarms"])

    def program(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", start("main"), *map(str, arguments)],
            env={"PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
        )

    def client(self) -> SyncLogClient:
        return SyncLogClient(self.cluster.endpoints())


@pytest.fixture
def one(tmp_path: Path) -> Iterator[One]:
    made = One(tmp_path)
    made.keys("k1", "k1")
    try:
        yield made
    finally:
        kill_stores(made.cluster)


class Load:
    """Appends records one by one until it is stopped, and remembers what was acknowledged."""

    def __init__(self, one: One) -> None:
        self._one = one
        self._over = threading.Event()
        self.acked: list[tuple[int, bytes]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._one.client() as client:
            shard, number = client.shard(1), 0
            while not self._over.is_set():
                number += 1
                record = MARKER + b"%d " % number * 200
                try:
                    self.acked.append((shard.append(record), record))
                except LogServiceError:
                    time.sleep(0.05)  # the store is away


def records_of(one: One) -> dict[int, bytes]:
    done = one.program("logdb", "records", one.data, "1", "--keys-file", one.ring, "-o", "json")
    assert done.returncode == exit_codes.OK, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    return {row["lsn"]: row["record"].encode() for row in rows}


@pytest.mark.long
def test_a_store_is_killed_while_its_key_is_rotated_under_load(one: One) -> None:
    cluster = one.cluster
    cluster.up(60)
    wait_until(lambda: one.key_bytes().get("k1", 0) and not one.alarms())
    load = Load(one)
    try:
        for active in ("k2", "k3", "k1", "k2", "k3"):
            before = len(load.acked)
            wait_until(lambda before=before: len(load.acked) > before + 20)  # type: ignore[misc]
            one.keys(active, *KEYS)
            if active != "k1":
                wait_until(lambda active=active: active in one.key_bytes())  # type: ignore[misc]
            cluster.kill("store-1")
            cluster.start("store-1")
            cluster.wait_ready(60)
    finally:
        load.stop()
    assert len(load.acked) > 100
    assert {"k1", "k2", "k3"} >= set(one.key_bytes()) - {"plain"} > {"k3"}
    cluster.stop("store-1")
    found = records_of(one)
    assert {lsn: found.get(lsn) for lsn, _ in load.acked} == dict(load.acked)
    assert not [path for path in one.data.rglob("*.segment") if MARKER in path.read_bytes()]
    without = one.program("logdb", "records", one.data, "1")
    assert without.returncode not in (exit_codes.OK, exit_codes.NEGATIVE)
    assert "entries are encrypted" in without.stderr
    assert MARKER.decode() not in without.stdout
    check = one.program("logdb", "check", one.data)
    assert check.returncode == exit_codes.OK, check.stdout
    check = one.program("logdb", "check", one.data, "--keys-file", one.ring)
    assert check.returncode == exit_codes.OK, check.stdout
    assert "k3" in one.program("logdb", "stats", one.data, "--keys-file", one.ring).stdout


@pytest.mark.long
def test_an_old_key_goes_when_its_segments_are_gone_and_not_before(one: One) -> None:
    cluster = one.cluster
    cluster.up(60)
    wait_until(lambda: one.key_bytes().get("k1", 0))
    with one.client() as client:
        shard = client.shard(1)
        for number in range(40):
            # So much that garbage collection leaves it where it is.
            shard.append(MARKER + b"%d " % number * 5_000)
        one.keys("k2", "k1", "k2")
        wait_until(lambda: "k2" in one.key_bytes())
        one.keys("k2", "k2")
        wait_until(lambda: "segments need the key k1" in one.alarms())
        shard.append(b"it goes on with the ring that it has")
        cluster.stop("store-1")
        cluster.start("store-1")
        wait_until(lambda: cluster.pids()["store-1"] is None)
        said = cluster.process("store-1").last_lines()
        assert re.search(rf"the key is not in the ring: tag {key_tag('k1'):08x}", said), said
        with pytest.raises(ClusterFailed):
            cluster.wait_ready(1)
        one.keys("k2", "k1", "k2")
        cluster.start("store-1")
        cluster.wait_ready(60)
        wait_until(lambda: not one.alarms())
        last = shard.append(b"more")
        shard.truncate(last)
        wait_until(lambda: set(one.key_bytes()) == {"k2"})
        one.keys("k2", "k2")
        cluster.stop("store-1")
        cluster.start("store-1")
        cluster.wait_ready(60)
        assert shard.append(b"without the old key") == last + 1
