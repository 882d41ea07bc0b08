"""process_counts: what the kernel says a process did, read from /proc.

Nothing is attached to the process, so looking changes nothing. Processor time is counted in the
kernel's clock ticks (10 ms), so a window of some seconds is needed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Counts:
    """Totals since a process began. `cpu_s`: processor seconds by the name of the thread.
    `switches`: how often its threads gave the processor up by themselves, which is what a hand-over
    between threads, and a wait for a socket or disk, costs.
    """

    cpu_s: dict[str, float]
    switches: int
    written_bytes: int


def counts_of(pid: int) -> Counts:
    """The counts of a process now. Raises OSError when it is gone."""
    cpu_s: dict[str, float] = {}
    switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text()
            status = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
        name, _, rest = stat.partition("(")[2].rpartition(")")
        fields = rest.split()
        seconds = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        cpu_s[_kind(name)] = cpu_s.get(_kind(name), 0.0) + seconds
        switches += int(status.partition("\nvoluntary_ctxt_switches:")[2].split("\n")[0])
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return Counts(cpu_s, switches, int(io["write_bytes"]))


def between(before: Counts, after: Counts) -> Counts:
    """What happened between two looks at one process."""
    return Counts(
        {name: after.cpu_s[name] - before.cpu_s.get(name, 0.0) for name in after.cpu_s},
        after.switches - before.switches,
        after.written_bytes - before.written_bytes,
    )


def _kind(name: str) -> str:
    """Threads of one kind have one name: ``grpc_poller_3`` and ``grpc_poller_4`` are the same."""
    return name.rstrip("0123456789-_:") or name
