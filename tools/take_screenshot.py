"""A picture of the page `/ui`: a local cluster with some data in it and a service of the
database, seen by a headless Chromium.

The tests do not take it, because every cluster looks a little different. Take it when the page
changes.

    python -m tools.take_screenshot           # writes docs/pictures/ui.png
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logservice_client.sync import SyncLogClient
from logservice_client.tn_shards import TnShard
from logservice_wire.v1.hakeeper_pb2 import ServiceCommand

from tools.chromium import Chromium
from tools.make_pictures import PICTURES

SHARDS = 8
FENCED = 2
"""The shard that has a writer; nobody else appends to it."""
LOOK_S = 90
"""So long that the charts have a line: a store takes a point every ten seconds."""
SIZE_BYTES_MAX = 400_000


def logservice(*arguments: str) -> None:
    """The command line, as a user has it."""
    subprocess.run([sys.executable, "-m", "logservice", *arguments], check=True, timeout=180)


def addresses(cluster: Path, section: str, name: str) -> list[str]:
    """One entry of every store's configuration."""
    files = sorted(cluster.glob("store-*/store.toml"))
    return [tomllib.loads(file.read_text("utf-8"))[section][name] for file in files]


def fill(endpoints: str) -> None:
    """Do what a database does: append everywhere, become a writer, hold, truncate."""
    with SyncLogClient(endpoints) as client:
        for shard in range(1, SHARDS + 1):
            log = client.shard(shard)
            last = 0
            for _ in range(5 * shard):
                last = log.append([b"x" * 200] * 100)
            if shard == FENCED:
                log.acquire_writer("orders-db")
            if shard == 3:
                log.set_hold("backup", 100)
            log.truncate(last // 2)


@contextmanager
def under_load(endpoints: str) -> Iterator[None]:
    """One caller appends to the shards in turn."""
    ended = threading.Event()

    def load() -> None:
        with SyncLogClient(endpoints) as client:
            while not ended.wait(0.005):
                for shard in set(range(1, SHARDS + 1)) - {FENCED}:
                    client.shard(shard).append([b"x" * 200] * shard)

    caller = threading.Thread(target=load)
    caller.start()
    try:
        yield
    finally:
        ended.set()
        caller.join()


@contextmanager
def served(endpoints: str) -> Iterator[None]:
    """One service of the database runs, and serves the TN shard of the log that has a writer."""

    def ignore(_: ServiceCommand) -> None:
        """Nobody sends one."""

    def serve(_: TnShard, ended: threading.Event) -> None:
        ended.wait()

    with SyncLogClient(endpoints) as client:
        client.hakeeper.service(
            "orders-db-1",
            "tn",
            ignore,
            address="10.0.0.7:6001",
            labels={"zone": "z1"},
            serve=serve,
        )
        client.hakeeper.create_tn_shard(FENCED)
        yield


def photograph(address: str, picture: Path, profile: Path) -> None:
    """Take the page at `address`, after it has watched the cluster long enough to show rates."""
    profile.mkdir()
    with Chromium(profile) as browser:
        browser.show(address, 1200, 900)
        time.sleep(LOOK_S)
        browser.screenshot(picture)


def main() -> None:
    """Start a cluster, fill it, and take the picture."""
    picture = PICTURES / "ui.png"
    with tempfile.TemporaryDirectory() as work:
        cluster = Path(work) / "c"
        shape = ["--zones", "3", "--shards", str(SHARDS), "--segment-bytes", str(4 << 20)]
        try:
            logservice("cluster", "up", "--stores", "3", *shape, "--dir", str(cluster))
            endpoints = ",".join(addresses(cluster, "listen", "client"))
            fill(endpoints)
            with served(endpoints), under_load(endpoints):
                address = f"http://{addresses(cluster, 'admin', 'listen')[0]}/ui"
                photograph(address, picture, Path(work) / "profile")
        finally:
            logservice("cluster", "down", "--dir", str(cluster))
    assert picture.stat().st_size <= SIZE_BYTES_MAX, picture.stat().st_size


if __name__ == "__main__":
    main()
