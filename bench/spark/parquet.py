"""Spark over a log beside Spark over Parquet files of the same rows: processor time of everything.

    python -m bench.spark.parquet [--records 2000000] [--small 1500000] [--rounds 5]

Three stores; a log with blocks of 1000 records of 100 random bytes, one with blocks of three, and
the first one's rows as Parquet files. In each round, one after the other: the sum of the lengths of
all values, `count()`, and all columns to new Parquet files; from the log and from the files. Spark
reads from files only the columns that a query needs; a Python source is told them by an option. So
the log's sum is there with that option and without. Then the sum over the log with small blocks.

A cost is processor time, user and system, of Spark's driver with all its processes and of all
stores, per row, and so other work on the machine moves it little. What is compared is of one round;
printed are the median and the range of the ratios. The first round is not counted: it pays for
starting Python workers and for the JVM's compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

# Before gRPC is imported: Spark's gateway is forked from this process (see tests/conftest.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from logservice_client import LogClient, Shard
from logservice_wire.block import encode_block
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark_logservice.replay import read_log

from bench.spark.replay import session
from logservice.cli.processes.local_cluster import LocalCluster

RECORD_BYTES: Final = 100
LARGE, SMALL = 1000, 3
UNDER_WAY: Final = 64
UP_LIMIT_S: Final = 60.0
PARTITIONS: Final = 4
_TICKS_S: Final = os.sysconf("SC_CLK_TCK")
FEW: Final = "sum, log, blocks of 3"
ALL: Final = "sum, log, all columns"


class Processes:
    """Processor time of this process, all that come from it, and the stores, by what they are."""

    def __init__(self, stores: set[int]) -> None:
        """`stores`: process ids."""
        self._stores = stores

    def used_s(self) -> dict[str, float]:
        """Seconds since they began. Those that ended are counted where they were waited for."""
        parents: dict[int, tuple[int, str, float]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            words = rest.split()
            times = sum(int(one) for one in words[11:15]) / _TICKS_S
            parents[int(entry.name)] = int(words[1]), head.partition("(")[2], times
        found = {"JVM": 0.0, "Python": 0.0, "stores": 0.0}
        for pid, (_, name, times) in parents.items():
            if pid in self._stores:
                found["stores"] += times
            elif self._is_ours(pid, parents):
                found["JVM" if name == "java" else "Python"] += times
        return found

    @staticmethod
    def _is_ours(pid: int, parents: dict[int, tuple[int, str, float]]) -> bool:
        while pid in parents:
            if pid == os.getpid():
                return True
            pid = parents[pid][0]
        return False


def cost_of(processes: Processes, run: Callable[[], object]) -> dict[str, float]:
    """Seconds of processor time by what used it, their sum under ``all``, and ``wall``."""
    before, began_s = processes.used_s(), time.perf_counter()
    run()
    wall_s = time.perf_counter() - began_s
    used = {name: after - before[name] for name, after in processes.used_s().items()}
    return {**used, "all": sum(used.values()), "wall": wall_s}


async def fill(endpoints: list[str], shard: int, records: int, block_records: int) -> None:
    """Append `records` records of random bytes."""

    async def one(log: Shard) -> None:
        for _ in blocks:
            chunk = os.urandom(RECORD_BYTES * block_records)
            cut = range(0, len(chunk), RECORD_BYTES)
            values = [chunk[start : start + RECORD_BYTES] for start in cut]
            await log.append_block(encode_block(values, time.time_ns() // 1000))

    blocks = iter(range(records // block_records))
    async with LogClient(endpoints) as client:
        await asyncio.gather(*(one(client.shard(shard)) for _ in range(UNDER_WAY)))


def length(frame: DataFrame) -> int:
    """The sum of the lengths of all values."""
    row = frame.agg(F.sum(F.octet_length("value"))).first()
    assert row is not None
    return int(row[0])


class Bench:
    """The logs, the files, and what is measured of them."""

    def __init__(self, spark: SparkSession, endpoints: str, place: Path, records: int) -> None:
        """`records`: of the log with large blocks."""
        self._spark, self._endpoints, self._place = spark, endpoints, place
        self._records = records

    def log(self, shard: int, **more: str) -> DataFrame:
        """A new frame: a plan is a frame's own."""
        return read_log(self._spark, self._endpoints, shard, partitions=PARTITIONS, more={**more})

    def files(self) -> DataFrame:
        """The same rows as files."""
        return self._spark.read.parquet(str(self._place / "rows"))

    def write(self, frame: DataFrame, name: str) -> None:
        """All columns."""
        frame.write.mode("overwrite").parquet(str(self._place / name))

    def counted(self, frame: DataFrame) -> None:
        """`count()`."""
        assert frame.count() == self._records

    def added(self, frame: DataFrame, records: int) -> None:
        """The sum of the lengths."""
        assert length(frame) == records * RECORD_BYTES


