"""Keys, headers and times inside a real Spark, to real stores and back: INV-SPARK-WRITE with them,
what a frame has of plain blocks beside wide ones, and of blocks that are damaged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from logservice_client.testing import Cluster, local_cluster
from logservice_wire.column_block import Binary, Parts, block_of_parts
from pyspark_logservice.replay import parse_arguments, replay

from tests.spark.faulty_writing import NAME, Fault, faulty
from tests.spark.patience import to_the_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]

SCHEMA: Final = (
    "value binary, key binary, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>, n int"
)
ALL: Final = "*,key,headers,record_time"
YEAR_20000_US: Final = 568_971_820_800_000_000


@pytest.fixture(scope="module")
def stores() -> Iterator[Cluster]:
    with local_cluster(stores=1) as cluster:
        yield cluster


@pytest.fixture
def log(stores: Cluster) -> Iterator[int]:
    """A new log of its own."""
    with stores.client() as client:
        yield client.hakeeper.create_shard()


def reader(spark: SparkSession, stores: Cluster, shard: int, **options: str) -> DataFrameReader:
    made = spark.read.format("logservice").option("shard", str(shard))
    made = made.option("logservice.endpoints", ",".join(stores.endpoints))
    return made.options(**options)


def writer(
    stores: Cluster, rows: DataFrame, shard: int, name: str = "logservice", **options: str
) -> DataFrameWriter:
    made = rows.write.format(name).mode("append").option("shard", str(shard))
    made = made.option("logservice.endpoints", ",".join(stores.endpoints))
    return made.options(**{option.replace("__", "."): value for option, value in options.items()})


def read(spark: SparkSession, stores: Cluster, shard: int, **options: str) -> list[tuple[Any, ...]]:
    """The rows in order: value, key, headers, and the times as microseconds, which may be none that
    Python has a word for.
    """
    frame = reader(spark, stores, shard, columns=ALL, **options).load()
    found = frame.orderBy("lsn").selectExpr(
        "value", "key", "headers", "unix_micros(record_time)", "unix_micros(timestamp)"
    )
    return [
        (
            bytes(value),
            None if key is None else bytes(key),
            None if headers is None else [(one.key, bytes(one.value)) for one in headers],
            own,
            time,
        )
        for value, key, headers, own, time in found.collect()
    ]


def rows_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """One partition; times are given in microseconds."""
    schema = SCHEMA.replace("timestamp timestamp", "us bigint")
    frame = spark.createDataFrame(list(rows), schema).coalesce(1)
    return frame.selectExpr("value", "key", "timestamp_micros(us) AS timestamp", "headers")


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_there_and_back(spark: SparkSession, stores: Cluster, log: int, codec: str) -> None:
    rows = [
        (b"a", b"k", 1_700_000_000_123_456, [("h", b"1"), ("h", b"2"), ("ä", b"")], 0),
        (b"b", None, None, None, 1),
        (b"", b"", -1, [], 2),
        (b"c", b"\xff\x00", YEAR_20000_US, [("", b"\xff")], 3),
        (b"d", None, -(2**62), [], 4),
    ]
    writer(stores, rows_of(spark, rows), log, compression=codec).save()
    found = read(spark, stores, log)
    stamp_us = found[1][3]
    assert stamp_us > 1_700_000_000_000_000, "a null time is when the write began"
    assert found == [
        (value, key, headers or None, us if us is not None else stamp_us, us or stamp_us)
        for value, key, us, headers, _ in rows
    ]
    with stores.client() as client:
        [item] = client.shard(log).read(1).blocks
    assert item.block.wide
    assert item.block.data[5] == {"none": 0, "zstd": 1, "lz4": 2}[codec]


def test_what_a_frame_has_of_plain_blocks(spark: SparkSession, stores: Cluster, log: int) -> None:
    """Nulls; and without the option the frame is as it was."""
    with stores.client() as client:
        shard = client.shard(log)
        shard.append([b"plain", b"too"])
        shard.append_columns([b"wide"], keys=[b"k"], headers=[{"h": b"v"}], times_us=[7])
        shard.append_columns([b"packed"], codec="zstd")
    found = read(spark, stores, log)
    assert [row[:4] for row in found] == [
        (b"plain", None, None, None),
        (b"too", None, None, None),
        (b"wide", b"k", [("h", b"v")], 7),
        (b"packed", None, None, None),
    ]
    assert found[2][4] == 7
    usual = reader(spark, stores, log).load()
    assert usual.columns == ["shard", "lsn", "term", "timestamp", "value"]
    assert usual.count() == 4
    some = reader(spark, stores, log, columns="headers, KEY").load()
    assert some.columns == ["key", "headers"]
    kafkas = "array<struct<key:string,value:binary>>"
    assert [kind for _, kind in some.dtypes] == ["binary", kafkas]
    assert some.filter("key IS NOT NULL").selectExpr("headers[0].key").collect() == [("h",)]
    gaps = reader(spark, stores, log, columns=ALL, includeGaps="true").load()
    assert gaps.columns[-4:] == ["key", "headers", "record_time", "gap"]
    assert gaps.count() == 4


def test_conditions_beside_keys(spark: SparkSession, stores: Cluster, log: int) -> None:
    with stores.client() as client:
        client.shard(log).append([b"plain"])
        client.shard(log).append_columns(
            [b"a", b"b"], keys=[b"k", None], times_us=[10**15, 2 * 10**15]
        )
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = reader(spark, stores, log, columns=ALL, pushFilters="once").load()
        found = frame.filter("timestamp = timestamp_micros(1000000000000000) AND lsn < 9")
        assert [(row.key, row.lsn) for row in found.collect()] == [(b"k", 2)]
        frame = reader(spark, stores, log, columns=ALL, pushFilters="once").load()
        assert frame.filter("record_time IS NULL").count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_from_log_to_log(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    """Keys, headers and times go through a query as they are."""
    with stores.client() as client:
        other = client.hakeeper.create_shard()
        headers = [{"n": b"%d" % number} for number in range(100)]
        keys = [None if number % 3 else b"%d" % number for number in range(100)]
        for begin in range(0, 100, 10):
            part = slice(begin, begin + 10)
            client.shard(log).append_columns(
                [b"%d" % number for number in range(begin, begin + 10)],
                keys=keys[part],
                headers=headers[part],
                times_us=list(range(begin, begin + 10)),
                codec="lz4",
            )
    stream = spark.readStream.format("logservice").option("shard", str(log))
    stream = stream.option("logservice.endpoints", ",".join(stores.endpoints))
    stream = stream.option("columns", "value,key,headers,record_time")
    stream = stream.option("maxRecordsPerTrigger", "30")
    rows = stream.load().withColumnRenamed("record_time", "timestamp")
    query = rows.writeStream.format("logservice").option("shard", str(other))
    query = query.option("logservice.endpoints", ",".join(stores.endpoints))
    query = query.option("compression", "zstd")
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
    for _ in range(2):
        to_the_end(lambda: query.trigger(availableNow=True).start())
    assert read(spark, stores, other) == read(spark, stores, log)
    assert len(read(spark, stores, other)) == 100


def test_tasks_that_die_and_retries_that_differ(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    """A worker's process ends in the middle of its blocks."""
    pad = "x" * 300_000
    rows = spark.range(0, 20, 1, 1).selectExpr(
        f"concat(format_string('%05d', id), '{pad}') AS value",
        "if(id % 2 = 0, null, cast(id AS string)) AS key",
        "timestamp_micros(id) AS timestamp",
        "array(named_struct('key', 'n', 'value', cast(cast(id AS string) AS binary))) AS headers",
    )
    spark.dataSource.register(faulty(Fault("exit", 2)))
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        writer(stores, rows, log, NAME, logservice__writeId="w").save()
    before = read(spark, stores, log)
    assert [row[1] for row in before] == [None, b"1", None, b"3", None, b"5"]
    for column, other in (
        ("headers", "array()"),
        ("headers", "array(named_struct('key', 'm', 'value', headers[0].value))"),
        ("key", "'other'"),
        ("timestamp", "timestamp_micros(7)"),
    ):
        kind = dict(rows.dtypes)[column]
        changed = rows.selectExpr(
            *(name for name in rows.columns if name != column), f"cast({other} AS {kind}) {column}"
        )
        with pytest.raises(Exception, match="DifferentRetryError: partition 0 of version 0 of wri"):
            writer(stores, changed, log, logservice__writeId="w").save()
    with pytest.raises(Exception, match="DifferentRetryError"):
        writer(stores, rows.drop("headers"), log, logservice__writeId="w").save()
    assert read(spark, stores, log) == before
    # Another codec is no other write.
    for codec in ("zstd", "none"):
        writer(stores, rows, log, logservice__writeId="w", compression=codec).save()
        found = read(spark, stores, log)
        assert [int(row[0][:5]) for row in found] == list(range(20))
        assert [row[2] for row in found] == [[("n", b"%d" % number)] for number in range(20)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["value", "array(named_struct('key', null, 'value', value)) headers"], "not array<struct"),
        (
            ["value", "array(named_struct('key', cast(null AS string), 'value', value)) headers"],
            "column 'headers' has a null in a row",
        ),
        (
            ["value", "array(cast(null AS struct<key:string,value:binary>)) headers"],
            "column 'headers' has a null in a row",
        ),
        (["value", "map('a', value) headers"], "is map<string,binary>, not array"),
        (["value", "n AS key"], "column 'key' is int, not binary or string"),
        (["value", "date(timestamp) AS timestamp"], "column 'timestamp' is date, not timestamp"),
        (["value", "repeat('k', 8388608) AS key"], "value, key and headers have"),
    ],
)
def test_rows_that_are_refused(
    spark: SparkSession, stores: Cluster, log: int, columns: list[str], says: str
) -> None:
    frame = spark.sql("SELECT cast('v' AS binary) value, current_timestamp() timestamp, 5 n")
    with pytest.raises(Exception, match=says):
        writer(stores, frame.selectExpr(*columns), log).save()
    with pytest.raises(Exception, match="'compression': 'snappy' is none of none, zstd, lz4"):
        writer(stores, frame.selectExpr("value"), log, compression="snappy").save()
    assert read(spark, stores, log) == []


