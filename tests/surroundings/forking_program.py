"""A program that appends in a child process, by every way in which Python makes one. `test_fork`
runs it as a process: ``WAY before|after ENDPOINTS``, whether the parent has made a call.

It prints a line for the child: the LSN, or the error.
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from logservice_client import LogServiceError, SyncLogClient

END_S = 60.0


def append(endpoints: str) -> None:
    """In the child, with a client of its own."""
    try:
        with SyncLogClient(endpoints) as client:
            print("appended", client.shard(1).append(b"child", timeout=20.0), flush=True)
    except LogServiceError as error:
        print(type(error).__name__, error, error.outcome.value, flush=True)


def fork(endpoints: str) -> None:
    """As a server that preloads its program does, and PySpark's daemon."""
    child = os.fork()
    if child == 0:
        append(endpoints)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status


def main(way: str, when: str, endpoints: str) -> None:
    # A client without a call connects to nothing.
    parent = SyncLogClient(endpoints)
    if when != "before":
        parent.shard(1).append(b"parent", timeout=20.0)
    if when == "closed":
        parent.close()
    if way == "os.fork":
        fork(endpoints)
        return
    child = multiprocessing.get_context(way).Process(target=append, args=(endpoints,))
    child.start()
    child.join(END_S)
    assert child.exitcode == 0, child.exitcode


if __name__ == "__main__":
    main(*sys.argv[1:])