def measure(bench: Bench, processes: Processes, options: argparse.Namespace) -> None:
    """Run all rounds and print."""
    records = options.records
    arms: dict[str, Callable[[], object]] = {
        "sum, log": lambda: bench.added(bench.log(1, columns="value"), records),
        ALL: lambda: bench.added(bench.log(1), records),
        "sum, files": lambda: bench.added(bench.files(), records),
        "count, log": lambda: bench.counted(bench.log(1, columns="lsn")),
        "count, files": lambda: bench.counted(bench.files()),
        "to Parquet, log": lambda: bench.write(bench.log(1), "from-log"),
        "to Parquet, files": lambda: bench.write(bench.files(), "from-files"),
        FEW: lambda: bench.added(bench.log(2, columns="value"), options.small),
    }
    rows = {name: options.small if name == FEW else records for name in arms}
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for number in range(options.rounds + 1):
        for name, run in arms.items():
            cost = cost_of(processes, run)
            print(f"round {number}, {name}: " + _words(cost, rows[name]), flush=True)
            if number:
                costs[name].append(cost)
    print("\nmedians, microseconds of processor time per row")
    for name, some in costs.items():
        middle = {part: statistics.median(one[part] for one in some) for part in some[0]}
        print(f"{name}: {_words(middle, rows[name])}")
    print("\nratios of one round: median (range)")
    for what in ("sum", "count", "to Parquet"):
        _ratio(f"{what}, log to files", costs[f"{what}, log"], costs[f"{what}, files"], 1.0)
    _ratio(f"{ALL}, to files", costs[ALL], costs["sum, files"], 1.0)
    scale = records / options.small
    _ratio("a row of blocks of 3 to one of 1000", costs[FEW], costs["sum, log"], scale)


def _ratio(
    what: str, above: list[dict[str, float]], below: list[dict[str, float]], scale: float
) -> None:
    some = [scale * a["all"] / b["all"] for a, b in zip(above, below, strict=True)]
    print(f"{what}: {statistics.median(some):.2f} ({min(some):.2f} - {max(some):.2f})")


def _words(cost: dict[str, float], rows: int) -> str:
    parts = [f"{name} {1e6 * cost[name] / rows:.3f}" for name in ("all", "JVM", "Python", "stores")]
    return f"{', '.join(parts)} us a row; {rows / cost['wall']:,.0f} rows/s"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--small", type=int, default=1_500_000, help="records in blocks of 3")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="logservice-parquet-"))
    cluster = LocalCluster.create(place / "cluster", stores=3)
    try:
        cluster.up(UP_LIMIT_S)
        endpoints = cluster.endpoints()
        asyncio.run(logs(endpoints, options))
        spark = session(2)
        bench = Bench(spark, ",".join(endpoints), place, options.records)
        bench.write(bench.log(1), "rows")
        pids = {pid for pid in cluster.pids().values() if pid is not None}
        measure(bench, Processes(pids), options)
        spark.stop()
    finally:
        cluster.kill_all()
        shutil.rmtree(place)


async def logs(endpoints: list[str], options: argparse.Namespace) -> None:
    """Fill both logs; the cluster was made with the first one."""
    async with LogClient(endpoints) as client:
        await client.hakeeper.create_shard(shard_id=2)
    await fill(endpoints, 1, options.records, LARGE)
    await fill(endpoints, 2, options.small, SMALL)


if __name__ == "__main__":
    main()
