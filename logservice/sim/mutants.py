"""Mutants: seeded bugs, each of which the simulator must find. They test the tester.

A mutant is applied inside the simulating process only, from outside, by replacing a function or a
method; the product code has no hooks for it. `python -m logservice.sim.mutants` runs each one in a
process of its own over the same short seeds (the un-mutated code passes them) until a checker
speaks, and prints what killed it, and after how many seeds. Exit code 1 when one survives.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from logservice.sim.campaign import processor_limit
from logservice.sim.config import draw
from logservice.sim.mutations import MUTATIONS, WORLDS
from logservice.sim.world import World

SEEDS_MAX = 400
"""Seeds that a mutant may survive."""

SEED_CPU_MAX_S = 30.0
"""A mutant may make the world spin; that counts as noticed."""


@dataclass(frozen=True, slots=True)
class Killed:
    """`seeds`: how many it took; 0: it survived."""

    name: str
    seeds: int
    checker: str
    detail: str


def hunt(name: str, first: int, seeds: int) -> Killed:
    """Apply a mutation to this process, for good, and simulate until somebody notices."""
    logging.disable(logging.CRITICAL)
    MUTATIONS[name]()
    for number, seed in enumerate(range(first, first + seeds), 1):
        config = draw(seed, short=True)
        if name in WORLDS:
            WORLDS[name](config)
        try:
            with processor_limit(SEED_CPU_MAX_S):
                report = World(config).run()
        except BaseException as error:  # noqa: BLE001 - an invariant stopped the world itself
            return Killed(name, number, "world", repr(error))
        if report.violations:
            one = report.violations[0]
            return Killed(name, number, one.checker, one.detail)
    return Killed(name, 0, "", "")


def hunt_all(
    names: Sequence[str], first: int, seeds: int, jobs: int, done: Callable[[Killed], None]
) -> list[Killed]:
    """Every mutant, each in a fresh process."""
    results = []
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for future in [pool.submit(hunt, name, first, seeds) for name in names]:
            results.append(future.result())
            done(results[-1])
    return results


@click.command()
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--seeds", default=SEEDS_MAX, show_default=True, help="Seeds a mutant may survive.")
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--only", multiple=True, help="Names of mutants; all without it.")
def main(first: int, seeds: int, jobs: int, only: tuple[str, ...]) -> None:
    """Kill every mutant."""
    names = list(only) or list(MUTATIONS)
    console = Console(highlight=False)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("mutants", total=len(names))

        def show(one: Killed) -> None:
            progress.advance(bar)
            if not console.is_terminal:
                console.print(f"{one.name}: {one.seeds or 'SURVIVED'} {one.checker}")

        results = hunt_all(names, first, seeds, jobs, show)
    table = Table("mutant", "seeds", "checker", "what it saw")
    for one in results:
        verdict = str(one.seeds) if one.seeds else "SURVIVED"
        table.add_row(one.name, verdict, one.checker, one.detail[:90])
    console.print(table)
    counts = sorted(one.seeds for one in results if one.seeds)
    median = counts[len(counts) // 2] if counts else 0
    console.print(f"killed {len(counts)} of {len(results)}, median {median} seeds")
    sys.exit(0 if len(counts) == len(results) else 1)


if __name__ == "__main__":
    main()
