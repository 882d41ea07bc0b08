"""`make life`: the life of a cluster, with its logs under load.

It ends as every story does (`tests.stories`): ``life: all checks hold``, or ``life failed:``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.life import hosts
from tests.life.load import Load
from tests.life.story import LONG, SHORT, Story
from tests.local_stores import kill_stores
from tests.stories import played


def main() -> int:
    """Run the story; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer logs, fewer steps")
    parser.add_argument("--namespaces", action="store_true", help="a host for each store")
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    if arguments.namespaces and (reason := hosts.refusal()):
        print(f"life: this machine permits no hosts: {reason}")
        return 0
    if arguments.namespaces:
        hosts.enter()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-life-"))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    size = SHORT if arguments.short else LONG
    story = Story(directory, size, console.print, hosts=arguments.namespaces)
    return played(
        "life",
        directory,
        lambda: console.print(table_of(asyncio.run(story.run()))),
        lambda: kill_stores(story.cluster),
        keep=arguments.dir is not None,
    )


def table_of(load: Load) -> Table:
    """One row for each phase."""
    table = Table("phase", "seconds", "appends", "longest time without an ack", "", title="life")
    for phase in load.phases:
        longest = f"{phase.longest_s:.2f} s"
        table.add_row(phase.name, f"{phase.seconds:.1f}", f"{phase.appends}", longest, phase.note)
    return table


if __name__ == "__main__":
    sys.exit(main())
