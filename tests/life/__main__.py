"""`make life`: the life of a cluster, with its logs under load.

The last line printed is ``life: all checks hold`` (exit code 0), or ``life failed:`` with the
reason (exit code 1). After a failure the files of the run, with every store's log, are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.life import hosts
from tests.life.load import Load
from tests.life.story import LONG, SHORT, Story
from tests.local_stores import kill_stores


def main() -> int:
    """Run the story; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
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
    keep_bytecode(directory)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    size = SHORT if arguments.short else LONG
    story = Story(directory, size, console.print, hosts=arguments.namespaces)
    try:
        load = asyncio.run(story.run())
    except BaseException as error:  # noqa: BLE001 - whatever it was, the story failed
        traceback.print_exc()
        print(f"files of this run: {directory}")
        print(f"life failed: {error}")
        return 1
    finally:
        kill_stores(story.cluster)
    console.print(table_of(load))
    if arguments.dir is None:
        shutil.rmtree(directory)
    print("life: all checks hold")
    return 0


def keep_bytecode(directory: Path) -> None:
    """Let the processes of the story keep what Python compiles, also where the environment forbids
    that: an installed program is compiled once, not at each of a hundred starts.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")


def table_of(load: Load) -> Table:
    """One row for each phase."""
    table = Table("phase", "seconds", "appends", "longest time without an ack", "", title="life")
    for phase in load.phases:
        longest = f"{phase.longest_s:.2f} s"
        table.add_row(phase.name, f"{phase.seconds:.1f}", f"{phase.appends}", longest, phase.note)
    return table


if __name__ == "__main__":
    sys.exit(main())
