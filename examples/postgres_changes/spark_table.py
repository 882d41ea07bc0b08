"""A table of PostgreSQL on Spark: a streaming query that keeps it, transaction by transaction.

    LOGSERVICE_ENDPOINTS=... spark-submit spark_table.py --table public.accounts --dir /data/a

Theory of operation. `foreachBatch` makes the table anew from the one before and the micro-batch's
changes, and writes it to ``batch=N``, where N is the micro-batch's number: as Parquet, `key STRING,
row MAP<STRING, STRING>`. A micro-batch that is done again, because the driver died, has the same
rows and begins with the same table before; so it comes to the same. The last two are kept.

A micro-batch may end in the middle of a transaction. What lies behind the last mark waits beside
the table (``pending``) for the next micro-batch: no reader sees half a transaction.

Nothing of this is more than a window over each key's changes in the order of LSNs (`current`). With
a batch read of the whole log in place of the stream the same function gives the table in one job.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

RECORD: Final = "op STRING, schema STRING, table STRING, key STRING, row MAP<STRING, STRING>"
CHANGES: Final = "lsn BIGINT, op STRING, key STRING, row MAP<STRING, STRING>"
ROW: Final = "map<string,string>"
KEPT_BATCHES: Final = 2
"""The newest table, and the one before, from which the newest is made again."""


def changes_of(records: DataFrame, schema: str, table: str) -> DataFrame:
    """What of the log's records is about this table, marks included, column by column."""
    parsed = F.from_json(F.col("value").cast("string"), RECORD).alias("change")
    changes = records.select("lsn", parsed).select("lsn", "change.*")
    ours = (F.col("schema") == schema) & (F.col("table") == table)
    return changes.where(F.col("op").isin("B", "C") | ours).select("lsn", "op", "key", "row")


def up_to_the_last_mark(changes: DataFrame) -> tuple[DataFrame, DataFrame]:
    """What is whole, and what is not yet."""
    last = changes.where("op = 'C'").agg(F.max("lsn")).collect()[0][0] or 0
    return changes.where(F.col("lsn") <= last), changes.where(F.col("lsn") > last)


def current(before: DataFrame, changes: DataFrame) -> DataFrame:
    """The table after these changes: `key`, `row`. `before`: as it was."""
    cleared = changes.where("op IN ('B', 'T')").agg(F.max("lsn")).collect()[0][0] or 0
    live = changes.where((F.col("lsn") > cleared) & F.col("key").isNotNull())
    if not cleared:
        live = live.unionByName(
            before.select(F.lit(0).alias("lsn"), F.lit("R").alias("op"), "key", "row")
        )
    # A map has no order, and Spark sorts nothing that has none: hence the entries.
    change = F.struct("lsn", "op", F.map_entries("row").alias("row"))
    history = F.array_sort(F.collect_list(change))
    folded = live.groupBy("key").agg(
        F.aggregate(history, F.lit(None).cast(ROW), _after).alias("row")
    )
    return folded.where(F.col("row").isNotNull())


def _after(row: Column, change: Column) -> Column:
    """A row after one more change. An update leaves what it does not say."""
    said = F.map_from_entries(change["row"])
    stays = F.map_filter(row, lambda name, _: ~F.map_contains_key(said, name))
    return (
        F.when(change["op"] == "D", F.lit(None).cast(ROW))
        .when((change["op"] == "U") & row.isNotNull(), F.map_concat(stays, said))
        .otherwise(said)
    )


class Tables:
    """The tables of one directory, by the number of their micro-batch."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self._directory = directory
        self._spark = spark

    def finished(self) -> list[int]:
        """The numbers of those that are whole, in order. The rows are written last."""
        found = self._directory.glob("batch=*/rows/_SUCCESS")
        return sorted(int(path.parent.parent.name.partition("=")[2]) for path in found)

    def rows(self, number: int | None) -> DataFrame:
        """A table; None: there is none yet."""
        if number is None:
            return self._spark.createDataFrame([], "key STRING, row MAP<STRING, STRING>")
        return self._spark.read.parquet(self._path(number, "rows"))

    def pending(self, number: int | None) -> DataFrame:
        """The changes that wait beside it."""
        if number is None:
            return self._spark.createDataFrame([], CHANGES)
        return self._spark.read.parquet(self._path(number, "pending"))

    def write(self, number: int, rows: DataFrame, pending: DataFrame) -> None:
        """One more, over what an earlier attempt at it left there. Older ones go."""
        pending.write.mode("overwrite").parquet(self._path(number, "pending"))
        rows.write.mode("overwrite").parquet(self._path(number, "rows"))
        for old in self.finished()[:-KEPT_BATCHES]:
            shutil.rmtree(self._directory / f"batch={old}")

    def _path(self, number: int, what: str) -> str:
        return str(self._directory / f"batch={number}" / what)


class Sink:
    """What is done with a micro-batch."""

    def __init__(self, tables: Tables, schema: str, table: str) -> None:
        self._tables = tables
        self._schema = schema
        self._table = table

    def take(self, batch: DataFrame, number: int) -> None:
        """Once more perhaps: it comes to the same."""
        earlier = [one for one in self._tables.finished() if one < number]
        before = earlier[-1] if earlier else None
        mine = changes_of(batch, self._schema, self._table)
        changes = mine.unionByName(self._tables.pending(before)).cache()
        whole, rest = up_to_the_last_mark(changes)
        rows = current(self._tables.rows(before), whole)
        self._tables.write(number, rows, rest)
        changes.unpersist()
        print(f"batch {number}", flush=True)


def main() -> int:
    """Run the query: until it is through, or with ``--follow`` for ever."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shard", default="1")
    parser.add_argument("--table", required=True, metavar="SCHEMA.NAME")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--records-per-trigger", default="100000")
    parser.add_argument("--follow", action="store_true")
    arguments = parser.parse_args()
    schema, _, table = arguments.table.rpartition(".")
    spark = SparkSession.builder.appName("postgres-changes").getOrCreate()
    sink = Sink(Tables(arguments.dir, spark), schema or "public", table)
    records = (
        spark.readStream.format("logservice")
        .option("logservice.endpoints", os.environ["LOGSERVICE_ENDPOINTS"])
        .option("shard", arguments.shard)
        .option("maxRecordsPerTrigger", arguments.records_per_trigger)
        .load()
    )
    writer: DataStreamWriter = records.writeStream.foreachBatch(sink.take).option(
        "checkpointLocation", str(arguments.dir / "checkpoint")
    )
    if arguments.follow:
        query = writer.trigger(processingTime="1 second").start()
    else:
        query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
