"""`python -m logservice.sim.ledgers FILE...`: the sums of all campaigns, for docs/testing.md.

A world counts once: lines that say the same seed of the same kind with the same outcome are one
line that was copied into two files. The same seed with another outcome was run on another version
of the code, and counts. Exit code 1 when a file is missing or holds no line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from logservice.sim.campaign import Totals, read_ledger


def summed(paths: list[Path]) -> Totals:
    """The totals over files; raises click.ClickException for a file without a line."""
    totals = Totals()
    seen: set[str] = set()
    for path in paths:
        lines = read_ledger(path)
        if not lines:
            raise click.ClickException(f"{path}: no ledger, or an empty one")
        for line in lines:
            key = json.dumps(line, sort_keys=True)
            if key not in seen:
                seen.add(key)
                totals.add(line)
    return totals


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One object instead of a table.")
def main(files: tuple[Path, ...], as_json: bool) -> None:
    """Sum ledgers: seeds, cluster-hours, operations, faults by kind, violations."""
    totals = summed(list(files))
    if as_json:
        click.echo(json.dumps(dict(totals.rows())))
        sys.exit(0)
    table = Table("what", "sum")
    for name, value in totals.rows():
        table.add_row(name, value)
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
