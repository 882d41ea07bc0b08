"""`make demo-changes`: tables that follow PostgreSQL, each change once, while all is killed.

The last line printed is ``demo-changes: all checks hold`` (``demo-changes without Spark: all checks
hold`` where there is no Java; exit code 0), or ``demo-changes failed:`` with the reason (exit code
1). After a failure the directory of the run, with every log, is kept and named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from examples.postgres_changes.story import LONG, SHORT, Story
from examples.sqlite_wal.screen import Screen
from examples.sqlite_wal.story import remove


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="fewer transactions: CI's variant")
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-changes-"))
    screen = Screen()
    story = Story(directory, screen, SHORT if arguments.short else LONG)
    try:
        story.run()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the demo failed
        traceback.print_exc()
        screen.summary()
        print(f"files of this run: {directory}")
        print(f"demo-changes failed: {error}")
        return 1
    finally:
        story.close()
    screen.summary()
    if arguments.dir is None:
        remove(directory)
    print(f"demo-changes{'' if story.spark else ' without Spark'}: all checks hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
