"""``python -m tests.upgrade`` (``make upgrade``): play the upgrade from the last release, and back.

Exit code 0 and the last line ``upgrade: all checks hold`` only if everything held. Otherwise the
folder with the logs and the data is kept and named.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.upgrade.releases import RELEASES, install_release, install_this
from tests.upgrade.story import Broken, Phase, Story

_CONSOLE = Console(highlight=False)


@click.command()
@click.option("--release", default=next(reversed(RELEASES)), help="From which release.")
@click.option("--seed", default=0, help="Which stores are chosen; 0: drawn.")
def main(release: str, seed: int) -> None:
    """Play the story."""
    seed = seed or random.randrange(1, 1 << 31)
    work = Path(tempfile.mkdtemp(prefix="upgrade-"))
    phases: list[Phase] = []

    def tell(phase: Phase) -> None:
        phases.append(phase)
        _CONSOLE.print(f"{phase.name}: {phase.seconds:.1f} s")

    older, newer = install_release(release, work), install_this(work)
    story = Story(work, older, newer, seed, tell)
    try:
        story.play()
    except Broken as broken:
        _CONSOLE.print(f"[red]upgrade: {broken}[/red]", markup=True)
        _CONSOLE.print(f"seed {seed}; everything is kept in {work}")
        sys.exit(1)
    _CONSOLE.print(_table(release, phases))
    errors = ", ".join(f"{name} {count}" for name, count in sorted(story.ledger.errors.items()))
    acked = story.ledger.count()
    _CONSOLE.print(f"acked records: {acked:,}; calls that failed: {errors or 'none'}")
    shutil.rmtree(work)
    _CONSOLE.print("upgrade: all checks hold")


def _table(release: str, phases: list[Phase]) -> Table:
    title = f"a cluster of {release} becomes one of this tree"
    table = Table("phase", "time", "acked records", "longest time without an ack", title=title)
    for phase in phases:
        table.add_row(
            phase.name,
            f"{phase.seconds:.1f} s",
            f"{phase.acked:,}",
            "" if phase.longest_gap_s is None else f"{phase.longest_gap_s:.2f} s",
        )
    return table


if __name__ == "__main__":
    main()
