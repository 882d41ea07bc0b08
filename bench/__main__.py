"""`make bench`: every row of the list of targets, with its peers beside it, on this machine.

    make bench                                  # all of it: an hour or two
    make bench ROW=one-caller,64-callers        # some rows
    make bench BENCH_FLAGS="--quick --short"    # smaller sizes, without the rows that take minutes
    make bench BENCH_FLAGS="--resume artifacts/bench/run.json"
    python -m bench --list
    python -m bench --show artifacts/bench/run.json --markdown docs/performance.md --pictures DIR

Our stores and one peer at a time run on loopback and take turns, round after round, so that a noisy
neighbour hits both. Both ack what a majority has fdatasynced, unless the notes say otherwise. What
was appended is read back and checked. Clients, stores and peers share the machine's cores. Each
row is written to the run's file when it is done; `--resume` measures what that file does not have.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.measuring import Measuring
from bench.results import page, table
from bench.results.result import Result, Run, read
from bench.rows.catalogue import ROWS
from bench.rows.row import Row, Setting
from logservice.server.process import tune_interpreter

ROOT: Final = Path(__file__).resolve().parent.parent
RUN: Final = ROOT / "artifacts" / "bench" / "run.json"
WIDTH: Final = 190
"""Width of the tables when there is no terminal."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure or show; 1 when a row failed, 130 when the run was stopped."""
    arguments = _arguments(words)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    rows = chosen(arguments.row, short=arguments.short)
    if arguments.list:
        console.print(_listing(rows))
        return 0
    if arguments.show:
        run = read(arguments.show)
        report(console, run, arguments)
        return 0
    run = read(arguments.resume) if arguments.resume else Run()
    left = [row for row in rows if not (row.key in run.rows and run.rows[row.key].whole)]
    stopped = _measure(console, run, left, arguments)
    report(console, run, arguments)
    failed = [row.key for row in rows if row.key in run.rows and run.rows[row.key].error]
    if stopped:
        console.print(f"stopped; go on with --resume {arguments.resume or arguments.json}")
        return 130
    if failed:
        console.print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="the rows and their targets")
    parser.add_argument("--row", default="", help="keys of rows, separated by commas")
    parser.add_argument("--peers", default=None, help="keys of peers; empty: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a window")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds before it")
    parser.add_argument("--quick", action="store_true", help="smaller sizes; the rows say so")
    parser.add_argument("--short", action="store_true", help="without rows that take minutes")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    parser.add_argument("--json", type=Path, default=RUN, help="the file of the run")
    parser.add_argument("--resume", type=Path, help="go on with the run of this file")
    parser.add_argument("--show", type=Path, help="measure nothing, show the run of this file")
    parser.add_argument(
        "--markdown",
        type=Path,
        help="write the table between its markers; with --pictures it shows the plots",
    )
    parser.add_argument("--pictures", type=Path, help="write the plots into this folder")
    return parser.parse_args(words)


def chosen(keys: str, *, short: bool) -> list[Row]:
    """The rows that are asked for, in the order of the report; ends the program at a wrong key."""
    wanted = [key for key in keys.replace(" ", "").split(",") if key]
    known = [row.key for row in ROWS]
    if unknown := [key for key in wanted if key not in known]:
        raise SystemExit(f"no row {', '.join(unknown)}; there are: {', '.join(known)}")
    if wanted:
        return [row for row in ROWS if row.key in wanted]
    return [row for row in ROWS if not (short and row.long)]


def _measure(
    console: Console, run: Run, rows: Sequence[Row], arguments: argparse.Namespace
) -> bool:
    """Whether somebody stopped it."""
    tune_interpreter()
    # A shell's background job ignores SIGINT, and would not hear `kill -INT`, or `timeout`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupted)
    path: Path = arguments.resume or arguments.json
    options = {
        "rounds": str(arguments.rounds),
        "seconds": f"{arguments.seconds:g}",
        **({"quick": "yes"} if arguments.quick else {}),
    }
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with (
        tempfile.TemporaryDirectory(prefix="logservice-bench-", dir=arguments.dir) as name,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("the disk is probed")
        place = {"number": 0}

        def say(text: str) -> None:
            line = f"row {place['number'] + 1} of {len(rows)}, {text}"
            bar.update(task, description=line)
            if not console.is_terminal:
                console.print(line, markup=False)

        def done(row: Row, result: Result) -> None:
            place["number"] += 1
            for line in table.lines(row, result):
                console.print("  " + " | ".join(filter(None, line.texts("; "))), markup=False)

        setting = Setting(
            Path(name),
            arguments.rounds,
            arguments.warmup,
            arguments.seconds,
            arguments.quick,
            None if arguments.peers is None else frozenset(arguments.peers.split(",")),
        )
        try:
            measuring = Measuring(run, path, setting, options, say)
            measuring.rows(rows, done)
            measuring.end()
        except KeyboardInterrupt:
            return True
        finally:
            setting.runner.close()
    return False


def report(console: Console, run: Run, arguments: argparse.Namespace) -> None:
    """Print, and write what is asked for."""
    table.show(console, ROWS, run)
    if arguments.markdown:
        folder = ""
        if arguments.pictures:
            folder = os.path.relpath(arguments.pictures, arguments.markdown.parent)
        page.put(arguments.markdown, table.markdown(ROWS, run, folder))
    if arguments.pictures:
        from bench.results import plots  # it takes a second to load

        plots.draw(ROWS, run, arguments.pictures)


def _listing(rows: Sequence[Row]) -> Table:
    found = Table("key", "row", "targets")
    for row in rows:
        found.add_row(row.key, row.name, "\n".join(target.text for target in row.targets))
    return found


def _interrupted(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C, which an event loop knows how to end for."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
