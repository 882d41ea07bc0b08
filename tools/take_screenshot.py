"""A picture of the page `/ui`: a local cluster with some data in it, seen by a headless Chromium.

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

from tools.chromium import Chromium
from tools.make_pictures import PICTURES

SHARDS = 8
FENCED = 2
"""The shard that has a writer; nobody else appends to it."""
LOOK_S = 8
SIZE_BYTES_MAX = 200_000


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


def photograph(address: str, picture: Path, profile: Path) -> None:
    """Take the page at `address`, after it has watched the cluster long enough to show rates."""
    profile.mkdir()
    with Chromium(profile) as browser:
        browser.show(address, 1200, 900)
        time.sleep(LOOK_S)
        browser.screenshot(picture, whole=False)


def main() -> None:
    """Start a cluster, fill it, and take the picture."""
    picture = PICTURES / "ui.png"
    with tempfile.TemporaryDirectory() as work:
        cluster = Path(work) / "c"
        shards = ["--shards", str(SHARDS), "--segment-bytes", str(4 << 20)]
        try:
            logservice("cluster", "up", "--stores", "3", *shards, "--dir", str(cluster))
            endpoints = ",".join(addresses(cluster, "listen", "client"))
            fill(endpoints)
            with under_load(endpoints):
                address = f"http://{addresses(cluster, 'admin', 'listen')[0]}/ui"
                photograph(address, picture, Path(work) / "profile")
        finally:
            logservice("cluster", "down", "--dir", str(cluster))
    assert picture.stat().st_size <= SIZE_BYTES_MAX, picture.stat().st_size


if __name__ == "__main__":
    main()
