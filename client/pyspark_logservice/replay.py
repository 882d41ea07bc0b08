"""The replay job: an LSN range of a shard to Parquet, in parallel.

    spark-submit pyspark_logservice/replay.py --endpoints HOST:PORT --shard 1 --from 1001 --out DIR
    python -m pyspark_logservice.replay ...

``--from`` is where recovery starts: the checkpoint LSN of the database. The range includes it and
excludes ``--to``. The job prints one line of JSON with what was read, once that is safely written.
Endpoints and TLS files may stand in the environment instead, as for `logctl`
(`LOGSERVICE_ENDPOINTS`, `LOGSERVICE_TLS_*`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from logservice_wire.errors import InvalidArgument
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pyspark_logservice.checks import OptionError
from pyspark_logservice.logs import tls_of
from pyspark_logservice.options import MORE_COLUMNS, parse_options


def read_log(
    spark: SparkSession,
    endpoints: str,
    shard: int,
    *,
    start: str = "earliest",
    end: str = "latest",
    partitions: int = 0,
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records ``start <= lsn < end`` of a shard; columns shard, lsn, term, timestamp, value.
    `more`: other options of the source, for example its TLS files, or `columns`.
    """
    reader = (
        spark.read.format("logservice")
        .option("logservice.endpoints", endpoints)
        .option("shard", str(shard))
        .option("startingLsn", start)
        .option("endingLsn", end)
        .options(**(more or {}))
    )
    return (reader.option("minPartitions", str(partitions)) if partitions else reader).load()


def replay(spark: SparkSession, options: argparse.Namespace) -> dict[str, object]:
    """Run the job and return what it prints."""
    began_s = time.monotonic()
    counted = Observation("replay")
    records = read_log(
        spark,
        options.endpoints,
        options.shard,
        start=options.start,
        end=options.end,
        partitions=options.partitions,
        more=source_options(options),
    ).observe(
        counted,
        F.count("lsn").alias("records"),
        F.min("lsn").alias("first_lsn"),
        F.max("lsn").alias("last_lsn"),
        F.sum(F.octet_length("value")).alias("value_bytes"),
    )
    records.write.mode("overwrite" if options.overwrite else "errorifexists").parquet(options.out)
    found = counted.get
    return {
        "shard": options.shard,
        "records": found["records"],
        "first_lsn": found["first_lsn"],
        "last_lsn": found["last_lsn"],
        "value_bytes": found["value_bytes"] or 0,
        "seconds": round(time.monotonic() - began_s, 3),
        "out": options.out,
    }


_MORE: Final = {
    "tls_ca": "logservice.tls.ca",
    "tls_cert": "logservice.tls.cert",
    "tls_key": "logservice.tls.key",
    "tls_server_name": "logservice.tls.serverName",
    "zone": "logservice.zone",
}


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the source that the command line gives beside the range."""
    given = {_MORE[name]: getattr(options, name) for name in _MORE}
    if options.with_columns is not None:
        given["columns"] = f"*,{options.with_columns}"
    return {name: value for name, value in given.items() if value is not None}


def check_arguments(options: argparse.Namespace) -> None:
    """Raise OptionError for what the source would refuse, before a JVM is started for it."""
    read = parse_options(
        {
            **source_options(options),
            "logservice.endpoints": options.endpoints,
            "shard": str(options.shard),
            "startingLsn": options.start,
            "endingLsn": options.end,
        }
    )
    tls_of(read)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="logservice-replay", description=__doc__)
    parser.add_argument(
        "--endpoints",
        default=os.environ.get("LOGSERVICE_ENDPOINTS", ""),
        help="host:port,host:port of the stores (LOGSERVICE_ENDPOINTS)",
    )
    parser.add_argument("--shard", required=True, type=int)
    parser.add_argument("--from", dest="start", default="earliest", metavar="LSN")
    parser.add_argument("--to", dest="end", default="latest", metavar="LSN", help="exclusive")
    parser.add_argument(
        "--with",
        dest="with_columns",
        metavar="COLUMNS",
        help=f"columns that only wide blocks have, too: {','.join(MORE_COLUMNS)}",
    )
    parser.add_argument("--out", required=True, help="where the Parquet files go")
    parser.add_argument("--partitions", type=int, default=0, help="at least so many tasks")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--zone", help="zone of the stores to read from first")
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM, on every machine")
    parser.add_argument("--tls-cert", metavar="FILE")
    parser.add_argument("--tls-key", metavar="FILE")
    parser.add_argument("--tls-server-name", metavar="NAME")
    options = parser.parse_args(arguments)
    if options.partitions < 0:
        parser.error("--partitions: a number from 0")
    try:
        check_arguments(options)
    except (OptionError, InvalidArgument) as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0 when everything was written."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    spark = SparkSession.builder.appName(f"replay of shard {options.shard}").getOrCreate()
    try:
        print(json.dumps(replay(spark, options)), flush=True)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
