"""Repeats the attacks for as long as asked: ``python -m tests.hostile --seconds 3600``.

Each round runs every test of this folder in a process of its own, in another order. The first
failure ends the run and prints the command that repeats that round. Many rounds show what one does
not: a small leak, or a race that is rarely lost.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import click

HERE = Path(__file__).parent


@click.command()
@click.option("--seconds", default=3600.0, show_default=True, help="No round begins after that.")
@click.option("--seed", default=0, show_default=True, help="Of the orders.")
def main(seconds: float, seed: int) -> None:
    """Repeat the hostile tests."""
    chance = random.Random(seed)
    started_s = time.monotonic()
    rounds = 0
    while not rounds or time.monotonic() - started_s < seconds:
        files = sorted(str(path) for path in HERE.glob("test_*.py"))
        chance.shuffle(files)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", *files]
        if subprocess.run(command, check=False).returncode:
            click.echo(f"round {rounds + 1} failed; again: {' '.join(command[1:])}", err=True)
            sys.exit(1)
        rounds += 1
        click.echo(f"hostile: {rounds} rounds, {time.monotonic() - started_s:.0f} s, none failed")


if __name__ == "__main__":
    main()
