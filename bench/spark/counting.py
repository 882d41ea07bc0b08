"""Seconds of `count()` over a log without its values, beside another release of the client.

    python -m bench.spark.counting [--before DIR] [--records 300000] [--size 1000] [--rounds 7]

Three stores and a log. In each round, one after the other, `count()` by the source of DIR (the
folder `client` of another checkout; without it only this one is measured) and by this one, both
with ``includeValue=false``, and by this one with all columns. Each source has a Spark of its own,
with two tasks at a time, which waits while the other one works. The first round is not counted: it
pays for starting Python workers. A ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

# Before gRPC is imported: Spark's gateway is forked from this process (see tests/conftest.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from bench.spark.replay import ROOT, fill, session
from logservice.cli.processes.local_cluster import LocalCluster

HERE: Final = ROOT / "client"
UP_LIMIT_S: Final = 60.0


class Source:
    """A Spark of its own, in a process, with the client of a folder."""

    def __init__(self, client: Path, endpoints: str) -> None:
        """It is ready once the first count is answered."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark.counting", "--serve", endpoints],
            cwd=ROOT,
            env={**os.environ, "BENCH_CLIENT": str(client)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def count(self, **options: str) -> tuple[int, float]:
        """Rows, and seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(options) + "\n")
        self._process.stdin.flush()
        rows, seconds = json.loads(self._process.stdout.readline())
        return rows, seconds

    def close(self) -> None:
        """It ends when nobody asks any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(endpoints: str) -> None:
    """Count as often as a line with options comes."""
    spark = session(2, Path(os.environ["BENCH_CLIENT"]))
    for line in sys.stdin:
        began_s = time.perf_counter()
        reader = spark.read.format("logservice").option("logservice.endpoints", endpoints)
        rows = reader.options(shard="1", minPartitions="4", **json.loads(line)).load().count()
        print(json.dumps([rows, time.perf_counter() - began_s]), flush=True)
    spark.stop()


def measure(endpoints: str, options: argparse.Namespace) -> None:
    """Run all rounds, and print medians and ratios."""
    now = Source(HERE, endpoints)
    before = Source(options.before, endpoints) if options.before else None
    took: dict[str, list[float]] = {}
    try:
        for number in range(options.rounds + 1):
            arms = {"no values, before": before} if before else {}
            arms |= {"no values": now, "all columns": now}
            for name, source in arms.items():
                more = {} if name == "all columns" else {"includeValue": "false"}
                rows, seconds = source.count(**more)
                assert rows == options.records, rows
                print(f"round {number}, {name}: {seconds:.2f} s", flush=True)
                if number:
                    took.setdefault(name, []).append(seconds)
    finally:
        for one in (now, before):
            if one is not None:
                one.close()
    base = statistics.median(took["no values"])
    for name, some in took.items():
        middle = statistics.median(some)
        print(
            f"{name}: median {middle:.2f} s ({min(some):.2f} - {max(some):.2f}), "
            f"{options.records / middle:,.0f} rows/s, {middle / base:.2f} times 'no values'"
        )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, help="folder `client` of another checkout")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--block", type=int, default=100, help="records per block")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", metavar="ENDPOINTS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    with tempfile.TemporaryDirectory(prefix="logservice-count-") as directory:
        cluster = LocalCluster.create(Path(directory) / "cluster", stores=3)
        try:
            cluster.up(UP_LIMIT_S)
            endpoints = ",".join(cluster.endpoints())
            fill(endpoints, 1, options.records, options.size, options.block)
            measure(endpoints, options)
        finally:
            cluster.kill_all()


if __name__ == "__main__":
    main()
