"""Conditions of real Spark queries: with `pushFilters` the same rows as by hand, and nothing of the
pushed conditions is left for Spark.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from logservice_client import SyncLogClient
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2

from tests.client.fake_log import FakeLog
from tests.client.fake_server import FakeCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]

SETTING = "spark.sql.python.filterPushdown.enabled"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
RANDOM_QUERIES = 30

Row = tuple[int, int, int | None]
"""shard, LSN, timestamp in microseconds; None for a gap."""


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(SETTING, "true")
    yield spark
    spark.conf.unset(SETTING)


def fill(cluster: FakeCluster) -> list[Row]:
    """Two logs whose clients' clocks jump to and fro, with a gap in one of them."""
    chance, every = random.Random(5), []
    cluster.logs[2] = FakeLog(2)
    with SyncLogClient(cluster.endpoints) as client:
        for shard in (1, 2):
            for number in range(12):
                time_us = NOON_US + chance.randrange(-5, 6)
                first = cluster.logs[shard].next_lsn
                block = encode_block([b"x"] * chance.randrange(1, 9), time_us)
                client.shard(shard).append_block(block)
                every += [(shard, n, time_us) for n in range(first, cluster.logs[shard].next_lsn)]
                if (shard, number) == (1, 5):
                    first = cluster.logs[1].next_lsn
                    cluster.logs[1].put_gap(4, log_pb2.GAP_REASON_FENCED)
                    every += [(1, n, None) for n in range(first, first + 4)]
    return every


def read(spark: SparkSession, cluster: FakeCluster, **more: str) -> DataFrame:
    options = {"logservice.endpoints": ",".join(cluster.endpoints), "shards": "*", **more}
    return spark.read.format("logservice").options(**options).load()


def condition(chance: random.Random) -> tuple[str, Callable[[Row], bool]]:
    """A condition as SQL, and the same by hand."""
    place = chance.randrange(3)
    name = ("shard", "lsn", "timestamp")[place]

    def constant() -> tuple[str, int]:
        if place == 2:
            us = chance.randrange(-6, 7)
            return f"timestamp '{NOON + timedelta(microseconds=us)}'", NOON_US + us
        number = chance.randrange(0, 4) if place == 0 else chance.randrange(-2, 70)
        return str(number), number

    kind = chance.choice(["=", ">", ">=", "<", "<=", "in", "in", "not null", "<=>"])
    if kind == "not null":
        return f"{name} is not null", lambda row: row[place] is not None
    if kind == "in":
        some = [constant() for _ in range(chance.choice([1, 2, 5, 14]))]
        numbers = {number for _, number in some}
        words = [text for text, _ in some] + chance.choice([[], ["null"]])
        return f"{name} in ({', '.join(words)})", lambda row: row[place] in numbers
    text, number = constant()

    def met(row: Row) -> bool:
        found = row[place]
        if found is None:
            return False
        return {
            "=": found == number,
            "<=>": found == number,
            ">": found > number,
            ">=": found >= number,
            "<": found < number,
            "<=": found <= number,
        }[kind]

    return f"{name} {kind} {text}", met


def rows_of(frame: DataFrame) -> list[Row]:
    chosen = frame.selectExpr("shard", "lsn", "unix_micros(timestamp) us").collect()
    return sorted((row.shard, row.lsn, row.us) for row in chosen)


def left_for_spark(frame: DataFrame) -> bool:
    plan: Any = frame._jdf.queryExecution().executedPlan().toString()
    return "Filter (" in plan


def test_random_conditions(pushing: SparkSession, cluster: FakeCluster) -> None:
    every = fill(cluster)
    chance, some = random.Random(20261127), 0
    for number in range(RANDOM_QUERIES):
        made = [condition(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
        sql = " and ".join(text for text, _ in made)
        gaps = number % 3 != 0
        expected = [
            row
            for row in every
            if (gaps or row[2] is not None) and all(met(row) for _, met in made)
        ]
        more = {"includeGaps": "true", "minPartitions": "4"} if gaps else {}
        asked = read(pushing, cluster, pushFilters="once", **more).filter(sql)
        assert rows_of(asked) == sorted(expected), sql
        assert not left_for_spark(asked), sql
        some += 0 < len(expected) < len(every)
    assert some > RANDOM_QUERIES // 3


def test_what_is_not_pushed_is_judged_by_spark(pushing: SparkSession, cluster: FakeCluster) -> None:
    every = fill(cluster)

    def frame() -> DataFrame:
        return read(pushing, cluster, pushFilters="once", includeGaps="true")

    asked = frame().filter("lsn > 3 and shard = 1 and timestamp is null and value is null")
    assert left_for_spark(asked)
    assert rows_of(asked) == [row for row in every if row[0] == 1 and row[2] is None]
    other = frame().filter("lsn < 3 or lsn > 30")
    assert rows_of(other) == sorted(row for row in every if row[1] < 3 or row[1] > 30)


def test_without_the_option_conditions_are_sparks(
    pushing: SparkSession, cluster: FakeCluster
) -> None:
    every = fill(cluster)
    asked = read(pushing, cluster).filter("lsn = 7")
    assert left_for_spark(asked)
    assert rows_of(asked) == sorted(row for row in every if row[1] == 7)


def test_without_the_setting_spark_says_which(spark: SparkSession, cluster: FakeCluster) -> None:
    fill(cluster)
    with pytest.raises(Exception, match=r"filterPushdown\.enabled"):
        read(spark, cluster, pushFilters="once").count()


def test_spark_keeps_conditions_with_the_frame(pushing: SparkSession, cluster: FakeCluster) -> None:
    """Why there is no ``pushFilters=true``. When this fails, Spark keeps them with the query, and
    there can be one.
    """
    every = fill(cluster)
    frame = read(pushing, cluster, pushFilters="once")
    assert frame.filter("lsn = 7").count() == 2
    assert frame.count() == 2 < len(every)
    with pytest.raises(Exception, match="neither false nor once"):
        read(pushing, cluster, pushFilters="true").count()
