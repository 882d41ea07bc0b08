"""What Spark's user reads of a mistake: one line that names what was asked, from the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.client.fake_server import FakeCluster
from tests.spark.patience import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]

DEAD = "127.0.0.1:1"


def said(call: Callable[[], object]) -> str:
    """What an error says; without the SQLSTATE that Spark puts into a line of its own."""
    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value).removesuffix(" SQLSTATE: 38000").rstrip()


def given(cluster: FakeCluster, options: dict[str, str]) -> dict[str, str]:
    return {
        "logservice.endpoints": ",".join(cluster.endpoints),
        "logservice.rpc.timeout": "2",
        **options,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": "77"}, ["SHARD_NOT_FOUND", "77"]),
        ({"shard": "nope"}, ["SHARD_NOT_FOUND", "'nope'"]),
        ({"shards": "zzz-*"}, ["no log has a name like 'zzz-*'"]),
        ({"shard": "1", "startingLns": "5"}, ["'startinglns'", "did you mean 'startingLsn'?"]),
        ({"subscribe": "orders"}, ["'subscribe'", "'shards'"]),
        ({"shard": "1", "startingTimestamp": "1795624800"}, ["1795624800 is seconds"]),
        ({"shard": "1", "startingLsn": "400"}, ["400", "the newest is 0"]),
        ({"shard": "1", "logservice.endpoints": DEAD}, [DEAD]),
        ({"shard": "1", "logservice.token.file": "/no/such/token"}, ["/no/such/token"]),
    ],
)
def test_a_read_that_cannot_be(
    spark: SparkSession, cluster: FakeCluster, options: dict[str, str], words: list[str]
) -> None:
    reader = spark.read.format("logservice").options(**given(cluster, options))
    text = said(lambda: reader.load().count())
    assert text.count("\n") == 0, text
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard": "77"}, ["SHARD_NOT_FOUND", "77"]),
        ({"shard": "nope"}, ["SHARD_NOT_FOUND", "'nope'"]),
        ({"shard": "1", "compresion": "zstd"}, ["'compresion'", "did you mean 'compression'?"]),
        ({"topic": "orders"}, ["'topic'", "'shard'"]),
        ({"shard": "1", "logservice.endpoints": DEAD}, [DEAD]),
    ],
)
def test_a_write_that_cannot_be(
    spark: SparkSession, cluster: FakeCluster, options: dict[str, str], words: list[str]
) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    writer = rows.write.format("logservice").options(**given(cluster, options)).mode("append")
    text = said(writer.save)
    assert text.count("\n") == 0, text
    assert [word for word in words if word not in text] == [], text


def test_a_stream_of_a_log_that_is_not_there(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Its error has Spark's description of the query below the first line."""
    rows = spark.readStream.format("logservice").options(**given(cluster, {"shard": "77"})).load()

    def start() -> Any:
        return rows.writeStream.format("noop").start()

    with pytest.raises(PySparkException) as caught:
        to_the_end(start)
    first, *others = str(caught.value).splitlines()
    assert "SHARD_NOT_FOUND" in first
    assert "77" in first
    assert [line for line in others if line.startswith("  File ")] == []


def test_errors_of_other_functions_keep_their_traceback(
    spark: SparkSession, cluster: FakeCluster
) -> None:
    reader = spark.read.format("logservice").options(**given(cluster, {"shard": "77"}))
    said(lambda: reader.load().count())

    def broken(batches: Any) -> Any:
        raise RuntimeError("of the user's function")

    text = said(lambda: spark.range(1).mapInArrow(broken, "a INT").count())
    assert "of the user's function" in text
    assert "in broken" in text
