"""A program of Spark Connect, whose server runs beside it: it reads and writes logs, in both ways.

``python -m tests.spark.connect_program ENDPOINTS FROM TO DIRECTORY`` prints one line of JSON: what
it read of the log FROM, which it also wrote into the log TO: a batch of its even LSNs, and a stream
of all. A program has one kind of session, so it is one of its own. Its environment is that of
`conftest.spark_environment`.
"""

from __future__ import annotations

import json
import os
import sys

from tests.spark.patience import to_the_end


def main(endpoints: str, source: str, target: str, directory: str) -> None:
    os.environ["LOGSERVICE_ENDPOINTS"] = endpoints
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.sql.warehouse.dir", directory)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    rows = spark.read.format("logservice").option("shard", source).load()
    found = {
        "session": type(spark).__module__,
        "version": spark.version,
        "count": rows.count(),
        "pushed": rows.filter("lsn >= 3 and lsn < 6").count(),
        "bytes": rows.agg(F.sum(F.length("value"))).first()[0],
    }
    even = rows.filter("lsn % 2 = 0").select("value")
    even.write.format("logservice").mode("append").option("shard", target).save()
    stream = spark.readStream.format("logservice").option("shard", source)
    writer = stream.option("maxRecordsPerTrigger", "7").load().select("value").writeStream
    writer = writer.format("logservice").option("shard", target)
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    to_the_end(lambda: writer.trigger(availableNow=True).start())
    try:
        wrong = spark.read.format("logservice").option("startingLns", "5")
        wrong.option("shard", source).load().count()
        found["refused"] = ""
    except Exception as error:  # noqa: BLE001 - what Spark makes of it differs by version
        found["refused"] = str(error)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
