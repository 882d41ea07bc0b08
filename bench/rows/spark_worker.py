"""spark_worker: the process with Spark of the row `spark`: a word comes in, JSON goes out.

Costs are processor time, user and system, of Spark's driver with all its processes and of all
stores (`bench.spark.parquet`).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from bench.spark.parquet import Bench, Processes, cost_of
from bench.spark.replay import session, touch

CORES = 2


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--endpoints", required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--pids", required=True)
    options = parser.parse_args()
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever else is printed is no answer
    spark = session(CORES)
    bench = Bench(spark, options.endpoints, options.place, options.records)
    bench.write(bench.log(1), "rows")
    processes = Processes({int(pid) for pid in options.pids.split(",")})
    for line in sys.stdin:
        values = measured(bench, processes, options.records, log=line.strip() == "log")
        answers.write(json.dumps(values) + "\n")
        answers.flush()
    spark.stop()


def measured(bench: Bench, processes: Processes, records: int, *, log: bool) -> dict[str, float]:
    """A replay that touches every column, a sum over one column, a count."""

    def frame(columns: str) -> DataFrame:
        if not log:
            return bench.files()
        return bench.log(1, columns=columns) if columns else bench.log(1)

    def replay() -> None:
        rows, size = touch(frame(""))
        assert (rows, size) == (records, records * 100)

    replayed = cost_of(processes, replay)
    summed = cost_of(processes, lambda: bench.added(frame("value"), records))
    counted = cost_of(processes, lambda: bench.counted(frame("lsn")))
    return {
        "rate": records / replayed["wall"],
        "aggregate_us": 1e6 * summed["all"] / records,
        "count_us": 1e6 * counted["all"] / records,
    }


if __name__ == "__main__":
    main()
