"""Writing inside a real Spark to real stores: INV-SPARK-WRITE whatever ends tasks and drivers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from logservice_client.testing import Cluster, local_cluster
from logservice_wire.block import Block
from logservice_wire.bounds import RECORD_BYTES_MAX

from tests.spark.faulty_writing import NAME, Fault, faulty
from tests.spark.patience import to_the_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]

PAD = "x" * 300_000
"""Four such rows do not fit a block."""


@pytest.fixture(scope="module")
def stores() -> Iterator[Cluster]:
    with local_cluster(stores=3) as cluster:
        yield cluster


@pytest.fixture
def log(stores: Cluster) -> Iterator[int]:
    """A new log of its own."""
    with stores.client() as client:
        yield client.hakeeper.create_shard()


def values(stores: Cluster, shard: int) -> list[bytes]:
    with stores.client() as client:
        return [
            record
            for item in client.shard(shard).follow(1, until_tail=True)
            if hasattr(item, "block")
            for record in item.records()
        ]


def numbers(stores: Cluster, shard: int) -> list[int]:
    return [int(value[:5]) for value in values(stores, shard)]


def frame(spark: SparkSession, rows: int, partitions: int = 2, begin: int = 0) -> DataFrame:
    ids = spark.range(begin, begin + rows, 1, partitions)
    return ids.selectExpr(f"concat(format_string('%05d', id), '{PAD}') AS value")


def writer(
    stores: Cluster, rows: DataFrame, shard: int | str, name: str = "logservice", **options: str
) -> DataFrameWriter:
    made = rows.write.format(name).mode("append").option("shards", str(shard))
    made = made.option("logservice.endpoints", ",".join(stores.endpoints))
    return made.options(**{option.replace("__", "."): value for option, value in options.items()})


def test_a_batch_is_there_once_however_often_it_is_run(
    spark: SparkSession, stores: Cluster, log: int
) -> None:
    rows = frame(spark, 24, 3)
    for _ in range(2):
        writer(stores, rows, log, logservice__writeId="nightly").save()
        assert sorted(numbers(stores, log)) == list(range(24))
    writer(stores, rows, log, logservice__writeId="nightly", logservice__writeVersion="1").save()
    assert Counter(numbers(stores, log)) == Counter(dict.fromkeys(range(24), 2))
    with pytest.raises(Exception, match=r"LostWriteError: partition \d of version 0"):
        writer(stores, rows, log, logservice__writeId="nightly").save()
    for _ in range(2):
        writer(stores, frame(spark, 2, 1), log).save()
    assert numbers(stores, log)[48:] == [0, 1, 0, 1], "without an id, every save is a write"


def test_rows_go_where_they_say(spark: SparkSession, stores: Cluster) -> None:
    with stores.client() as client:
        ids = [client.hakeeper.create_shard(name=name) for name in ("write-eu", "write-us")]
    rows = spark.range(0, 1000, 1, 2).selectExpr(
        "cast(format_string('%05d', id) AS binary) AS value",
        "if(id % 3 = 0, 'write-eu', 'write-us') AS name",
    )
    writer(stores, rows, "write-eu,write-us").save()
    found = [sorted(numbers(stores, one)) for one in ids]
    assert found == [list(range(0, 1000, 3)), [n for n in range(1000) if n % 3]]
    by_id = rows.selectExpr("value", f"{ids[1]} AS shard")
    writer(stores, by_id, f"{ids[0]},{ids[1]}").save()
    assert sorted(numbers(stores, ids[1])[666:]) == list(range(1000))
    times = {Block.parse(item.block.data).timestamp_us for item in _blocks(stores, ids[1])}
    assert min(times) > 1_700_000_000_000_000, "blocks say when they were written"


def _blocks(stores: Cluster, shard: int) -> list[Any]:
    with stores.client() as client:
        items = list(client.shard(shard).follow(1, until_tail=True))
    return [item for item in items if hasattr(item, "block")]


def test_a_retry_that_differs_is_told_by_its_partition(
    spark: SparkSession, stores: Cluster, log: int
) -> None:
    spark.dataSource.register(faulty(Fault("raise", 1)))
    rows = frame(spark, 20, 1)
    with pytest.raises(Exception, match="the fault of a test"):
        writer(stores, rows, log, NAME, logservice__writeId="w").save()
    before = numbers(stores, log)
    assert before == [0, 1, 2]
    for other in (rows.orderBy("value", ascending=False), frame(spark, 19, 1)):
        with pytest.raises(Exception, match="DifferentRetryError: partition 0 of version 0 of wri"):
            writer(stores, other.coalesce(1), log, logservice__writeId="w").save()
        assert numbers(stores, log) == before
    # The same rows in other batches are the same.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "3")
    try:
        writer(stores, rows, log, logservice__writeId="w").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(stores, log) == list(range(20))


def test_two_attempts_at_the_same_time(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    """As a speculative task and the one that it is to replace: the first one is in the middle."""
    marker = tmp_path / "paused"
    spark.dataSource.register(faulty(Fault("pause", 2, str(marker))))
    rows = frame(spark, 30, 1)
    seen: list[list[int]] = []

    def second() -> None:
        try:
            wait_until(marker.exists, 120)
            seen.append(numbers(stores, log))
            # As a side effect Spark knows of the session on this thread, too.
            spark.createDataFrame([], "nothing int")
            writer(stores, rows, log, logservice__writeId="w").save()
            seen.append(numbers(stores, log))
        finally:
            Path(f"{marker}.go").touch()

    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(second)
        writer(stores, rows, log, NAME, logservice__writeId="w").save()
        other.result()
    assert seen == [list(range(6)), list(range(30))]
    assert numbers(stores, log) == list(range(30))


def test_the_leader_is_killed_in_the_middle_of_a_task(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    marker = tmp_path / "paused"
    spark.dataSource.register(faulty(Fault("pause", 3, str(marker))))
    rows = frame(spark, 30, 1)
    leader = stores.leader(log)

    def ending() -> None:
        try:
            wait_until(marker.exists, 120)
            stores.kill(leader)
        finally:
            Path(f"{marker}.go").touch()

    try:
        with ThreadPoolExecutor(1) as threads:
            killing = threads.submit(ending)
            writer(stores, rows, log, NAME).save()
            killing.result()
        assert numbers(stores, log) == list(range(30))
    finally:
        stores.start(leader)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (["number AS value"], "column 'value' is bigint, not binary or string"),
        (["value", "5 AS lsn"], "column 'lsn' cannot be written; a row is"),
        (["if(number = 9, null, value) AS value"], "column 'value' is null in a row"),
        ([f"if(number = 9, repeat('y', {RECORD_BYTES_MAX + 1}), value) AS value"], "of at most"),
        (["value", "number AS shard"], "none of the logs that the option 'shards' lists"),
    ],
)
def test_rows_that_are_refused(
    spark: SparkSession, stores: Cluster, log: int, rows: list[str], says: str
) -> None:
    made = spark.range(0, 10, 1, 1).selectExpr("id AS number", f"concat('{PAD}', id) AS value")
    with pytest.raises(Exception, match=says):
        writer(stores, made.selectExpr(*rows), log).save()
    assert values(stores, log) == []


def test_a_log_that_is_not_there(spark: SparkSession, stores: Cluster, log: int) -> None:
    rows = frame(spark, 10, 1)
    elsewhere = rows.selectExpr("value", f"{log} AS shard").union(
        rows.selectExpr("value", "998877 AS shard")
    )
    with pytest.raises(Exception, match="ShardNotFound"):
        writer(stores, elsewhere.coalesce(1), f"{log},998877").save()
    with pytest.raises(Exception, match="ShardNotFound"):
        writer(stores, rows, "no-such-log").save()
    with pytest.raises(Exception, match="mode 'append'"):
        writer(stores, rows, log).mode("overwrite").save()
    assert values(stores, log) == []


# --- drivers --------------------------------------------------------------------------------------


class Job:
    """A query in a process of its own, from files to log 1 of a cluster of its own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.marker = directory / "marker"
        self.input = directory / "input"
        self.input.mkdir()
        self.files = 0

    def feed(self, files: int, rows: int = 8) -> None:
        for _ in range(files):
            first = self.files * 100
            lines = [f"{number:05d}{PAD}\n" for number in range(first, first + rows)]
            # Files are taken in the order of their times.
            path = self.input / f"{self.files:03d}.txt"
            path.write_text("".join(lines))
            os.utime(path, (1_700_000_000 + self.files, 1_700_000_000 + self.files))
            self.files += 1

    def begin(self, how: str = "", appends: int = 0) -> subprocess.Popen[bytes]:
        said = [",".join(self.cluster.endpoints), self.input, self.directory / "checkpoint"]
        command = [sys.executable, "-m", "tests.spark.writing_program", *map(str, said)]
        root = Path(__file__).parents[2]
        return subprocess.Popen(
            [*command, how, str(appends), str(self.marker)], cwd=root, start_new_session=True
        )

    def through(self, how: str = "", appends: int = 0) -> None:
        process = self.begin(how, appends)
        try:
            assert process.wait(500) == 0
        finally:
            kill(process)

    def killed(self, how: str, appends: int = 0) -> None:
        """The driver and its tasks, where the fault pauses them."""
        process = self.begin(how, appends)
        try:
            wait_until(self.marker.exists, 200)
            assert process.poll() is None
        finally:
            kill(process)

    def check(self, rows: int = 8) -> None:
        wanted = {file * 100 + number for file in range(self.files) for number in range(rows)}
        found = numbers(self.cluster, 1)
        assert Counter(found) == Counter(wanted)
        for file in range(self.files):
            of_file = [number for number in found if number // 100 == file]
            assert of_file == sorted(of_file), "a partition keeps its order"


def kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with local_cluster(stores=1) as cluster:
        yield Job(cluster, tmp_path)


def test_tasks_that_die_are_retried_by_spark(job: Job) -> None:
    job.feed(4)
    job.through("exit", 2)
    job.check()


@pytest.mark.parametrize(("how", "appends"), [("pause", 2), ("commit", 0)])
def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    job: Job, how: str, appends: int
) -> None:
    """In the middle of a task; and when all tasks are done, and Spark has not noted it."""
    job.feed(4)
    job.killed(how, appends)
    found = numbers(job.cluster, 1)
    assert 0 < len(found) <= 16
    assert len(found) == 16 or how == "pause"
    job.feed(1)
    job.through()
    job.check()


def test_a_stream_in_this_process(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    """By its public name; and a checkpoint that was set back is told."""
    rows = tmp_path / "rows"
    rows.mkdir()

    def run() -> None:
        lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(rows))
        query = lines.writeStream.format("logservice").option("shard", str(log))
        query = query.option("logservice.endpoints", ",".join(stores.endpoints))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        to_the_end(lambda: query.trigger(availableNow=True).start())

    for number in range(3):
        (rows / f"{number}.txt").write_text(f"{number:05d}\n")
        run()
    assert numbers(stores, log) == [0, 1, 2]
    for done in ("offsets", "commits"):
        for number in (1, 2):
            for name in (f"{number}", f".{number}.crc"):
                (tmp_path / "checkpoint" / done / name).unlink(missing_ok=True)
    # The micro-batch has two files now, and so two partitions; the second one is new to the log.
    with pytest.raises(Exception, match=r"LostWriteError: partition [01] of micro-batch 1"):
        run()
    assert numbers(stores, log) == [0, 1, 2]
