"""Getting the shard back: the replay job on Spark, or the plain client where there is no Java.

Spark's workers must run the environment's own interpreter, and everything stays on loopback.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyspark_logservice

from examples.demo.screen import DemoFailed

SUBMIT_TIMEOUT_S = 600
"""Against hanging: on a busy machine it takes a minute."""
CORES = 2
PARTITIONS = 4


def java_is_here() -> bool:
    """Whether Spark can run."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (
        home is not None and Path(home, "bin/java").exists()
    )


def _words(options: Mapping[str, str]) -> Iterator[str]:
    return chain.from_iterable(options.items())


def replay_on_spark(
    endpoints: Sequence[str], shard: int, first_lsn: int, next_lsn: int, out: Path
) -> dict[str, Any]:
    """Run the replay job by spark-submit for ``[first_lsn, next_lsn)``: Parquet files below `out`.

    Returns what the job says of itself. Raises DemoFailed with the reason from the job's log.
    """
    job = Path(pyspark_logservice.__file__).with_name("replay.py")
    submit = str(Path(sys.executable).with_name("spark-submit"))
    spark_options = {"--master": f"local[{CORES}]", "--conf": "spark.ui.enabled=false"}
    job_options = {
        "--endpoints": ",".join(endpoints),
        "--shard": str(shard),
        "--from": str(first_lsn),
        "--to": str(next_lsn),
        "--partitions": str(PARTITIONS),
        "--out": str(out),
    }
    command = [submit, *_words(spark_options), str(job), *_words(job_options)]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = out.with_suffix(".log")
    with open(log, "wb") as errors:
        done = subprocess.run(
            command,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=SUBMIT_TIMEOUT_S,
        )
    if done.returncode != 0:
        reasons = first_python_error(log.read_text(encoding="utf-8", errors="replace"))
        raise DemoFailed(f"spark-submit ended with {done.returncode} (see {log}):\n{reasons}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def first_python_error(log: str) -> str:
    """The first Python traceback among Spark's own lines; else the end of the log."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback"):
            end = number + 1
            while end < len(lines) and lines[end].startswith(" "):
                end += 1
            return "\n".join(lines[number : end + 1])
    return "\n".join(lines[-20:])
