"""``python -m tests.crash``: runs the scenarios, or random ones into a ledger, or one state again.

The exit code is 1 when a state does not pass; each such state prints the one line that replays it.
With ``--ledger`` random scenarios go on where the file ends, until it holds ``--states``.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.crash.campaign import Outcome, run, work_directory
from tests.crash.scenarios import SCENARIOS

RANDOM = 12
"""Random scenarios that run beside the written ones by default: with them `make crash` reaches its
minimum of states."""

_CONSOLE = Console(highlight=False, width=120)


def _run_all(names: Iterable[str], jobs: int, *, pairs: bool, work: Path) -> Iterator[Outcome]:
    one = partial(run, work=work, pairs=pairs)
    if jobs == 1:
        yield from map(one, names)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(one, name) for name in names]):
            yield done.result()


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="crash states")
    table.add_column("scenario")
    for column in ("calls", "moments", "built", "distinct, opened", "failed"):
        table.add_column(column, justify="right")
    for found in outcomes:
        figures = (found.calls, found.moments, found.built, found.states, len(found.failures))
        table.add_row(found.scenario, *(f"{figure:,}" for figure in figures))
    sums = [sum(getattr(o, name) for o in outcomes) for name in ("calls", "moments", "built")]
    total = sum(o.states for o in outcomes), sum(len(o.failures) for o in outcomes)
    table.add_row("total", *(f"{figure:,}" for figure in (*sums, *total)))
    return table


def _from_ledger(ledger: Path, states: int, work: Path) -> list[Outcome]:
    """Run random scenarios with pairs, and note each when it ends.

    A scenario that failed is not done: it runs again first, so that a ledger never looks green
    because its failures are old.
    """
    known = {}
    if ledger.exists():
        lines = map(json.loads, ledger.read_text("utf-8").splitlines())
        known = {line["scenario"]: line for line in lines}
    failed = [name for name, line in known.items() if line["failures"]]
    done = known.keys() - set(failed)
    total = sum(known[name]["states"] for name in done)
    outcomes = []
    ledger.parent.mkdir(parents=True, exist_ok=True)
    names = itertools.chain(failed, SCENARIOS, (f"random-{s}" for s in itertools.count(1)))
    for place, name in enumerate(names):
        if total >= states and place >= len(failed):
            break
        if name in done or (place >= len(failed) and name in failed):
            continue
        started = time.monotonic()
        found = run(name, work, pairs=True)
        total += found.states
        outcomes.append(found)
        line = {
            "scenario": name,
            "calls": found.calls,
            "moments": found.moments,
            "built": found.built,
            "states": found.states,
            "failures": found.failures,
            "seconds": round(time.monotonic() - started, 1),
        }
        with ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{name}: {found.states} states, {len(found.failures)} failed; {total} in the ledger",
            flush=True,
        )
    return outcomes


@click.command()
@click.option("--only", multiple=True, help="A scenario, or random-SEED; default: all.")
@click.option("--random", default=RANDOM, show_default=True, help="Random ones beside the others.")
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--pairs", is_flag=True, help="Also drop any two un-synced changes.")
@click.option("--ledger", type=click.Path(path_type=Path), help="Go on where it ends.")
@click.option("--states", default=200_000, show_default=True, help="States a ledger is to hold.")
@click.option("--minimum", default=0, help="Fail when fewer states were opened.")
@click.option("--replay", help="SCENARIO:CALL:STATE, as a failure prints it.")
def main(
    only: tuple[str, ...],
    random: int,
    jobs: int,
    pairs: bool,
    ledger: Path | None,
    states: int,
    minimum: int,
    replay: str | None,
) -> None:
    """Open what a crash can leave behind at every moment of every scenario."""
    started, work = time.monotonic(), work_directory()
    if replay is not None:
        run(replay.partition(":")[0], work, pairs="pair-" in replay, only=replay)
        _CONSOLE.print(f"{replay} passes")
        return
    if ledger is not None:
        outcomes = _from_ledger(ledger, states, work)
    else:
        names = only or (*SCENARIOS, *(f"random-{seed}" for seed in range(1, random + 1)))
        outcomes = list(_run_all(names, jobs, pairs=pairs, work=work))
    _CONSOLE.print(_table(outcomes))
    opened = sum(found.states for found in outcomes)
    print(f"{opened} states in {time.monotonic() - started:.0f} s")
    failures = [failure for found in outcomes for failure in found.failures]
    for failure in failures:
        print(failure)
    if failures:
        print(f"recordings kept in {work}")
        sys.exit(1)
    work.rmdir()
    if opened < minimum:
        print(f"that is fewer than {minimum}")
        sys.exit(1)


if __name__ == "__main__":
    main()