def test_damaged_columns_and_names(spark: SparkSession, stores: Cluster, log: int) -> None:
    """A writer may append what no reader can open: the error says where, and all else is read."""
    one, two = struct.pack("<ii", 0, 1), struct.pack("<ii", 0, 2)
    named = (one, Binary(two, b"\xff\xfe"), Binary(one, b"c"))
    with stores.client() as client:
        shard = client.shard(log)
        shard.append([b"before"])
        shard.append_block(block_of_parts(Parts(1, Binary(one, b"v"), headers=named), 5))
        shard.append([b"between"])
        wrong = Binary(struct.pack("<ii", 1, 1), b"v")
        shard.append_block(block_of_parts(Parts(1, wrong, times=bytes(8)), 5))
        shard.append([b"behind"])
    with pytest.raises(Exception, match=r"name of a header: .*first_lsn=2 last_lsn=2"):
        read(spark, stores, log, endingLsn="4")
    values = reader(spark, stores, log, endingLsn="4", columns="value,key").load()
    assert [bytes(row.value) for row in values.collect()] == [b"before", b"v", b"between"]
    with pytest.raises(Exception, match=r"the first offset is 1 first_lsn=4 last_lsn=4"):
        reader(spark, stores, log).load().collect()
    assert [row[0] for row in read(spark, stores, log, startingLsn="5")] == [b"behind"]
    assert reader(spark, stores, log, columns="lsn").load().count() == 5


def test_the_replay_job_with_more_columns(
    spark: SparkSession, stores: Cluster, log: int, tmp_path: Path
) -> None:
    with stores.client() as client:
        client.shard(log).append([b"plain"])
        client.shard(log).append_columns([b"wide"], keys=[b"k"], headers=[{"h": b"v"}])
    said = ["--endpoints", ",".join(stores.endpoints), "--shard", str(log)]
    out = tmp_path / "out"
    report = replay(spark, parse_arguments([*said, "--with", "key,headers", "--out", str(out)]))
    assert report["records"] == 2
    assert json.loads(json.dumps(report)) == report
    rows = spark.read.parquet(str(out)).orderBy("lsn").collect()
    assert [row.key for row in rows] == [None, b"k"]
    assert rows[1].headers == [("h", b"v")]
    assert rows[0].headers is None
    for wrong in ("value", "key,key", "keys", ""):
        with pytest.raises(SystemExit):
            parse_arguments([*said, "--with", wrong, "--out", str(out)])
