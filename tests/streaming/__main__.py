"""`make demo-stream`: a streaming read, a streaming write and a Delta table while all is killed.

It ends as every story does (`tests.stories`): ``demo-stream: all checks hold``, or
``demo-stream failed:``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

# Before gRPC is imported: the query's program is forked from this process (see tests/conftest.py).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from rich.console import Console
from rich.table import Table

from tests.programs import check
from tests.stories import played
from tests.streaming.story import FAULTS, Seen, Story


def main() -> int:
    """Run the story; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="kills of each kind")
    parser.add_argument("--minutes", type=float, default=0.0, help="and more until these are over")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-stream-"))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    story = Story(
        directory,
        arguments.seed,
        console.print,
        rounds=arguments.rounds,
        minutes=arguments.minutes,
    )

    def run() -> None:
        check(shutil.which("java") or "JAVA_HOME" in os.environ, "Spark needs a Java runtime")
        story.run()
        console.print(table_of(story.seen))

    return played("demo-stream", directory, run, story.end, keep=arguments.dir is not None)


def table_of(seen: Seen) -> Table:
    """What was killed, and what came of it."""
    table = Table("what", "", title="demo-stream")
    for fault in FAULTS:
        longest = max(seen.recovered_s.get(fault, [0.0]))
        table.add_row(fault, f"killed {seen.kills[fault]} times; at most {longest:.1f} s")
    table.add_row("under kills for", f"{seen.minutes:.1f} minutes")
    table.add_row("processes killed", str(seen.processes))
    table.add_row("micro-batches", f"{seen.batches}, {seen.again} of them begun again")
    table.add_row("the query ended", f"{seen.ended} times by itself, and went on")
    table.add_row("the driver gave up", f"{seen.gave_up} times, and another one went on")
    for name, records in seen.records.items():
        table.add_row(name, f"{records} LSNs, each once")
    table.add_row("acked", f"{seen.acked} records, all there")
    table.add_row("gaps", f"{seen.gap_lsns} LSNs")
    table.add_row("written to another log", f"{seen.copied} records, each once")
    table.add_row("in the Delta table", f"the same, each once, in {seen.versions} commits")
    return table


if __name__ == "__main__":
    sys.exit(main())
