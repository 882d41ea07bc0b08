"""A driver that can be killed: a query from text files to a log, until it is through with them.

``python -m tests.spark.writing_program ENDPOINTS INPUT CHECKPOINT HOW APPENDS MARKER``; the last
three are those of `Fault`. A task has three attempts. Every file is a partition, every two files
are a micro-batch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.spark.faulty_writing import NAME, Fault, faulty
from tests.spark.patience import quick_python, to_the_end


def main(endpoints: str, source: str, checkpoint: str, how: str, appends: str, marker: str) -> None:
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory() as directory:
        os.environ["PYSPARK_PYTHON"] = quick_python(Path(directory))
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        spark = (
            SparkSession.builder.master("local[2,3]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.warehouse.dir", directory)
            .getOrCreate()
        )
        spark.dataSource.register(faulty(Fault(how, int(appends), marker)))
        rows = spark.readStream.option("maxFilesPerTrigger", "2").text(source)
        writer = rows.writeStream.format(NAME).option("logservice.endpoints", endpoints)
        writer = writer.option("shard", "1").option("checkpointLocation", checkpoint)
        to_the_end(lambda: writer.trigger(availableNow=True).start())
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
