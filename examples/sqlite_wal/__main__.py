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
import traceback
from pathlib import Path

from examples.sqlite_wal.screen import Screen
from examples.sqlite_wal.story import Story, remove


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-demo-"))
    screen = Screen()
    story = Story(directory, screen)
    try:
        with_spark = story.run()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the demo failed
        traceback.print_exc()
        screen.summary()
        print(f"files of this run: {directory}")
        print(f"demo failed: {error}")
        return 1
    finally:
        story.close()
    screen.summary()
    if arguments.dir is None:
        remove(directory)
    if with_spark:
        print("demo: all checks hold")
        return 0
    print("demo without Spark: all checks hold")
    return 1 if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
