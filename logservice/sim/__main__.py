"""`python -m logservice.sim`: run seeds, or replay one with a readable trace.

Exit code 1 when any seed shows a violation. A failing seed prints the one line that replays it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from logservice.sim.campaign import (
    Attacks,
    Result,
    Totals,
    ledger_line,
    read_ledger,
    run_seeds,
    world_of,
)
from logservice.sim.rogue.attacks import ATTACKS
from logservice.sim.world import World


@click.command()
@click.option("--seeds", default=100, show_default=True, help="How many seeds.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--seconds", default=0.0, help="Begin no seed after this much real time; 0: all.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Append to it; skip what it has.")
@click.option("--digest", is_flag=True, help="Print a checksum of each seed's whole trace.")
@click.option("--short", is_flag=True, help="Short worlds, as long campaigns run them.")
@click.option("--rogue", is_flag=True, help="A rogue store in every world.")
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    type=click.Choice(list(ATTACKS)),
    help="With --rogue: only these attacks.",
)
@click.option("--version", default=0, help="The highest cluster version of all stores; 0: drawn.")
@click.option("--replay", type=int, help="Run this one seed and print its trace.")
@click.option("--stop-at-first", is_flag=True, help="End at the first violation.")
def main(
    seeds: int,
    first: int,
    jobs: int,
    seconds: float,
    ledger: Path | None,
    digest: bool,
    short: bool,
    rogue: bool,
    attacks: tuple[str, ...],
    version: int,
    replay: int | None,
    stop_at_first: bool,
) -> None:
    """Simulate whole clusters with faults; every seed is another world."""
    foes: Attacks = attacks if rogue or attacks else None
    if replay is not None:
        sys.exit(_replay(replay, short=short, rogue=foes, version=version))
    lines = read_ledger(ledger) if ledger is not None else []
    kind = (short, foes is not None)
    known = {
        line["seed"]
        for line in lines
        if (line.get("short", False), line.get("rogue_asked", False)) == kind
    }
    wanted = [seed for seed in range(first, first + seeds) if seed not in known]
    totals = Totals()
    for line in lines:
        totals.add(line)
    deadline = time.monotonic() + seconds if seconds else float("inf")

    def in_time() -> Iterable[int]:
        for seed in wanted:
            if time.monotonic() > deadline:
                return
            yield seed

    failed: list[Result] = []
    console = Console(highlight=False)
    with _progress(console) as progress:
        bar = progress.add_task("seeds", total=len(wanted))
        for result in run_seeds(
            in_time(), jobs, digest=digest, short=short, rogue=foes, version=version
        ):
            line = ledger_line(result)
            totals.add(line)
            if ledger is not None:
                ledger.parent.mkdir(parents=True, exist_ok=True)
                with ledger.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            if digest:
                console.print(f"seed {result.report.seed} digest {result.report.digest:08x}")
            progress.update(
                bar, advance=1, description=f"{totals.virtual_s / 3600:.2f} cluster-hours"
            )
            if not result.ok:
                failed.append(result)
                _show_failure(console, result, foes, version)
                if stop_at_first:
                    break
    table = Table(show_header=False)
    for name, value in totals.rows():
        table.add_row(name, value)
    console.print(table)
    # Once more, where nobody has to look for it in the output of hours.
    for result in failed:
        _show_failure(console, result, foes, version)
    sys.exit(1 if failed else 0)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _show_failure(console: Console, result: Result, foes: Attacks, version: int) -> None:
    report = result.report
    console.print(f"[bold red]seed {report.seed} failed[/]: {result.config.text()}", soft_wrap=True)
    for one in report.violations:
        console.print(
            f"  {one.at_s:.6f} s {one.checker}: {one.detail}", markup=False, soft_wrap=True
        )
        if one.traceback:
            console.print(one.traceback, markup=False)
    how = f"--replay {report.seed}{' --short' if result.config.short else ''}"
    if foes is not None:
        how += " --rogue" + "".join(f" --attack {name}" for name in foes)
    if version:
        how += f" --version {version}"
    console.print(f"  replay: python -m logservice.sim {how}", soft_wrap=True)


def _replay(seed: int, *, short: bool, rogue: Attacks, version: int) -> int:
    """Print everything that happens in a seed."""
    config = world_of(seed, short=short, rogue=rogue, version=version)
    print(config.text())
    report = World(config, trace=print).run()
    for one in report.violations:
        print(f"{one.at_s:.6f} VIOLATION {one.checker}: {one.detail}\n{one.traceback}")
    print(f"digest {report.digest:08x}, {report.virtual_s:.1f} simulated seconds")
    return 1 if report.violations else 0


if __name__ == "__main__":
    main()
