"""The driver of the story: a streaming query whose sink has every record once, and one that writes.

    LOGSERVICE_ENDPOINTS=... python -m tests.streaming.query --dir DIR --shards 'events-*' --to LOG

Theory of operation. Both read the same logs. The first one's `foreachBatch` writes the rows of
micro-batch N to ``rows/batch=N``, over what an earlier attempt at it left there. So the sink has a
micro-batch once, as often as it is done, if it is always the same rows. That is what the ledger
says: before each attempt a line, and after it one with the rows as they lie in the sink, and as the
source gave them when it was asked once more.

The second query writes the values into another log, and keeps no ledger: that each is there once is
the source's business and the writer's.

A query that ends is started again from its checkpoint, and why it ended is noted. When the file
``finish`` is there, the queries read what there is, and the program ends with them. If the program
is killed, the next one goes on. If a query fails again and again without a micro-batch, the program
ends with `GAVE_UP`: a JVM can be broken for good, and then only another one helps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

# Before gRPC is imported: Spark's gateway is forked from this process (see tests/conftest.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tests.streaming.driver import GAVE_UP

RECORDS_PER_TRIGGER: Final = 1500
EXECUTORS: Final = 2
EXECUTOR_MIB: Final = 512
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""These JVMs are killed before a better compiler would pay."""
HOLD: Final = "story"
WRITING_HOLD: Final = "story-writing"
POLL_S: Final = 0.2
PAUSE_S: Final = 0.5
"""Between two starts of a query that fails at once."""
FRUITLESS_MAX: Final = 5
"""Ends of a query, one after the other, without a micro-batch in between."""


class Sink:
    """Rows by micro-batch, and what was written when."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        """Goes on with what is there."""
        self._rows = directory / "rows"
        self._ledger = directory / "ledger.jsonl"
        self._spark = spark

    def take(self, batch: DataFrame, number: int) -> None:
        """One micro-batch, once more perhaps."""
        note(self._ledger, {"began": number})
        path = str(self._rows / f"batch={number}")
        batch.select("shard", "lsn", "value").write.mode("overwrite").parquet(path)
        written, again = _digest(self._spark.read.parquet(path)), _digest(batch)
        note(self._ledger, {"batch": number, "written": written, "again": again})


def _digest(rows: DataFrame) -> list[Any]:
    found = rows.agg(
        F.count("lsn"), F.min("lsn"), F.max("lsn"), F.bit_xor(F.xxhash64("shard", "lsn", "value"))
    ).first()
    assert found is not None
    return list(found)


def note(ledger: Path, line: dict[str, Any]) -> None:
    """A line that is there after a crash, too."""
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def session() -> SparkSession:
    """A Spark with executors in processes of their own, which it starts again when they end, and
    which tries a task again that ended with its worker or its executor.
    """
    return (
        SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,{EXECUTOR_MIB}]")
        .config("spark.executor.memory", f"{EXECUTOR_MIB}m")
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.deploy.maxExecutorRetries", "-1")
        .appName("a query under kills")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


class Kept:
    """A query that is started again whenever it ends."""

    def __init__(self, writer: DataStreamWriter, ended: Path) -> None:
        """Not started yet. `ended`: where it is noted why it ended."""
        self._writer = writer
        self._ended = ended
        self._query: StreamingQuery | None = None
        self._last = False
        self._start_at_s = 0.0
        self._fruitless = 0

    def look(self, *, last: bool) -> bool:
        """Start it, or start it again, if it has to be; whether it is through. `last`: it reads
        what there is, and then it is. Any other error than its own ends the program; so does its
        own, when it comes too often.
        """
        try:
            if self._query is not None and last and not self._last:
                self._query.stop()
                self._query.awaitTermination()
                self._query = None
            if self._query is None:
                if time.monotonic() < self._start_at_s:
                    return False
                self._last = last
                writer = self._writer.trigger(availableNow=True) if last else self._writer
                self._query = writer.start()
            if not self._query.isActive:
                self._query.awaitTermination()
                return self._last
        except StreamingQueryException as error:
            note(self._ended, {"error": f"{type(error).__name__}: {error}"})
            further = self._query is not None and self._query.lastProgress is not None
            self._fruitless = 0 if further else self._fruitless + 1
            if self._fruitless == FRUITLESS_MAX:
                sys.exit(GAVE_UP)
            self._query = None
            self._start_at_s = time.monotonic() + PAUSE_S
        return False


def frame(spark: SparkSession, shards: str, hold: str) -> DataFrame:
    """The logs, as both queries read them."""
    # Where the stores are comes from the environment, through the JVM, to the source's processes.
    return (
        spark.readStream.format("logservice")
        .option("shards", shards)
        .option("maxRecordsPerTrigger", str(RECORDS_PER_TRIGGER))
        .option("minPartitions", "3")
        .option("hold", hold)
        .load()
    )


def main() -> None:
    """Run the queries until they have everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--shards", required=True)
    parser.add_argument("--to", required=True, help="the log that the second query writes")
    arguments = parser.parse_args()
    directory: Path = arguments.dir
    finish, ended = directory / "finish", directory / "ended.jsonl"
    spark = session()
    sink = Sink(directory, spark)
    reading = frame(spark, arguments.shards, HOLD).writeStream.foreachBatch(sink.take)
    writing = (
        frame(spark, arguments.shards, WRITING_HOLD)
        .select("value")
        .writeStream.format("logservice")
        .option("shard", arguments.to)
    )
    queries = [
        Kept(reading.option("checkpointLocation", str(directory / "checkpoint")), ended),
        Kept(writing.option("checkpointLocation", str(directory / "checkpoint-writing")), ended),
    ]
    while queries:
        last = finish.exists()
        queries = [one for one in queries if not one.look(last=last)]
        time.sleep(POLL_S)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
