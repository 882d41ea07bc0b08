"""Command line of chaos runs: ``python -m tests.chaos --kills 30`` (``make chaos KILLS=30``).

Exit code 0 only if no rule is broken, no process ended by itself, and enough records were acked. On
failure the history, the data and the logs are kept and the command that repeats the plan is
printed.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.nemesis import Wanted, plan
from tests.chaos.run import Options, Result, run
from tests.chaos.world import World

_CONSOLE = Console(highlight=False)
_SHOWN_MAX = 12


def _table(result: Result) -> Table:
    table = Table("what", "figure", title="chaos run")
    kinds = ", ".join(f"{count} x {name}" for name, count in sorted(result.faults.items()))
    table.add_row("SIGKILLs, SIGSTOPs", f"{result.kills}, {result.pauses}")
    table.add_row("faults", kinds)
    table.add_row("acked records", f"{result.acked:,}")
    table.add_row("slowest acked append", f"{result.slowest_append_s:.2f} s")
    gaps = sorted(result.longest_gap_s.items(), key=lambda gap: -gap[1])
    text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in gaps)
    table.add_row("longest time without an ack", text)
    for shard, verdict in result.verdicts.items():
        for name, count in sorted(verdict.counts.items()):
            if not name.startswith("violations"):
                table.add_row(f"shard {shard}: {name}", f"{count:,}")
        broken = ", ".join(sorted(verdict.rules)) or "none"
        table.add_row(f"shard {shard}: violated rules", broken)
    errors = ", ".join(f"{name} {count}" for name, count in sorted(result.errors.items()))
    table.add_row("typed errors seen by clients", errors or "none")
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds.items())
    table.add_row("time", times)
    return table


def _complain(result: Result) -> None:
    for problem in result.problems[:_SHOWN_MAX]:
        _CONSOLE.print(f"[red]problem:[/red] {problem}", markup=True)
    for shard, verdict in result.verdicts.items():
        for violation in verdict.violations[:_SHOWN_MAX]:
            _CONSOLE.print(f"[red]{violation.rule}[/red] shard {shard}: {violation.detail}")


def _repeat(options: Options) -> str:
    wanted = options.wanted
    return (
        f"--seed {options.seed} --kills {wanted.kills} --pauses {wanted.pauses} "
        f"--stops {wanted.stops} --replacements {wanted.replacements} --stores {options.stores} "
        f"--shards {options.shards}"
    )


async def _with_progress(options: Options) -> Result:
    columns = (
        TextColumn("{task.description:26}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[acked]:>9,} acked {task.fields[unknown]:>4} unknown"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_CONSOLE) as progress:
        total = len(plan(options.seed, options.wanted, options.stores))
        task = progress.add_task("starting", total=total, acked=0, unknown=0)

        def show(world: World, note: str) -> None:
            unknown = sum(client.counts.unknown for client in world.clients)
            progress.update(
                task,
                description=note,
                completed=world.done.total(),
                acked=world.acked,
                unknown=unknown,
            )

        return await run(options, show)


@click.command()
@click.option("--kills", default=30, show_default=True, help="SIGKILLs in total.")
@click.option("--pauses", type=int, help="SIGSTOPs; default: a sixth of the kills.")
@click.option("--stops", type=int, help="SIGTERMs; default: a tenth of the kills.")
@click.option("--replacements", default=0, type=click.IntRange(0, 2), help="Stores lost for good.")
@click.option("--stores", default=3, show_default=True, type=click.IntRange(1, 9))
@click.option("--clients", default=3, show_default=True, help="Client processes.")
@click.option("--writers", default=4, show_default=True, help="Writers in each, per shard.")
@click.option("--shards", default=1, show_default=True, help="Log shards under load.")
@click.option("--batch-max", default=24, show_default=True, help="Most records of one append.")
@click.option("--record-bytes", default=100, show_default=True)
@click.option("--pause-ms", default=20.0, show_default=True, help="Mean pause of a writer.")
@click.option("--keep-records", default=120_000, show_default=True, help="Truncation stays below.")
@click.option("--min-records", default=None, type=int, help="Acked, else the run is not valid.")
@click.option("--seed", type=int, help="Repeats a plan; default: drawn.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="For data and history.")
@click.option("--keep", is_flag=True, help="Keep the files of a run that passed, too.")
def main(
    kills: int,
    pauses: int | None,
    stops: int | None,
    replacements: int,
    stores: int,
    clients: int,
    writers: int,
    shards: int,
    batch_max: int,
    record_bytes: int,
    pause_ms: float,
    keep_records: int,
    min_records: int | None,
    seed: int | None,
    directory: Path | None,
    keep: bool,
) -> None:
    """SIGKILL random stores under load and check that the log kept its promises."""
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    folder = directory or Path(tempfile.mkdtemp(prefix="logservice-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    wanted = Wanted(
        kills=kills,
        pauses=kills // 6 if pauses is None else pauses,
        stops=kills // 10 if stops is None else stops,
        replacements=replacements,
    )
    options = Options(
        seed=seed,
        wanted=wanted,
        stores=stores,
        clients=clients,
        writers=writers,
        shards=shards,
        batch_max=batch_max,
        record_bytes=record_bytes,
        pause_s=pause_ms / 1000,
        keep_records=keep_records,
        min_records=min(100_000, 4000 * kills) if min_records is None else min_records,
        directory=folder,
    )
    _CONSOLE.print(f"seed {seed}, files in {folder}")
    result = asyncio.run(_with_progress(options))
    _CONSOLE.print(_table(result))
    if result.ok:
        _CONSOLE.print("[green]chaos[/green]: nothing acked is lost, doubled or out of order")
        if not keep:
            shutil.rmtree(folder)
        return
    _complain(result)
    _CONSOLE.print(f"[red]chaos failed[/red]: kept {folder}; same plan: {_repeat(options)}")
    sys.exit(1)


if __name__ == "__main__":
    main()
