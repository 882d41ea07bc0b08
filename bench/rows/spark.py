"""spark: rows per second and processor time of Spark over a log, beside Parquet files of its rows.

Spark lives in a process of its own (`spark_worker`), which waits while nothing is asked of it. The
sides take turns; the first round of each is thrown away: it pays for starting Python workers and
for the JVM's compiler. Every answer is checked against what was appended: the number of rows, the
sum of their lengths.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.rows.keeper import ROOT
from bench.rows.ours import SHARD, running
from bench.rows.row import OURS, Bout, Figure, Setting, Turn
from bench.spark.parquet import LARGE, fill

PARQUET: Final = "Parquet files"


class Worker:
    """The process with Spark; ended by `close`."""

    def __init__(self, endpoints: str, place: str, records: int, pids: list[int]) -> None:
        """`place`: a folder for the files. `pids`: of the stores."""
        words = ["--endpoints", endpoints, "--place", place, "--records", str(records)]
        words += ["--pids", ",".join(map(str, pids))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.rows.spark_worker", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def ask(self, side: str) -> dict[str, float]:
        """Run a side's queries; the values of its figure."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(side + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Spark ended: is there a Java?")
        values: dict[str, float] = json.loads(line)
        return values

    def close(self) -> None:
        """End it, and its JVM with it: the JVM ends when its standard input does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def spark(setting: Setting) -> Iterator[list[Bout]]:
    """Rows a second of a replay, and microseconds of processor time a row."""
    records = int(setting.size(2_000_000, 200_000, "rows"))
    place = setting.directory / "parquet"
    place.mkdir()
    with running(setting.directory / OURS) as ours:
        endpoints = ours.cluster.endpoints()
        setting.runner.run(fill(endpoints, SHARD, records, LARGE))
        pids = [pid for pid in ours.cluster.pids().values() if pid is not None]

        @contextmanager
        def opened() -> Iterator[Mapping[str, Turn]]:
            worker = Worker(",".join(endpoints), str(place), records, pids)
            try:

                async def turn(side: str) -> Figure:
                    values = await asyncio.to_thread(worker.ask, side)
                    return Figure(values, records)

                for side in ("log", "files"):
                    worker.ask(side)
                yield {OURS: partial(turn, "log"), PARQUET: partial(turn, "files")}
            finally:
                worker.close()

        yield [Bout(PARQUET, opened)]
    shutil.rmtree(place)
