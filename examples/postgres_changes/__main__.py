"""`make demo-changes`: tables that follow PostgreSQL, each change once, while all is killed.

The last line printed is ``demo-changes: all checks hold`` (``demo-changes without Spark: all checks
hold`` where there is no Java; exit code 0), or ``demo-changes failed:`` with the reason (exit code
1). After a failure the directory of the run, with every log, is kept and named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from examples.demo.ending import played
from examples.demo.screen import Screen
from examples.postgres_changes.story import LONG, SHORT, Story


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer transactions: CI's variant")
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-changes-"))
    screen = Screen()
    story = Story(directory, screen, SHORT if arguments.short else LONG)

    def run() -> str:
        story.run()
        return "" if story.spark else " without Spark"

    keep = arguments.dir is not None
    return played("demo-changes", directory, screen, run, story.close, keep=keep)


if __name__ == "__main__":
    sys.exit(main())
