"""Runs a command on a machine that is made slow: `python -m tools.busy_machine --busy 2 -- make x`.

A test that passes on a quiet machine may wait for a shorter time than a busy machine needs. Three
traits of a busy machine can be had: other processes want the processor (``--busy``); there is one
core (``--one-core``); processes of the command stand still for seconds, one at a time
(``--stand-still``). Those get SIGSTOP, and SIGCONT after a time drawn from the seed. Standard error
says which process stood still and for how long, so that it can be compared with what failed.

Only processes below the command are stopped, through a pidfd that was opened before their ancestry
was looked up: a pid that was given to another process meanwhile is left alone. The processes that
this tool starts itself end with it. It runs on Linux only, like the local cluster.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

SHORTEST_S = 0.3
"""The shortest stand-still: every machine stands still for less than that now and then."""

_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


def behind_name(pid: int) -> list[str]:
    """What the kernel says of a process behind its name, which may have anything in it: its state,
    its parent and more. OSError when it has gone.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def parents() -> dict[int, int]:
    """The parent of every process that runs now."""
    found: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(path.name)] = int(behind_name(int(path.name))[1])
    return found


def below(ancestor: int) -> list[int]:
    """Every process that descends from `ancestor` by way of processes that live."""
    known = parents()

    def descends(pid: int) -> bool:
        while (pid := known.get(pid, 0)) > 1:
            if pid == ancestor:
                return True
        return False

    return sorted(pid for pid in known if descends(pid))


def stand_still(pid: int, ancestor: int, seconds: float) -> str:
    """Stop a process below `ancestor` for a while; its command, "" when it has gone or somebody
    else has stopped it, who alone lets it go on.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return ""
    try:
        if pid not in below(ancestor):
            return ""
        if behind_name(pid)[0] == "T":
            return ""
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            signal.pidfd_send_signal(handle, signal.SIGCONT)
    except OSError:
        return ""
    finally:
        os.close(handle)
    return command


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that do nothing else; they end with this one, however it ends."""
    running = [
        subprocess.Popen([sys.executable, "-c", _BUSY, str(os.getpid())]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def run(command: Sequence[str], *, count: int, longest_s: float, every_s: float, seed: int) -> int:
    """Run the command and return its exit code.

    longest_s: the longest stand-still; 0 means none. every_s: the mean time between two.
    """
    chance = random.Random(seed)
    with busy(count):
        process = subprocess.Popen(command)
        try:
            while longest_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, 2 * every_s))
                if process.poll() is not None:
                    break
                candidates = below(process.pid)
                if not candidates:
                    continue
                seconds = chance.uniform(SHORTEST_S, max(SHORTEST_S, longest_s))
                pid = chance.choice(candidates)
                if told := stand_still(pid, process.pid, seconds):
                    click.echo(f"{pid} stood still for {seconds:.1f} s: {told[:120]}", err=True)
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--busy", "count", default=0, show_default=True, help="Processes that only work.")
@click.option("--one-core", is_flag=True, help="Everything shares one core.")
@click.option("--stand-still", default=0.0, help="Longest time that a process stands still, in s.")
@click.option("--every", default=5.0, show_default=True, help="Seconds between two, on average.")
@click.option("--seed", default=1, show_default=True)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(
    count: int, one_core: bool, stand_still: float, every: float, seed: int, command: tuple[str]
) -> None:
    """Run COMMAND on a machine that is made slow."""
    if one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.exit(run(command, count=count, longest_s=stand_still, every_s=every, seed=seed))


if __name__ == "__main__":
    main()
