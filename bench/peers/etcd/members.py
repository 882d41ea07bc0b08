"""Three members of etcd on loopback, with the settings that it has when nothing is said."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from bench.peers.etcd import wire
from logservice.cli.processes.local_cluster import free_ports

MEMBERS: Final = 3
START_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Etcd:
    """A running cluster."""

    endpoints: list[str]
    leader: str
    version: str


@contextmanager
def running(binary: Path, directory: Path) -> Iterator[Etcd]:
    """Three members with their data below `directory`; killed at the end."""
    ports = free_ports(2 * MEMBERS)
    clients = [f"127.0.0.1:{port}" for port in ports[:MEMBERS]]
    peers = [f"http://127.0.0.1:{port}" for port in ports[MEMBERS:]]
    initial = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True)
    with ExitStack() as stack:
        for number in range(MEMBERS):
            log = stack.enter_context(open(directory / f"etcd-{number}.log", "wb"))
            member = subprocess.Popen(
                [
                    binary,
                    f"--name=m{number}",
                    f"--data-dir={directory / f'etcd-{number}'}",
                    f"--listen-client-urls=http://{clients[number]}",
                    f"--advertise-client-urls=http://{clients[number]}",
                    f"--listen-peer-urls={peers[number]}",
                    f"--initial-advertise-peer-urls={peers[number]}",
                    f"--initial-cluster={initial}",
                    "--initial-cluster-token=bench",
                    "--quota-backend-bytes=8589934592",
                ],
                stdout=log,
                stderr=log,
            )
            stack.callback(member.wait)
            stack.callback(member.kill)
        leader = asyncio.run(find_leader(clients))
        yield Etcd(clients, leader, version.stdout.split("\n")[0].removeprefix("etcd Version: "))


async def find_leader(endpoints: list[str]) -> str:
    """The endpoint of the member that leads now. TimeoutError when there is none for long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for endpoint in endpoints:
            async with grpc.aio.insecure_channel(endpoint) as channel:
                try:
                    answer = await wire.call(channel, wire.STATUS)(b"", timeout=2.0)
                except grpc.aio.AioRpcError:
                    continue
                if wire.is_leader(answer):
                    return endpoint
        await asyncio.sleep(0.2)
    raise TimeoutError("etcd elected no leader")
