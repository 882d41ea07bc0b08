"""Dragonboat as a peer, once with its default log engine (pebble) and once with tan.

It is a library, and its callers are in its own process: they pay for no RPC, no client and no
Python. So it has no row with connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Sample
from bench.peers import getting
from bench.peers.peer import Peer, Workload
from bench.peers.program import Program, started
from logservice.cli.processes.local_cluster import free_ports

MODULE: Final = Path(__file__).parent
HOSTS: Final = 3


@dataclass(frozen=True, slots=True)
class DragonboatPeer:
    """Running hosts as a peer."""

    program: Program
    name: str
    acks: str = "fsync on a majority, applied; in process, no RPC"

    def takes(self, workload: Workload) -> bool:
        return workload.connections == 1

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        return await self.program.sample(workload, warmup_s=warmup_s, seconds=seconds)


def pebble(directory: Path) -> AbstractContextManager[Peer]:
    """With the engine that it has when nothing is said."""
    return _running("pebble", directory)


def tan(directory: Path) -> AbstractContextManager[Peer]:
    """With the engine that it has for write-heavy loads."""
    return _running("tan", directory)


@contextmanager
def _running(engine: str, directory: Path) -> Iterator[Peer]:
    binary = getting.built_with_go(MODULE, ".", "dragonboat")
    addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(HOSTS))
    command = [str(binary), f"-engine={engine}", f"-directory={directory}"]
    command.append(f"-addresses={addresses}")
    with started(command, directory / "dragonboat.log", MODULE) as program:
        yield DragonboatPeer(program, f"Dragonboat v4, {engine}")
