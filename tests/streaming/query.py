"""The driver of the story: a streaming query whose sink has every record once.

    LOGSERVICE_ENDPOINTS=... python -m tests.streaming.query --dir DIR --shards 'events-*'

Theory of operation. `foreachBatch` writes the rows of micro-batch N to ``rows/batch=N``, over what
an earlier attempt at it left there. So the sink has a micro-batch once, as often as it is done, if
it is always the same rows. That is what the ledger says: before each attempt a line, and after it
one with the rows as they lie in the sink, and as the source gave them when it was asked once more.

A query that ends is started again from its checkpoint, and why it ended is noted. When the file
``finish`` is there, the query reads what there is, and the program ends with it. If the program is
killed, the next one goes on.
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

RECORDS_PER_TRIGGER: Final = 1500
POLL_S: Final = 0.2
PAUSE_S: Final = 0.5
"""Between two starts of a query that fails at once."""


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
    """A local Spark that tries a task again whose Python worker died."""
    return (
        SparkSession.builder.master("local[2,4]")
        .appName("a query under kills")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def main() -> None:
    """Run the query until it has everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--shards", required=True)
    arguments = parser.parse_args()
    directory: Path = arguments.dir
    finish, ended = directory / "finish", directory / "ended.jsonl"
    spark = session()
    sink = Sink(directory, spark)
    # Where the stores are comes from the environment, through the JVM, to the source's processes.
    frame = (
        spark.readStream.format("logservice")
        .option("shards", arguments.shards)
        .option("maxRecordsPerTrigger", str(RECORDS_PER_TRIGGER))
        .option("minPartitions", "3")
        .load()
    )
    writer = frame.writeStream.foreachBatch(sink.take).option(
        "checkpointLocation", str(directory / "checkpoint")
    )
    while True:
        last = finish.exists()
        # A query that is killed under is started again; any other error ends the program.
        try:
            query = (writer.trigger(availableNow=True) if last else writer).start()
            while query.isActive and (last or not finish.exists()):
                query.awaitTermination(POLL_S)
            if last:
                query.awaitTermination()
                break
            query.stop()
            query.awaitTermination()
        except StreamingQueryException as error:
            note(ended, {"error": f"{type(error).__name__}: {error}"})
            time.sleep(PAUSE_S)
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
