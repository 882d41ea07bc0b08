"""A streaming query in a process of its own, so that a test can kill its driver.

    python -m tests.spark.stream_job ENDPOINTS SHARDS DIRECTORY RECORDS TRIGGER

writes what it reads to Parquet in DIRECTORY/rows, with its checkpoint in DIRECTORY/checkpoint and
RECORDS in a micro-batch. TRIGGER: `always`, or `available-now`, which is in a hurry and takes a
hundred times as many.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tests.spark.patience import quick_python, to_the_end

AVAILABLE: Final[dict[str, Any]] = {"availableNow": True}
ALWAYS: Final[dict[str, Any]] = {"processingTime": "0 seconds"}


def main() -> None:
    endpoints, shards, directory, records, trigger = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = quick_python(Path(directory))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "600m")
        .getOrCreate()
    )
    rows = (
        spark.readStream.format("logservice")
        .option("logservice.endpoints", endpoints)
        .option("shards", shards)
        .option("maxRecordsPerTrigger", records if trigger == "always" else records + "00")
        .load()
    )
    writer = (
        rows.writeStream.format("parquet")
        .option("path", f"{directory}/rows")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(**(AVAILABLE if trigger == "available-now" else ALWAYS))
    )
    to_the_end(writer.start)
    spark.stop()


if __name__ == "__main__":
    main()
