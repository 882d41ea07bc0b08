"""keeper: the process that starts a cluster for somebody, and ends it when that one is gone.

Theory of operation. Store processes are detached, so they outlive whoever started them. The keeper
is a process between the two. It is told what to do in lines on its standard input, and it ends the
stores and itself when that input ends: the other process closed it, or died, however it died. As
the keeper runs every command itself, one after the other, no command can start a store behind the
end. It is in a session of its own, so that a key at the terminal that ends the tests does not end
it, too.

INV-TEST-CLUSTER: when the process that made a cluster is gone, its stores end.

A child that was forked off the tests may hold the input open; so the keeper also looks whether its
parent is still there. It imports nothing but the standard library: it is run as a file, and begins
at once.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

PARENT_LOOK_S = 1.0
"""How often the keeper looks whether its parent is there, while nothing is asked of it."""


def main(plan: dict[str, Any], parent: int) -> None:
    """`plan`: the commands `up` and `down`, and the directory to `remove`, or "" for none."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for command in itertools.chain([plan["up"]], _asked(parent)):
            ran = _run(command)
            answer = {"code": ran.returncode, "out": ran.stdout, "err": ran.stderr}
            os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        pass  # nobody listens any more
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _run(plan["down"])
        if plan["remove"]:
            shutil.rmtree(plan["remove"], ignore_errors=True)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _asked(parent: int) -> Iterator[list[str]]:
    """Commands, until there will be no more."""
    waiting = b""
    while True:
        while b"\n" not in waiting:
            while not select.select([0], [], [], PARENT_LOOK_S)[0]:
                if os.getppid() != parent:
                    return
            part = os.read(0, 65_536)
            if not part:
                return
            waiting += part
        line, _, waiting = waiting.partition(b"\n")
        yield json.loads(line)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
