"""A streaming query loses nothing and doubles nothing: its driver is killed in the middle of micro-
batches, stores are killed and come back, and the writer goes on all the time. In the end what the
query wrote is compared with what was acknowledged, record by record.

The driver is killed at moments that matter: when Spark has written down how far a micro-batch goes,
and not yet that it is done. The rows in the files of such a micro-batch, if there are any, must not
count twice when it is read again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from logservice_client import SyncLogClient

from logservice.cli.processes.local_cluster import LocalCluster
from tests.local_stores import kill_stores

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
RECORDS = "4000"
"""Of a micro-batch: so many that it takes a second or so."""
SHARDS = (1, 2)
ROUNDS = 1
"""Drivers that are killed, each with a store."""
START_LIMIT_S = 900.0
"""Against hanging: a JVM takes minutes to start on a busy machine."""


class Writer:
    """Appends until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.acked: dict[tuple[int, int], bytes] = {}
        self._client = SyncLogClient(cluster.endpoints())
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=[shard]) for shard in SHARDS]
        for thread in self._threads:
            thread.start()

    def _write(self, shard: int) -> None:
        log = self._client.shard(shard)
        number = 0
        while not self._stop.is_set():
            records = [b"%d-%d-" % (shard, number + n) + bytes(80) for n in range(100)]
            first = log.append(records, timeout=60.0)
            self.acked.update({(shard, first + n): one for n, one in enumerate(records)})
            number += len(records)
            self._stop.wait(0.05)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


class Driver:
    """The query's process, with a JVM of its own."""

    def __init__(self, cluster: LocalCluster, directory: Path, trigger: str) -> None:
        self.checkpoint = directory / "checkpoint"
        self.said = directory / "driver.log"
        command = [sys.executable, "-m", "tests.spark.stream_job", ",".join(cluster.endpoints())]
        path = os.pathsep.join([str(ROOT / "client"), str(ROOT)])
        with open(self.said, "ab") as output:
            self.process = subprocess.Popen(
                [*command, "*", str(directory), RECORDS, trigger],
                env={**os.environ, "PYTHONPATH": path, "GRPC_ENABLE_FORK_SUPPORT": "0"},
                cwd=directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def numbers(self, folder: str) -> set[int]:
        """Of the micro-batches that have a file in a folder of the checkpoint."""
        return {int(one.name) for one in self.checkpoint.glob(f"{folder}/[0-9]*")}

    def wait_done(self, after: int) -> int:
        """Until a micro-batch behind `after` is done. Returns its number."""
        self._wait(lambda: max(self.numbers("commits"), default=-1) > after)
        return max(self.numbers("commits"))

    def kill_in_the_middle(self) -> bool:
        """SIGKILL while a micro-batch is planned and not done. Whether it was so, in the end."""
        done = max(self.numbers("commits"), default=-1)
        self._wait(lambda: max(self.numbers("offsets"), default=-1) > done)
        self.kill()
        return max(self.numbers("offsets")) not in self.numbers("commits")

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while not condition():
            assert self.process.poll() is None, self.said.read_text()[-4000:]
            assert time.monotonic() < deadline_s, self.said.read_text()[-4000:]
            time.sleep(0.002)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def written(directory: Path) -> list[tuple[int, int, bytes]]:
    """The rows of the files that the sink's own log names."""
    files: list[str] = []
    logs = [one for one in (directory / "rows/_spark_metadata").iterdir() if one.name[0].isdigit()]
    for log in sorted(logs, key=lambda one: int(one.name.partition(".")[0])):
        added = [json.loads(line)["path"] for line in log.read_text().splitlines()[1:]]
        files = added if log.suffix == ".compact" else files + added
    rows: list[tuple[int, int, bytes]] = []
    for name in files:
        table = pq.read_table(name.removeprefix("file://"), partitioning=None)
        columns = [table.column(column).to_pylist() for column in ("shard", "lsn", "value")]
        rows += zip(*columns, strict=True)
    return rows


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs a Java runtime")
    made = LocalCluster.create(tmp_path / "cluster", stores=3, shards=len(SHARDS))
    made.up()
    yield made
    kill_stores(made)


def test_killed_drivers_and_stores_lose_nothing_and_double_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    directory = tmp_path / "query"
    directory.mkdir()
    writer = Writer(cluster)
    driver: Driver | None = None
    in_the_middle = 0
    try:
        for store_id in list(cluster.stores)[:ROUNDS]:
            driver = Driver(cluster, directory, "always")
            done = driver.wait_done(max(driver.numbers("commits"), default=-1))
            cluster.kill(store_id)
            driver.wait_done(done + 1)
            cluster.start(store_id)
            in_the_middle += driver.kill_in_the_middle()
    finally:
        if driver is not None:
            driver.kill()
        writer.stop()
    assert in_the_middle, "no driver was killed in the middle of a micro-batch"
    last = Driver(cluster, directory, "available-now")
    try:
        assert last.process.wait(START_LIMIT_S) == 0, last.said.read_text()[-4000:]
    finally:
        last.kill()
    rows = written(directory)
    assert len(rows) == len({(shard, lsn) for shard, lsn, _ in rows}), "rows were doubled"
    found = {(shard, lsn): value for shard, lsn, value in rows}
    assert found == writer.acked
