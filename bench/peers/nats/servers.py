"""NATS JetStream as a peer, once as it comes and once with ``sync_interval: always``.

As it comes, a server acks a message when a majority of the servers has *written* it, and syncs its
files every two minutes. With ``always`` it syncs each write of the Raft log before it acks; then an
ack means what ours means.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.closed_loop import Sample
from bench.peers import getting
from bench.peers.peer import Peer, Unavailable, Workload
from bench.peers.program import Program, started
from logservice.cli.processes.local_cluster import free_ports
from tools.own_environment import ROOT

MODULE: Final = Path(__file__).parent
SERVERS: Final = 3
CONFIGURATION: Final = """\
server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{
  store_dir: "{store}"
  {sync}
}}
cluster {{
  name: bench
  listen: "127.0.0.1:{route}"
  routes: [{routes}]
}}
"""


@dataclass(frozen=True, slots=True)
class NatsPeer:
    """Running servers as a peer."""

    program: Program
    name: str
    acks: str

    def takes(self, workload: Workload) -> bool:
        return True

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        return await self.program.sample(workload, warmup_s=warmup_s, seconds=seconds)


def as_it_comes(directory: Path) -> AbstractContextManager[Peer]:
    """The current server, or Debian's where there is no Go."""
    return _running(directory, "", "written by a majority, before any fsync", debian_too=True)


def always_synced(directory: Path) -> AbstractContextManager[Peer]:
    """The current server; Debian's has no such setting."""
    return _running(directory, "sync_interval: always", "fsync on a majority", debian_too=False)


@contextmanager
def _running(directory: Path, sync: str, acks: str, *, debian_too: bool) -> Iterator[Peer]:
    binary = _binary(debian_too=debian_too)
    version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True)
    python = getting.python_for_peers()
    ports = free_ports(2 * SERVERS)
    clients, routes = ports[:SERVERS], ports[SERVERS:]
    names = [f"n{number}" for number in range(SERVERS)]
    with ExitStack() as stack:
        for name, port, route in zip(names, clients, routes, strict=True):
            file = directory / f"{name}.conf"
            text = CONFIGURATION.format(
                name=name,
                port=port,
                route=route,
                store=directory / name,
                sync=sync,
                routes=", ".join(f'"nats-route://127.0.0.1:{one}"' for one in routes),
            )
            file.write_text(text, encoding="utf-8")
            log = stack.enter_context(open(directory / f"{name}.log", "wb"))
            server = subprocess.Popen([binary, "-c", file], stdout=log, stderr=log)
            stack.callback(server.wait)
            stack.callback(server.kill)
        urls = [
            f"{name}=nats://127.0.0.1:{port}" for name, port in zip(names, clients, strict=True)
        ]
        command = [str(python), "-m", "bench.peers.nats.driver", *urls]
        program = stack.enter_context(started(command, directory / "driver.log", ROOT))
        told = version.stdout.strip().rpartition("v")[2]
        yield NatsPeer(program, f"NATS {told} R3{', always synced' if sync else ''}", acks)


def _binary(*, debian_too: bool) -> Path:
    try:
        return getting.built_with_go(MODULE, "github.com/nats-io/nats-server/v2", "nats-server")
    except Unavailable:
        if not debian_too:
            raise
        return getting.from_debian("nats-server", "nats-server")
