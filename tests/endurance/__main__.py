"""`make endurance`: two hours of truncations, with an archive, a mirror, and kills.

It ends as every story does (`tests.stories`): ``endurance: all checks hold``, or ``endurance
failed:``. The seed decides what is killed when; what the processes make of it is theirs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.endurance.story import Story
from tests.stories import played


def main() -> int:
    """Run the story; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120.0, help="how long (default: 120)")
    parser.add_argument("--seed", type=int, help="of the faults and the load (default: drawn)")
    parser.add_argument("--dir", type=Path, help="where to run; kept afterwards")
    arguments = parser.parse_args()
    directory = arguments.dir or Path(tempfile.mkdtemp(prefix="logservice-endurance-"))
    seed = arguments.seed or random.SystemRandom().getrandbits(31)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    story = Story(directory, arguments.minutes * 60, seed, console.print)
    console.print(f"seed {seed}, {arguments.minutes:g} minutes")

    def run() -> None:
        story.run()
        table = Table("what", "figure", title=f"endurance, seed {seed}")
        for row in story.rows():
            table.add_row(*row)
        console.print(table)

    return played("endurance", directory, run, story.end, keep=arguments.dir is not None)


if __name__ == "__main__":
    sys.exit(main())
