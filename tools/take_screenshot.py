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

from tools.make_pictures import PICTURES

SHARDS = 8
FENCED = 2
"""The shard that has a writer; nobody else appends to it."""
SIZE_BYTES_MAX = 200_000


def logservice(*arguments: str) -> None:
    """The command line, as a user has it."""
    subprocess.run([sys.executable, "-m", "logservice", *arguments], check=True, timeout=180)


def addresses(cluster: Path, port: str) -> list[str]:
    """What the stores' configuration says: `port` is client or admin."""
    files = sorted(cluster.glob("store-*/*.toml"))
    return [tomllib.loads(file.read_text("utf-8"))["listen"][port] for file in files]


def fill(endpoints: str) -> None:
    """What a database leaves: records everywhere, a writer, a hold, a truncation."""
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
    """The page at `address`, after it had some seconds for its first figures."""
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-proxy-server",
    ]
    size = ["--window-size=1200,900", "--virtual-time-budget=5000"]
    files = [f"--user-data-dir={profile}", f"--screenshot={picture}"]
    command = ["chromium", *flags, *size, *files, address]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


def main() -> None:
    """A cluster, some data, the picture."""
    picture = PICTURES / "ui.png"
    with tempfile.TemporaryDirectory() as work:
        cluster = Path(work) / "c"
        shards = ["--shards", str(SHARDS), "--segment-bytes", str(4 << 20)]
        try:
            logservice("cluster", "up", "--stores", "3", *shards, "--dir", str(cluster))
            endpoints = ",".join(addresses(cluster, "client"))
            fill(endpoints)
            with under_load(endpoints):
                time.sleep(8)  # the figures of the last seconds
                address = f"http://{addresses(cluster, 'admin')[0]}/ui"
                photograph(address, picture, Path(work) / "profile")
        finally:
            logservice("cluster", "down", "--dir", str(cluster))
    assert picture.stat().st_size <= SIZE_BYTES_MAX, picture.stat().st_size


if __name__ == "__main__":
    main()
