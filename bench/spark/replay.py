"""Rows per second of the Spark source alone, against stores in memory or a running cluster.

    python -m bench.spark.replay [--records 3000000] [--size 100] [--rounds 3]
    python -m bench.spark.replay --endpoints HOST:PORT,... --shard 1 --from earliest

Without ``--endpoints`` the test suite's fake stores serve blocks from memory in a process of their
own, so that the figure is Spark's and the client's. Every round reads all rows and touches every
value (sum of lengths, minimum and maximum LSN). The first round pays for starting Python workers.
It sets PYSPARK_PYTHON (this interpreter) and SPARK_LOCAL_IP (loopback) for Spark itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Before gRPC is imported: Spark's gateway is forked from this process (see tests/conftest.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from logservice_client import SyncLogClient
from logservice_wire.block import encode_block
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark_logservice.replay import read_log

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def memory_stores(stores: int) -> Iterator[str]:
    """Endpoints of fake stores in another process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.client.fake_server", "--stores", str(stores)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def fill(endpoints: str, shard: int, records: int, size: int, block_records: int) -> None:
    """Append `records` records of `size` bytes."""
    block = encode_block([bytes(size)] * block_records, time.time_ns() // 1000)
    with SyncLogClient(endpoints) as client:
        handle = client.shard(shard)
        for _ in range(records // block_records):
            handle.append_block(block)


def session(cores: int, client: Path = ROOT / "client") -> SparkSession:
    """A local Spark without its web page, with the source that lies in `client`."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(client), str(ROOT)])
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("replay bench")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def touch(frame: DataFrame) -> tuple[int, int]:
    """Read every row; the number of rows and of value bytes."""
    row = frame.agg(
        F.count("lsn").alias("rows"),
        F.sum(F.octet_length("value")).alias("size"),
        F.min("lsn"),
        F.max("lsn"),
        F.min("timestamp"),
    ).first()
    assert row is not None
    return row["rows"], row["size"] or 0


def measure(endpoints: str, options: argparse.Namespace) -> None:
    """Run all rounds and print the summary."""
    spark = session(options.cores)
    rates = []
    try:
        for number in range(options.rounds + 1):
            began_s = time.perf_counter()
            frame = read_log(
                spark, endpoints, options.shard, start=options.start, partitions=options.partitions
            )
            rows, size = touch(frame)
            took_s = time.perf_counter() - began_s
            name = "warm-up" if number == 0 else f"round {number}"
            print(
                f"{name}: {rows:,} rows, {size / 1e6:,.0f} MB in {took_s:.2f} s: "
                f"{rows / took_s:,.0f} rows/s, {size / took_s / 1e6:,.0f} MB/s",
                flush=True,
            )
            if number:
                rates.append(rows / took_s)
    finally:
        spark.stop()
    print(f"median {statistics.median(rates):,.0f} rows/s on {options.cores} cores")


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--endpoints", default="", help="a running cluster; else stores in memory")
    parser.add_argument("--shard", type=int, default=1)
    parser.add_argument("--from", dest="start", default="earliest")
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--block", type=int, default=1000, help="records per block")
    parser.add_argument("--stores", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.endpoints:
        measure(options.endpoints, options)
        return
    with memory_stores(options.stores) as endpoints:
        fill(endpoints, options.shard, options.records, options.size, options.block)
        measure(endpoints, options)


if __name__ == "__main__":
    main()
