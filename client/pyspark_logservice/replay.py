"""The replay job: an LSN range of a shard to Parquet or into a Delta table, in parallel.

    spark-submit pyspark_logservice/replay.py --endpoints HOST:PORT --shard 1 --from 1001 --out DIR
    spark-submit ... --shard 1 --out TABLE --format delta --job nightly
    python -m pyspark_logservice.replay ...

``--from`` is where recovery starts: the checkpoint LSN of the database. The range includes it and
excludes ``--to``. Into a Delta table the job brings what the table does not have yet, each LSN once
(`replay_table`), so it can be run again, also after it was killed. The job prints one line of JSON
with what was read, once that is safely written. Endpoints and TLS files may stand in the
environment instead, as for `logctl` (`LOGSERVICE_ENDPOINTS`, `LOGSERVICE_TLS_*`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from logservice_client.table_position import check_job
from logservice_wire.errors import InvalidArgument, LogServiceError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from pyspark_logservice.checks import EARLIEST, LATEST, OptionError
from pyspark_logservice.logs import Logs
from pyspark_logservice.options import MORE_COLUMNS, ReadOptions, parse_options
from pyspark_logservice.replay_table import (
    FORMAT,
    ReplayedLog,
    ReplayTable,
    TableError,
)

FAILED: Final = 1


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
    if options.format == FORMAT:
        written = _into_table(spark, options, counted)
    else:
        written = True
        mode = "overwrite" if options.overwrite else "errorifexists"
        rows = _rows(spark, options, options.start, options.end)
        _counted(rows, counted).write.mode(mode).parquet(options.out)
    found = counted.get if written else {"records": 0, "first_lsn": None, "last_lsn": None}
    return {
        "shard": options.shard,
        "records": found["records"],
        "first_lsn": found["first_lsn"],
        "last_lsn": found["last_lsn"],
        "value_bytes": found.get("value_bytes") or 0,
        "seconds": round(time.monotonic() - began_s, 3),
        "out": options.out,
    }


def _into_table(spark: SparkSession, options: argparse.Namespace, counted: Observation) -> bool:
    """Whether there was anything that the table did not have. Raises TableError, LineageChanged."""
    read = read_options(options)
    with Logs(read) as logs:
        found = logs.standings([options.shard])[options.shard]
        cluster = logs.client.hakeeper.cluster_state(timeout=read.rpc_timeout_s)
        log = ReplayedLog(
            cluster.cluster_id, options.shard, found.lineage, found.parent, options.job
        )
        table = ReplayTable(spark, options.out, log)
        start, end = read.starting.of(options.shard), read.ending.of(options.shard)
        first = table.first_lsn(found.first_lsn if start == EARLIEST else start)
        end = found.next_lsn if end == LATEST else end
        if first >= end:
            return False
        rows = _rows(spark, options, str(first), str(end))
        # The frame has its plan from here on, and the plan its lineage, which tasks hold stores to.
        # So if the log is of the same lineage behind it, the rows are of that one (INV-REPLAYED-2).
        rows.rdd.getNumPartitions()
        now = logs.standings([options.shard])[options.shard].lineage
        if now != found.lineage:
            raise TableError("the log was continued by force meanwhile; run the job again")
        table.append(_counted(rows, counted), end - 1)
    return True


def _rows(spark: SparkSession, options: argparse.Namespace, start: str, end: str) -> DataFrame:
    return read_log(
        spark,
        options.endpoints,
        options.shard,
        start=start,
        end=end,
        partitions=options.partitions,
        more=source_options(options),
    )


def _counted(rows: DataFrame, counted: Observation) -> DataFrame:
    return rows.observe(
        counted,
        F.count("lsn").alias("records"),
        F.min("lsn").alias("first_lsn"),
        F.max("lsn").alias("last_lsn"),
        F.sum(F.octet_length("value")).alias("value_bytes"),
    )


_MORE: Final = {
    "tls_ca": "logservice.tls.ca",
    "tls_cert": "logservice.tls.cert",
    "tls_key": "logservice.tls.key",
    "tls_server_name": "logservice.tls.serverName",
    "token_file": "logservice.token.file",
    "zone": "logservice.zone",
}


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the source that the command line gives beside the range."""
    given = {_MORE[name]: getattr(options, name) for name in _MORE}
    if options.with_columns is not None:
        given["columns"] = f"*,{options.with_columns}"
    return {name: value for name, value in given.items() if value is not None}


def read_options(options: argparse.Namespace) -> ReadOptions:
    """What the source will be asked for. Raises OptionError for what it would refuse."""
    return parse_options(
        {
            **source_options(options),
            "logservice.endpoints": options.endpoints,
            "shard": str(options.shard),
            "startingLsn": options.start,
            "endingLsn": options.end,
        }
    )


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
    parser.add_argument("--out", required=True, help="where the Parquet files go, or the table is")
    parser.add_argument("--format", choices=("parquet", FORMAT), default="parquet")
    parser.add_argument(
        "--job", help="the name under which a Delta table keeps how far it is (replay)"
    )
    parser.add_argument(
        "--with",
        dest="with_columns",
        metavar="COLUMNS",
        help=f"columns that only wide blocks have, too: {','.join(MORE_COLUMNS)}",
    )
    parser.add_argument("--partitions", type=int, default=0, help="at least so many tasks")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--zone", help="zone of the stores to read from first")
    parser.add_argument("--tls-ca", metavar="FILE", help="PEM, on every machine")
    parser.add_argument("--tls-cert", metavar="FILE")
    parser.add_argument("--tls-key", metavar="FILE")
    parser.add_argument("--tls-server-name", metavar="NAME")
    parser.add_argument("--token-file", metavar="FILE", help="a bearer token, on every machine")
    options = parser.parse_args(arguments)
    if options.partitions < 0:
        parser.error("--partitions: a number from 0")
    if options.format == FORMAT and options.overwrite:
        parser.error("--overwrite: a Delta table is appended to")
    if options.format != FORMAT and options.job is not None:
        parser.error("--job is for --format delta")
    options.job = "replay" if options.job is None else options.job
    try:
        check_job(options.job)
        # Before a JVM is started for it.
        read_options(options).tls()
    except (OptionError, InvalidArgument) as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0 when everything was written."""
    options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    spark = SparkSession.builder.appName(f"replay of shard {options.shard}").getOrCreate()
    try:
        print(json.dumps(replay(spark, options)), flush=True)
    except (TableError, LogServiceError) as error:
        return _failed(str(error))
    except PySparkException as error:
        # What the source refused is the first line; what Spark made of it stands below.
        return _failed(str(error).partition("\n")[0])
    finally:
        spark.stop()
    return 0


def _failed(said: str) -> int:
    print(f"logservice-replay: {said}", file=sys.stderr, flush=True)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
