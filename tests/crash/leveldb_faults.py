"""A system call of LevelDB's own fails, inside its C++: ``python -m tests.crash.leveldb_faults``.

strace makes the nth write, sync, rename, removal or opening fail in the kernel's place, for every n
that concerns the index, with EIO, ENOSPC or EINTR, once or from then on. The store must stop with a
typed error or make the index anew; a healthy process must then find everything that was acked. A
process that hangs is killed, and counts as a failure.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from tests.crash.campaign import judge_opening, record_process, work_directory
from tests.crash.faults import in_process
from tests.crash.perform import STOPPED
from tests.crash.scenarios import script_of
from tests.crash.trace import Call, calls

SCENARIO = "everything"
NAMES = ("write", "fdatasync", "rename", "unlink", "openat")
ERRORS = ("EIO", "ENOSPC", "EINTR")
REPEATED = ("write", "fdatasync", "openat")
"""Calls that LevelDB and Python repeat for as long as they are interrupted. So these are
interrupted only once: no kernel interrupts for ever, and with one that did, both would wait.
"""
SHOWN_EVERY = 200
"""Faults between two lines of progress."""


def of_the_index(trace: Path, root: Path) -> Iterator[tuple[str, int]]:
    """Each call that LevelDB made, with its number among the calls of that name."""
    counts: Counter[str] = Counter()
    paths: dict[int, bytes] = {}
    inside = f"{root}/index".encode()
    for call in calls(trace):
        counts[call.name] += 1
        if call.name == "openat" and call.result >= 0:
            paths[call.result] = call.strings[0]
        if call.name in NAMES and _path(call, paths).startswith(inside):
            yield call.name, counts[call.name]


def _path(call: Call, paths: dict[int, bytes]) -> bytes:
    if call.name in ("write", "fdatasync"):
        return paths.get(call.number(0), b"")
    return call.strings[0]


def injections(work: Path, stride: int) -> Iterator[str]:
    """The faults, as strace's ``--inject`` names them."""
    trace, root, code = record_process(SCENARIO, work)
    assert code == 0
    targets = list(of_the_index(trace, root))
    found = (
        f"{name}:error={error}:when={count}{more}"
        for error in ERRORS
        for more in ("", "+")
        for name, count in targets
        if not (error == "EINTR" and more and name in REPEATED)
    )
    yield from itertools.islice(found, stride - 1, None, stride)


def attempt(work: Path, inject: str) -> tuple[bool, str]:
    """Whether the process stopped, and what is wrong, if anything."""
    script = script_of(SCENARIO)
    trace, root, code = record_process(SCENARIO, work, inject=inject)
    if code not in (0, STOPPED):  # a process that hung was killed, and is here, too
        return True, f"{inject}: exit code {code}"
    begun = ended = 0
    for call in calls(trace):
        if call.name == "write" and call.strings[0].startswith(b"@@"):
            word, step = call.strings[0].split()
            begun, ended = (int(step) + 1, ended) if word == b"@@begin" else (begun, int(step) + 1)

    def opens(_: int) -> int:
        judge_opening(str(root), script, ended, begun)
        return 0

    opened, said = in_process(opens)
    return code == STOPPED, "" if opened == 0 else f"{inject}: {said}"


@click.command()
@click.option("--stride", default=1, show_default=True, help="Every how manieth fault.")
@click.option("--replay", help="In strace's words, as a failure prints it.")
def main(stride: int, replay: str | None) -> None:
    """Make LevelDB's system calls fail, one after the other."""
    started, work = time.monotonic(), work_directory()
    tried = stopped = wrongs = 0
    chosen = [replay] if replay is not None else list(injections(work, stride))
    for inject in chosen:
        did_stop, wrong = attempt(work, inject)
        tried, stopped, wrongs = tried + 1, stopped + did_stop, wrongs + bool(wrong)
        if wrong:
            print(wrong, flush=True)
        if tried % SHOWN_EVERY == 0:
            print(f"{tried} of {len(chosen)}", file=sys.stderr, flush=True)
    shutil.rmtree(work)
    seconds = time.monotonic() - started
    print(f"{tried} faults, {stopped} stopped the store, {wrongs} wrong, {seconds:.0f} s")
    sys.exit(wrongs > 0)


if __name__ == "__main__":
    main()
