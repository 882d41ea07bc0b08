"""System calls of a process, as strace wrote them down.

Why strace: it sees every byte of what the kernel was asked for, by Python and by LevelDB's own C++
threads alike, and changes nothing in the process. A library in front of libc would have to name
every entry point that anything might use, and it would miss the others silently.

Calls come in the order in which they *returned*; only a close comes where it began. A sync covers
the calls that had returned before it was *called*, and `started` says how many those are. A write
that syncs its own bytes (RWF_DSYNC) comes as two calls, the write and SYNC_WRITTEN, because power
can fail between the halves. A call on a tracked file that `disk` does not know is an error there,
and not a gap here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_CALLS = (
    "open,openat,openat2,creat,close,dup,dup2,dup3,fcntl,write,pwrite64,writev,pwritev,pwritev2,"
    "ftruncate,truncate,fallocate,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,unlink,"
    "unlinkat,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,mmap,sendfile,copy_file_range,"
    "splice,lseek"
)
SYNC_WRITTEN = "sync_written"
"""The second half of a pwritev2 with RWF_DSYNC. Its arguments and `started` are the call's."""

RECORD_S = 120.0
"""How long a recording may take; the longest scenario takes a second on a quiet machine."""

_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+|\?)")
_UNFINISHED = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
_RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    arguments: as strace prints them, without the strings. started: how many calls had returned when
    it began. result: negative for an error.
    """

    name: str
    arguments: str
    strings: tuple[bytes, ...]
    result: int
    started: int

    def number(self, position: int) -> int:
        """An argument that is a plain number."""
        return int(self.arguments.split(", ")[position], 0)

    def __str__(self) -> str:
        paths = [text.decode() for text in self.strings if text.isascii() and b"/" in text]
        return f"{self.name}({self.arguments[-60:]}) {' '.join(paths)} = {self.result}"


class StraceMissing(Exception):
    """strace is not installed, or may not trace here."""


def record(
    command: Sequence[str], trace: Path, environment: dict[str, str], inject: str = ""
) -> int:
    """Run `command` to its end and write its calls to `trace`; return its exit code.

    `inject`: the call that fails, as strace names it (``write:error=EIO:when=7``). A command that
    takes longer than RECORD_S hangs: it is killed, and the exit code says so.
    """
    if shutil.which("strace") is None:
        raise StraceMissing("strace is not installed (apt-get install strace)")
    faults = ["-e", f"inject={inject}"] if inject else []
    output = subprocess.DEVNULL if inject else None
    traced = subprocess.Popen(
        [
            "strace",
            *faults,
            "-f",
            "--seccomp-bpf",
            "-q",
            "-v",
            "-xx",
            "-s",
            "100000000",
            "-e",
            "signal=none",
            "-e",
            f"trace={_CALLS}",
            "-o",
            str(trace),
            *command,
        ],
        env=environment,
        start_new_session=True,
        stdout=output,
        stderr=output,
    )
    try:
        return traced.wait(RECORD_S)
    except subprocess.TimeoutExpired:
        os.killpg(traced.pid, signal.SIGKILL)  # a traced process would go on without its tracer
        return traced.wait()


def calls(trace: Path) -> Iterator[Call]:
    """The calls of a recording, failed ones included."""
    begun: dict[str, tuple[int, str]] = {}
    done = 0
    with open(trace, encoding="ascii") as lines:
        for line in lines:
            unfinished = _UNFINISHED.match(line)
            if unfinished is not None and unfinished[2] == "close":
                # A descriptor is free as soon as its close begins: another thread may be given the
                # number before this close returns, and its new file would be taken for closed.
                done += 1
                yield Call("close", unfinished[3], (), 0, done - 1)
                continue
            if unfinished is not None:
                begun[unfinished[1]] = (done, f"{unfinished[1]} {unfinished[2]}({unfinished[3]}")
                continue
            started = done
            resumed = _RESUMED.match(line)
            if resumed is not None and resumed[2] == "close":
                continue
            if resumed is not None:
                started, head = begun.pop(resumed[1])
                line = head + resumed[3]
            found = _LINE.match(line)
            if found is None:
                if "exited" in line or "+++" in line:
                    continue
                raise ValueError(f"not a line of strace: {line[:200]}")
            _, name, arguments, result = found.groups()
            if result == "?":
                continue
            done += 1
            texts = tuple(
                bytes.fromhex(text.replace("\\x", "")) for text in _STRING.findall(arguments)
            )
            arguments, code = _STRING.sub('""', arguments), int(result, 0)
            yield Call(name, arguments, texts, code, started)
            if name == "pwritev2" and arguments.endswith(", RWF_DSYNC") and code > 0:
                done += 1
                yield Call(SYNC_WRITTEN, arguments, (), 0, started)
