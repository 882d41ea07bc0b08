"""The data source and the replay job inside a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from logservice_client import SyncLogClient
from logservice_wire.block import encode_block
from logservice_wire.errors import WrongExpectedLsn
from pyspark_logservice.replay import parse_arguments, read_log, replay

from tests.client.fake_server import FakeCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]

WRITTEN_US = 1_700_000_000_123_456


def fill(cluster: FakeCluster, blocks: int, size: int) -> list[bytes]:
    records = [b"%08d" % number for number in range(blocks * size)]
    with SyncLogClient(cluster.endpoints) as client:
        for start in range(0, len(records), size):
            block = encode_block(records[start : start + size], WRITTEN_US)
            client.shard(1).append_block(block)
    return records


def reader(spark: SparkSession, cluster: FakeCluster) -> DataFrameReader:
    endpoints = ",".join(cluster.endpoints)
    return spark.read.format("logservice").option("logservice.endpoints", endpoints)


def test_every_record_once(spark: SparkSession, cluster: FakeCluster) -> None:
    records = fill(cluster, 30, 100)
    frame = reader(spark, cluster).option("shard", "1").option("minPartitions", "4").load()
    rows = frame.orderBy("lsn").collect()
    assert [bytes(row.value) for row in rows] == records
    assert [row.lsn for row in rows] == list(range(1, 3001))
    assert {(row.shard, row.term) for row in rows} == {(1, 1)}
    assert frame.selectExpr("min(unix_micros(timestamp)) t").first() == (WRITTEN_US,)
    assert frame.count() == frame.count() == 3000


def test_a_range_and_several_shards(spark: SparkSession, cluster: FakeCluster) -> None:
    fill(cluster, 3, 10)
    with SyncLogClient(cluster.endpoints) as client:
        client.hakeeper.create_shard(shard_id=2)
        client.shard(2).append([b"a", b"b", b"c"])
    frame = (
        reader(spark, cluster)
        .option("shards", "1,2")
        .option("startingOffsets", '{"1": 8, "2": -2}')
        .option("endingOffsets", '{"1": 12, "2": -1}')
        .load()
    )
    found = sorted((row.shard, row.lsn) for row in frame.select("shard", "lsn").collect())
    assert found == [(1, 8), (1, 9), (1, 10), (1, 11), (2, 1), (2, 2), (2, 3)]


def test_gaps_as_rows(spark: SparkSession, cluster: FakeCluster) -> None:
    cluster.logs[1].gaps = True
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).append(b"a")
        with pytest.raises(WrongExpectedLsn):
            client.shard(1).append(b"x", expected_lsn=50)
        client.shard(1).append(b"b")
    frame = reader(spark, cluster).option("shard", "1").option("includeGaps", "true").load()
    rows = [(row.lsn, row.value, row.gap) for row in frame.orderBy("lsn").collect()]
    assert rows == [(1, b"a", None), (2, None, "wrong_expected_lsn"), (3, b"b", None)]


def test_truncated_records_are_an_error_and_not_fewer_rows(
    spark: SparkSession, cluster: FakeCluster
) -> None:
    fill(cluster, 3, 10)
    with SyncLogClient(cluster.endpoints) as client:
        client.shard(1).truncate(12)
    started = reader(spark, cluster).option("shard", "1").option("startingLsn", "5")
    with pytest.raises(Exception, match="LSNs 5 to 12 were truncated"):
        started.load().count()
    assert started.option("failOnDataLoss", "false").load().count() == 18


def test_mistakes_in_options_reach_the_user(spark: SparkSession, cluster: FakeCluster) -> None:
    with pytest.raises(Exception, match="unknown option 'startinglns'"):
        reader(spark, cluster).option("shard", "1").option("startingLns", "5").load().count()


def test_a_frame_is_planned_once(spark: SparkSession, cluster: FakeCluster) -> None:
    """Its later queries read the LSNs of its first one, and so does a view."""
    fill(cluster, 3, 10)
    frame = reader(spark, cluster).option("shard", "1").load()
    options = f"'logservice.endpoints' '{','.join(cluster.endpoints)}', 'shard' '1'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW wal USING logservice OPTIONS ({options})")
    assert frame.count() == spark.table("wal").count() == 30
    fill(cluster, 1, 5)
    assert frame.count() == spark.table("wal").count() == 30
    assert frame.filter("lsn > 1").count() == 29
    assert reader(spark, cluster).option("shard", "1").load().count() == 35
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW wal USING logservice OPTIONS ({options})")
    assert spark.table("wal").count() == 35
    spark.catalog.dropTempView("wal")


def test_permanent_tables_are_refused_in_words(spark: SparkSession, cluster: FakeCluster) -> None:
    fill(cluster, 1, 5)
    options = f"'logservice.endpoints' '{','.join(cluster.endpoints)}', 'shard' '1'"
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE wal USING logservice OPTIONS ({options})")
    columns = "shard BIGINT, lsn BIGINT, term BIGINT, timestamp TIMESTAMP, value BINARY"
    # With its columns in it Spark makes the table without a word to the source.
    spark.sql(f"CREATE TABLE wal ({columns}) USING logservice OPTIONS ({options})")
    # Spark 4.2 does not ask the source when such a table is read, and refuses it by itself.
    asked = not spark.version.startswith("4.2")
    refused = "CREATE TEMPORARY VIEW" if asked else "not a valid Spark SQL Data Source"
    try:
        with pytest.raises(Exception, match=refused):
            spark.table("wal").count()
    finally:
        spark.sql("DROP TABLE wal")


def test_the_replay_job(spark: SparkSession, cluster: FakeCluster, tmp_path: Path) -> None:
    records = fill(cluster, 20, 50)
    out = tmp_path / "replayed"
    options = parse_arguments(
        [
            *("--endpoints", ",".join(cluster.endpoints), "--shard", "1"),
            *("--from", "101", "--to", "901", "--partitions", "3", "--out", str(out)),
        ]
    )
    report = replay(spark, options)
    assert (report["records"], report["first_lsn"], report["last_lsn"]) == (800, 101, 900)
    assert report["value_bytes"] == 800 * 8
    assert json.loads(json.dumps(report)) == report
    written = spark.read.parquet(str(out)).orderBy("lsn")
    assert [bytes(row.value) for row in written.collect()] == records[100:900]
    assert len(list(out.glob("part-*.parquet"))) == 3
    with pytest.raises(Exception, match="already exists"):
        replay(spark, options)


def test_replay_of_nothing(spark: SparkSession, cluster: FakeCluster, tmp_path: Path) -> None:
    fill(cluster, 1, 5)
    options = parse_arguments(
        [
            *("--endpoints", ",".join(cluster.endpoints), "--shard", "1"),
            *("--from", "6", "--out", str(tmp_path / "nothing")),
        ]
    )
    report = replay(spark, options)
    assert (report["records"], report["value_bytes"]) == (0, 0)
    assert read_log(spark, ",".join(cluster.endpoints), 1, start="6").count() == 0
