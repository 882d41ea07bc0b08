"""A program that appends in a child process, by every way in which Python makes one. `test_fork`
runs it as a process: ``WAY before|after ENDPOINTS``, whether the parent has made a call.

It prints a line for each child: the LSN, or the error.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from logservice_client import LogServiceError, SyncLogClient

END_S = 60.0

FORKED = {"os.fork": 1, "workers": 3}
"""How many children a way of os.fork makes."""


def append(endpoints: str) -> None:
    """In the child, with a client of its own."""
    try:
        with SyncLogClient(endpoints) as client:
            said = f"appended {client.shard(1).append(b'child', timeout=20.0)}"
    except LogServiceError as error:
        said = f"{type(error).__name__} {error} {error.outcome.value}"
    # In one piece: children share the pipe.
    os.write(sys.stdout.fileno(), f"{said}\n".encode())


def fork(endpoints: str, count: int) -> None:
    """One child, or several at once: as a server forks its workers that has loaded the program
    before, and PySpark's daemon.
    """
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            append(endpoints)
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count


def main(way: str, when: str, endpoints: str) -> None:
    # A client without a call connects to nothing.
    parent = SyncLogClient(endpoints)
    if when != "before":
        parent.shard(1).append(b"parent", timeout=20.0)
    if when == "closed":
        parent.close()
    if way in FORKED:
        fork(endpoints, FORKED[way])
        return
    child = multiprocessing.get_context(way).Process(target=append, args=(endpoints,))
    child.start()
    child.join(END_S)
    assert child.exitcode == 0, child.exitcode


if __name__ == "__main__":
    main(*sys.argv[1:])
