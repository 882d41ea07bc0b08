"""`make recovery`: a database goes on after its cluster lost a majority, and after it lost all.

It ends as every story does (`tests.stories`): ``recovery: all checks hold``, or ``recovery
failed:``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.recovery.story import LONG, SHORT, Step, Story
from tests.stories import played


def main() -> int:
    """Run the story; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer logs, fewer transactions")
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-recovery-"))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    story = Story(directory, SHORT if arguments.short else LONG, console.print)

    def run() -> None:
        story.run()
        console.print(table_of(story.steps))

    return played("recovery", directory, run, story.end, keep=arguments.dir is not None)


def table_of(steps: list[Step]) -> Table:
    """One row for each step."""
    table = Table("step", "seconds", "", title="recovery")
    for step in steps:
        table.add_row(step.name, f"{step.seconds:.1f}", step.note)
    table.add_row("in all", f"{sum(step.seconds for step in steps):.1f}", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
