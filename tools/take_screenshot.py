"""A picture of the page `/ui`: a local cluster with some data in it, seen by a headless Chromium.

Not part of the tests, because every cluster looks a little different: run it when the page changes.

    python -m tools.take_screenshot           # writes docs/pictures/ui.png
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logservice_client.sync import SyncLogClient

from logservice.cli.local_cluster import LocalCluster
from tools.make_pictures import PICTURES

SETTINGS: dict[str, dict[str, object]] = {
    "storage": {"segment_bytes": 4 << 20, "ballast_bytes": 0},
    "hakeeper": {"heartbeat_interval_s": 0.5, "store_timeout_s": 300},
}
SHARDS = 8
FENCED = 2
"""The shard that has a writer; nobody else appends to it."""
SIZE_BYTES_MAX = 200_000


def fill(cluster: LocalCluster) -> None:
    """What a database leaves: records everywhere, a writer, a hold, a truncation."""
    with SyncLogClient(",".join(cluster.endpoints())) as client:
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
def under_load(cluster: LocalCluster) -> Iterator[None]:
    """One caller appends to the shards in turn."""
    ended = threading.Event()

    def load() -> None:
        with SyncLogClient(",".join(cluster.endpoints())) as client:
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
    subprocess.run(
        [
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
            "--window-size=1200,900",
            "--virtual-time-budget=5000",
            f"--screenshot={picture}",
            address,
        ],
        check=True,
        timeout=120,
        capture_output=True,
    )


def main() -> None:
    """A cluster, some data, the picture."""
    picture = PICTURES / "ui.png"
    with tempfile.TemporaryDirectory() as work:
        cluster = LocalCluster.create(Path(work) / "c", shards=SHARDS, settings=SETTINGS)
        try:
            cluster.up(90)
            cluster.wait_ready(90, 3)
            fill(cluster)
            address = f"http://{cluster.stores['store-1'].admin}/ui"
            with under_load(cluster):
                time.sleep(8)  # the page shows rates of the last seconds
                photograph(address, picture, Path(work) / "profile")
        finally:
            cluster.down()
    assert picture.stat().st_size <= SIZE_BYTES_MAX, picture.stat().st_size


if __name__ == "__main__":
    main()
