"""The replay job into a Delta table, through Spark: each LSN once, whatever was killed.

`make test-spark-4.2` runs them: Delta has no jar for a newer Spark yet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from logservice_client import SyncLogClient
from logservice_client.table_position import JOB_CHARS_MAX
from logservice_client.testing import Cluster, local_cluster
from logservice_wire.block import encode_block
from logservice_wire.errors import LineageChanged
from pyspark_logservice.replay import parse_arguments, replay
from pyspark_logservice.replay_table import TableError

from tests.client.fake_server import FakeCluster
from tests.spark.conftest import with_delta
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # Spark and py4j leave sockets to the garbage collector and use what Python deprecates.
    pytest.mark.filterwarnings("default"),
]
DELTA = with_delta()
delta = pytest.mark.skipif(not DELTA, reason="no jars of Delta: make test-spark-4.2")


def fill(cluster: FakeCluster, blocks: int, size: int = 10) -> list[bytes]:
    begin = cluster.stores[0].log(1).next_lsn - 1
    records = [b"%08d" % (begin + number) for number in range(blocks * size)]
    with SyncLogClient(cluster.endpoints) as client:
        for start in range(0, len(records), size):
            client.shard(1).append_block(encode_block(records[start : start + size], 1))
    return records


def words(endpoints: list[str], out: Path, *more: str, shard: int = 1) -> list[str]:
    given = ["--endpoints", ",".join(endpoints), "--shard", str(shard), "--out", str(out)]
    return [*given, "--format", "delta", *more]


def run(spark: SparkSession, cluster: FakeCluster, out: Path, *more: str) -> dict[str, Any]:
    return replay(spark, parse_arguments(words(cluster.endpoints, out, *more)))


def rows(spark: SparkSession, table: Path) -> list[tuple[int, bytes]]:
    frame = spark.read.format("delta").load(str(table)).orderBy("lsn")
    return [(row.lsn, bytes(row.value)) for row in frame.collect()]


@delta
def test_columns_of_wide_blocks(spark: SparkSession, cluster: FakeCluster, tmp_path: Path) -> None:
    """A run that would leave them null in a table that has them is refused, and so is the other."""
    table, plain = tmp_path / "table", tmp_path / "plain"

    def append(number: int) -> None:
        with SyncLogClient(cluster.endpoints) as client:
            client.shard(1).append([b"plain"])
            keys, headers = [b"k%d" % number, None], [{"h": b"%d" % number}, {}]
            client.shard(1).append_columns([b"a", b"b"], keys=keys, headers=headers)

    append(1)
    assert run(spark, cluster, table, "--with", "key,headers")["records"] == 3
    assert run(spark, cluster, plain)["records"] == 3
    append(2)
    for more in ((), ("--with", "headers")):
        with pytest.raises(TableError, match="does not read: --with key"):
            run(spark, cluster, table, *more)
    with pytest.raises(Exception, match=r"DELTA_METADATA_MISMATCH|schema mismatch"):
        run(spark, cluster, plain, "--with", "key")
    assert run(spark, cluster, table, "--with", "headers,key")["records"] == 3
    assert run(spark, cluster, plain)["records"] == 3
    found = spark.read.format("delta").load(str(table)).orderBy("lsn").collect()
    keys = [None if row.key is None else bytes(row.key) for row in found]
    assert keys == [None, b"k1", None, None, b"k2", None]
    assert [row.headers for row in found][1:5] == [[("h", b"1")], None, None, [("h", b"2")]]
    assert [row.lsn for row in found] == [1, 2, 3, 4, 5, 6]


@delta
def test_inv_replayed_1_each_lsn_is_there_once_however_often_it_runs(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    records = fill(cluster, 5)
    found = run(spark, cluster, table, "--to", "31")
    assert (found["records"], found["first_lsn"], found["last_lsn"]) == (30, 1, 30)
    assert found["value_bytes"] == 30 * 8
    for _ in range(2):
        again = run(spark, cluster, table, "--to", "31")
        assert (again["records"], again["last_lsn"], again["value_bytes"]) == (0, None, 0)
    records += fill(cluster, 1)
    found = run(spark, cluster, table, "--from", "11")
    assert (found["first_lsn"], found["last_lsn"]) == (31, 60)
    assert rows(spark, table) == list(enumerate(records, 1))


@delta
def test_inv_replayed_1_a_range_that_leaves_lsns_out_is_refused(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    fill(cluster, 5)
    assert run(spark, cluster, table, "--from", "11", "--to", "21")["first_lsn"] == 11
    with pytest.raises(TableError, match=r"up to LSN 20; .* from 21 on"):
        run(spark, cluster, table, "--from", "22")
    assert [lsn for lsn, _ in rows(spark, table)] == list(range(11, 21))


@delta
def test_inv_replayed_2_a_table_goes_on_with_another_history_only_below_the_fork(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    below, beyond = tmp_path / "below", tmp_path / "beyond"
    records = fill(cluster, 5)[:40]
    run(spark, cluster, below, "--to", "31")
    run(spark, cluster, beyond)
    cluster.stores[0].log(1).fork(b"2" * 16, keep=40)
    records += fill(cluster, 2)
    assert run(spark, cluster, below)["first_lsn"] == 31
    assert rows(spark, below) == list(enumerate(records, 1))
    before = rows(spark, beyond)
    with pytest.raises(LineageChanged, match="up to LSN 50 of another history"):
        run(spark, cluster, beyond)
    assert rows(spark, beyond) == before
    fill(cluster, 1)
    assert run(spark, cluster, below)["first_lsn"] == 61


@delta
def test_inv_replayed_3_rows_of_somebody_else_are_left_alone(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    fill(cluster, 2)
    run(spark, cluster, table)
    with pytest.raises(TableError, match="does not say how far 'other' is"):
        run(spark, cluster, table, "--job", "other")
    assert len(rows(spark, table)) == 20


def test_a_spark_without_delta_is_told_so(
    spark: SparkSession, cluster: FakeCluster, tmp_path: Path
) -> None:
    if DELTA:
        pytest.skip("this Spark has Delta")
    fill(cluster, 1)
    with pytest.raises(TableError, match="this Spark has no Delta"):
        run(spark, cluster, tmp_path / "table")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--format", "delta", "--overwrite"], "appended to"),
        (["--job", "j"], "--job is for --format delta"),
        (["--format", "delta", "--job", ""], "a job's name"),
        (["--format", "delta", "--job", "a/b"], "a job's name"),
        (["--format", "delta", "--job", "j" * (JOB_CHARS_MAX + 1)], "a job's name"),
        (["--format", "csv"], "--format"),
    ],
)
def test_mistakes_end_the_job(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    required = ["--endpoints", "a:1", "--shard", "1", "--out", "somewhere"]
    with pytest.raises(SystemExit):
        parse_arguments([*required, *given])
    assert said in capsys.readouterr().err
    longest = ["--format", "delta", "--job", "j" * JOB_CHARS_MAX]
    assert parse_arguments([*required, *longest]).job == longest[-1]


@pytest.fixture(scope="module")
def stores() -> Iterator[Cluster]:
    with local_cluster(stores=1) as cluster:
        yield cluster


def begin(cluster: Cluster, shard: int, table: Path) -> subprocess.Popen[str]:
    """The job as a program of its own."""
    given = [f"--conf {name}={value}" for name, value in DELTA.items()]
    settings = [*given, "--conf spark.ui.enabled=false", "--master local[2]", "pyspark-shell"]
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pyspark_logservice.replay"),
            *words(cluster.endpoints, table, "--partitions", "20", shard=shard),
        ],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": " ".join(settings)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@delta
def test_a_job_that_was_killed_and_two_at_once(
    spark: SparkSession, stores: Cluster, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    records = [b"%06d" % number + b"x" * 2000 for number in range(20_000)]
    with stores.client() as client:
        shard = client.hakeeper.create_shard()
        for start in range(0, len(records), 100):
            client.shard(shard).append(records[start : start + 100])
    killed = begin(stores, shard, table)
    # Its rows are in files, and in no version of the table.
    wait_until(lambda: bool(list(table.glob("*.parquet"))) or killed.poll() is not None, 120)
    killed.kill()
    killed.communicate()
    both = [begin(stores, shard, table) for _ in range(2)]
    said = [one.communicate(timeout=300) for one in both]
    codes = [one.returncode for one in both]
    assert 0 in codes, said
    brought = [json.loads(out)["records"] for out, _ in said if out.startswith("{")]
    assert sum(brought) in (len(records), 0), said  # none: the one that was killed had committed
    assert rows(spark, table) == list(enumerate(records, 1))
