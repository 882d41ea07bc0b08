"""Streaming queries inside a real Spark: triggers, restarts, what the user is told, the lag."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from logservice_client import SyncLogClient
from pyspark.sql.streaming import StreamingQueryListener

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster
from tests.spark.patience import to_the_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]


def fill(cluster: FakeCluster, records: int, shard: int = 1) -> None:
    with SyncLogClient(cluster.endpoints) as client:
        log = client.shard(shard)
        for start in range(0, records, 50):
            log.append([b"%d" % n for n in range(start, min(records, start + 50))])


def stream(spark: SparkSession, cluster: FakeCluster, **options: str) -> DataFrame:
    meant = {} if "shards" in options else {"shard": "1"}
    required = {"logservice.endpoints": ",".join(cluster.endpoints), **meant}
    return spark.readStream.format("logservice").options(**{**required, **options}).load()


class Sink:
    """A file sink and its checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.rows, self.checkpoint = str(directory / "rows"), str(directory / "checkpoint")

    def start(self, frame: DataFrame, **trigger: Any) -> Any:
        writer = frame.writeStream.format("parquet").option("path", self.rows)
        return writer.option("checkpointLocation", self.checkpoint).trigger(**trigger).start()

    def run(self, frame: DataFrame, **trigger: Any) -> int:
        """Until it ends; how many micro-batches it had."""
        query = to_the_end(lambda: self.start(frame, **(trigger or {"availableNow": True})))
        return sum(1 for one in query.recentProgress if one.numInputRows)

    def lsns(self) -> list[tuple[int, int]]:
        found = self.spark.read.parquet(self.rows).select("shard", "lsn").collect()
        return sorted((row.shard, row.lsn) for row in found)

    def offsets(self) -> list[str]:
        files = sorted(Path(self.checkpoint, "offsets").glob("[0-9]*"), key=lambda f: int(f.name))
        return [file.read_text().splitlines()[2] for file in files]


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Iterator[Sink]:
    yield Sink(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def test_a_query_goes_on_where_its_checkpoint_is(
    spark: SparkSession, cluster: FakeCluster, sink: Sink
) -> None:
    fill(cluster, 1000)
    assert sink.run(stream(spark, cluster, maxRecordsPerTrigger="300")) == 4
    assert sink.lsns() == [(1, lsn) for lsn in range(1, 1001)]
    assert sink.offsets() == ['{"1": 301}', '{"1": 601}', '{"1": 901}', '{"1": 1001}']
    fill(cluster, 200)
    fill_shard_two(cluster)
    assert sink.run(stream(spark, cluster, shards="*", maxBytesPerTrigger="1000")) >= 2
    assert sink.lsns() == [*((1, lsn) for lsn in range(1, 1201)), *((2, n) for n in range(1, 41))]
    # The trigger that means everything is not held up by a limit.
    fill(cluster, 500)
    assert sink.run(stream(spark, cluster, shards="*", maxRecordsPerTrigger="9"), once=True) == 1
    assert sink.offsets()[-1] == '{"1": 1701, "2": 41}'


def fill_shard_two(cluster: FakeCluster) -> None:
    cluster.logs[2] = FakeLog(2)
    fill(cluster, 40, 2)


class Lag(StreamingQueryListener):
    """As docs/spark.md has it: LSNs that the query has still to read, by shard."""

    def __init__(self) -> None:
        self.lag: dict[str, int] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        for source in event.progress.sources:
            newest, read = json.loads(source.latestOffset), json.loads(source.endOffset)
            self.lag = {s: newest[s] - read.get(s, 0) for s in newest if s != "lineages"}

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def test_a_query_that_runs_on(spark: SparkSession, cluster: FakeCluster, tmp_path: Path) -> None:
    """With foreachBatch, a log that joins, and the lag."""
    fill(cluster, 100)
    seen: dict[int, list[tuple[int, int]]] = {}

    def take(batch: DataFrame, number: int) -> None:
        seen[number] = [(row.shard, row.lsn) for row in batch.select("shard", "lsn").collect()]

    listener = Lag()
    spark.streams.addListener(listener)
    frame = stream(spark, cluster, shards="*", maxRecordsPerTrigger="40")
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c"))
    running: list[Any] = []

    def start() -> Any:
        running.append(writer.start())
        return running[-1]

    thread = threading.Thread(target=to_the_end, args=[start])
    thread.start()
    try:
        wait_until(lambda: sum(map(len, seen.values())) == 100, 400)
        fill_shard_two(cluster)
        wait_until(lambda: sum(map(len, seen.values())) == 140, 400)
        wait_until(lambda: listener.lag == {"1": 0, "2": 0}, 400)
    finally:
        running[-1].stop()
        thread.join()
        spark.streams.removeListener(listener)
    assert max(map(len, seen.values())) <= 40
    lsns = sorted(lsn for some in seen.values() for lsn in some)
    assert lsns == [*((1, n) for n in range(1, 101)), *((2, n) for n in range(1, 41))]


def test_truncation_below_the_checkpoint_reaches_the_user(
    spark: SparkSession, cluster: FakeCluster, sink: Sink
) -> None:
    fill(cluster, 100)
    sink.run(stream(spark, cluster, maxRecordsPerTrigger="50", startingLsn="11"))
    fill(cluster, 100)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(150)
    with pytest.raises(Exception, match="behind the checkpoint, LSNs 101 to 150 were truncated"):
        sink.run(stream(spark, cluster))
    sink.run(stream(spark, cluster, failOnDataLoss="false"))
    assert sink.lsns() == [(1, lsn) for lsn in [*range(11, 101), *range(151, 201)]]
