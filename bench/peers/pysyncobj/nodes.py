"""PySyncObj as a peer: three processes, tuned, with a journal in a file.

An ack means that a majority has the record in its mapped journal, which is the page cache: it
outlives the process and not the machine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Sample
from bench.peers import getting
from bench.peers.peer import Lost, Peer, Workload
from bench.peers.program import Program, started
from logservice.cli.processes.local_cluster import free_ports
from tools.own_environment import ROOT

NODES: Final = 3
FOLLOWED_S: Final = 30.0
"""How long followers may take to apply what was acked."""


@dataclass(frozen=True, slots=True)
class PySyncObjPeer:
    """Running nodes as a peer."""

    nodes: Sequence[Program]
    name: str
    acks: str = "written by a majority, before any fsync; in process, no RPC"

    def takes(self, workload: Workload) -> bool:
        return workload.shards == 1 and workload.connections == 1

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        leader = next(node for node in self.nodes if node.ask({})["leads"])
        sample = await leader.sample(workload, warmup_s=warmup_s, seconds=seconds)
        records = leader.ask({})["records"]
        deadline = time.monotonic() + FOLLOWED_S
        while sum(node.ask({})["records"] == records for node in self.nodes) <= NODES // 2:
            if time.monotonic() > deadline:
                raise Lost(f"no majority has applied {records} records")
            await asyncio.sleep(0.1)
        return sample


@contextmanager
def running(directory: Path) -> Iterator[Peer]:
    """Three nodes with a leader."""
    python = getting.python_for_peers()
    addresses = [f"127.0.0.1:{port}" for port in free_ports(NODES)]

    with ExitStack() as stack, ThreadPoolExecutor(NODES) as starting:

        def start(own: str) -> Program:
            others = [address for address in addresses if address != own]
            command = [
                str(python),
                "-m",
                "bench.peers.pysyncobj.node",
                str(directory),
                own,
                *others,
            ]
            log = directory / f"node-{own.rpartition(':')[2]}.log"
            return stack.enter_context(started(command, log, ROOT))

        # Together: one alone has no majority, and waits for it.
        yield PySyncObjPeer(list(starting.map(start, addresses)), "PySyncObj 0.3.17, tuned")
