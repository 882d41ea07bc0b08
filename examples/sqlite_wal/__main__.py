"""`make demo`: a database's WAL survives killed stores and is replayed on Spark.

The last line printed is ``demo: all checks hold`` (exit code 0), ``demo without Spark: all checks
hold`` where there is no Java (an error when CI=true: there Spark must be part of it), or ``demo
failed:`` with the reason (exit code 1). It is words, because a bare PASS is the closing line of
another language's test runner. After a failure the directory of the run, with every store's log, is
kept and named.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from examples.demo.ending import played
from examples.demo.screen import Screen
from examples.sqlite_wal.story import Story


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-demo-"))
    screen = Screen()
    story = Story(directory, screen)
    with_spark = True

    def run() -> str:
        nonlocal with_spark
        with_spark = story.run()
        return "" if with_spark else " without Spark"

    keep = arguments.dir is not None
    code = played("demo", directory, screen, run, story.close, keep=keep)
    return code if with_spark or os.environ.get("CI") != "true" else 1


if __name__ == "__main__":
    sys.exit(main())
