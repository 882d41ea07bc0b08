"""etcd beside us: three members on loopback, driven by the same kind of client.

etcd is an honest peer to compare with: it has Raft, an fsync on a majority before the ack, and
gRPC. It is driven through grpc.aio with requests that are encoded here, so that both sides pay for
the same Python client and nothing else. The binary is the one in PATH, or Debian's package, which
is unpacked below ``artifacts/`` and not installed.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from logservice.cli.processes.local_cluster import free_ports

MEMBERS: Final = 3
START_TIMEOUT_S: Final = 30.0
PUT: Final = "/etcdserverpb.KV/Put"
STATUS: Final = "/etcdserverpb.Maintenance/Status"


@dataclass(frozen=True, slots=True)
class Etcd:
    """A running cluster."""

    endpoints: list[str]
    leader: str
    version: str


def find_binary(cache: Path) -> Path | None:
    """The server's binary, fetched if needed; None where it cannot be had."""
    if found := shutil.which("etcd"):
        return Path(found)
    binary = cache / "usr" / "bin" / "etcd"
    if not binary.exists() and shutil.which("apt-get"):
        cache.mkdir(parents=True, exist_ok=True)
        for command in (
            ["apt-get", "download", "-q", "etcd-server"],
            ["sh", "-c", "dpkg -x etcd-server_*.deb ."],
        ):
            if subprocess.run(command, cwd=cache, check=False, capture_output=True).returncode != 0:
                return None
    return binary if binary.exists() else None


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
        leader = asyncio.run(_wait_for_leader(clients))
        yield Etcd(clients, leader, version.stdout.split("\n")[0].removeprefix("etcd Version: "))


def put_request(key: bytes, value: bytes) -> bytes:
    """etcdserverpb.PutRequest{key = 1, value = 2}."""
    return b"\x0a" + _varint(len(key)) + key + b"\x12" + _varint(len(value)) + value


def call(channel: grpc.aio.Channel, path: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    """A method whose request and answer are bytes."""
    return channel.unary_unary(path, request_serializer=None, response_deserializer=None)


async def _wait_for_leader(endpoints: list[str]) -> str:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        for endpoint in endpoints:
            async with grpc.aio.insecure_channel(endpoint) as channel:
                try:
                    answer = await call(channel, STATUS)(b"", timeout=2.0)
                except grpc.aio.AioRpcError:
                    continue
                if is_leader(answer):
                    return endpoint
        await asyncio.sleep(0.2)
    raise TimeoutError("etcd elected no leader")


def is_leader(status: bytes) -> bool:
    """Whether a member leads. StatusResponse{header = 1 {member_id = 2}, leader = 4} names both."""
    fields = dict(_fields(status))
    header = fields.get(1, b"")
    assert isinstance(header, bytes)
    member = dict(_fields(header)).get(2)
    return member is not None and member == fields.get(4)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """`(number, value)` of a message that has only varints and byte strings."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        value, position = _read_varint(message, position)
        if tag & 7 == 2:
            yield tag >> 3, message[position : position + value]
            position += value
        else:
            yield tag >> 3, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
