"""BookKeeper as a peer: ensemble and write quorum of three, ack quorum of two, journals synced.

All is in one JVM, so callers pay for the bookies' protocol over loopback and for no Python. A JVM
compiles what runs often: a window that is thrown away comes first.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Sample
from bench.peers import getting
from bench.peers.peer import Peer, Unavailable, Workload
from bench.peers.program import Program, started
from logservice.cli.processes.local_cluster import free_ports

MODULE: Final = Path(__file__).parent
BOOKIES: Final = 3
MEMORY: Final = ("-Xmx2g", "-XX:MaxDirectMemorySize=1g")
BEFORE: Final = Workload(callers=64, size=256)
BEFORE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BookKeeperPeer:
    """Running bookies as a peer."""

    program: Program
    name: str = "BookKeeper 4.17.3"
    acks: str = "fsync of the journal on 2 of 3; in process, Java client"

    def takes(self, workload: Workload) -> bool:
        return workload.connections == 1

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        return await self.program.sample(workload, warmup_s=warmup_s, seconds=seconds)


@contextmanager
def running(directory: Path) -> Iterator[Peer]:
    """Three bookies that have run for a while."""
    java = shutil.which("java")
    if java is None:
        raise Unavailable("no Java here")
    built = getting.built_with_maven(MODULE, "bookkeeper")
    ports = [str(port) for port in free_ports(1 + BOOKIES)]
    command = [java, *MEMORY, "-cp", f"{built / 'peer.jar'}:{built / 'lib'}/*", "bench.Ensemble"]
    command += [str(directory), *ports]
    with started(command, directory / "bookkeeper.log", MODULE) as program:
        peer = BookKeeperPeer(program)
        asyncio.run(peer.sample(BEFORE, warmup_s=0, seconds=BEFORE_S))
        yield peer
