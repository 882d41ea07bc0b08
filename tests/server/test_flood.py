"""A flood of connections from one address against a real client port: what it holds, and who gets
in meanwhile.

Before the kernel dropped connections, 1 800 a second from one address stood 3 000 to 8 000 at a
time where 128 were promised, and newcomers from elsewhere were refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from logservice import bounds, config
from logservice.server.client_port import ClientPort
from logservice.server.edge.call import refused
from logservice.trace import NO_TRACING
from tests.hostile import http2
from tests.waiting import eventually, wait_until

FLOODING, ELSEWHERE = "127.0.0.9", "127.0.0.8"

SLACK = 384
"""What may stand above ADDRESS_HALF_OPEN_MAX while the flood goes on: what comes between two looks
through the smallest share that lasts, which is FLOOD_EXCESS_MAX or twice that, and four times as
much, because a look may come late on a busy machine."""

FLOOD = """
import collections, resource, socket, sys, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = collections.deque(maxlen=15000)
while True:
    for _ in range(18):
        one = socket.socket()
        one.setblocking(False)
        one.bind((sys.argv[1], 0))
        one.connect_ex(("127.0.0.1", int(sys.argv[2])))
        held.append(one)
    time.sleep(0.01)
"""
"""1 800 connections a second, which are held, and fewer when the machine is slow."""

_TCP_INFO, _RETRANSMITTED_AT = 11, 100


@contextlib.contextmanager
def flood(port: int) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-c", FLOOD, FLOODING, str(port)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def standing(port: int) -> int:
    """Connections of the flooding address which have a descriptor, or wait for one."""
    remote = f"{int.from_bytes(socket.inet_aton(FLOODING), sys.byteorder):08X}"
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    # An IPv4 address stands at the end of the IPv6 address that it is mapped to. A connection that
    # the server has closed has no inode.
    return sum(
        line[1].endswith(f":{port:04X}") and line[2][:-5].endswith(remote) and line[9] != "0"
        for line in lines
    )


def greeted(port: int, source: str) -> int:
    """Connect, begin HTTP/2, await the answer; returns how many packets had to be sent again."""
    with socket.create_connection(("127.0.0.1", port), 60, (source, 0)) as made:
        made.sendall(http2.PREFACE + http2.settings())
        assert made.recv(1), "the connection was cut"
        info = made.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RETRANSMITTED_AT + 4)
        (again,) = struct.unpack_from("=I", info, _RETRANSMITTED_AT)
        return int(again)


def watch(port: int, looked: ClientPort, most: int) -> list[int]:
    """Standing connections while 20 looks go by, each time once they are no more than `most`: more
    may come while a busy machine keeps a look waiting.
    """
    watched = looked._connections
    assert watched is not None
    until, seen = watched._looks + 20, []

    def over() -> bool:
        wait_until(lambda: standing(port) <= most, 60.0)
        seen.append(standing(port))
        return watched._looks >= until

    wait_until(over)
    return seen


async def test_a_flood_from_one_address(tmp_path: Path) -> None:
    """Reaches ARRIVALS_MAX and CONNECTIONS_LOOK_S_MIN on the way, and ADDRESS_HALF_OPEN_MAX."""
    settings = config.parse(
        f"""
        [store]
        store_id = "s"
        cluster_id = "c"
        data_directories = ["{tmp_path}"]
        [listen]
        insecure_plaintext = true
        client = "127.0.0.1:0"
        peer = "127.0.0.1:1"
        [bootstrap]
        hakeeper_members = [{{ store_id = "s", peer_address = "127.0.0.1:1" }}]
        """
    )
    served = ClientPort(settings, bounds.CLIENT_CONNECTIONS_MAX, None, NO_TRACING)
    port = int(served.bind().rpartition(":")[2])
    await served.start()
    before = refused["Connection/dropped"]
    most = bounds.ADDRESS_HALF_OPEN_MAX + SLACK
    try:
        with flood(port):
            await eventually(lambda: refused["Connection/dropped"] > before, 60.0)
            await eventually(lambda: standing(port) <= most, 60.0)
            seen = asyncio.create_task(asyncio.to_thread(watch, port, served, most))
            again = []
            while not seen.done():
                again.append(await asyncio.to_thread(greeted, port, ELSEWHERE))
            print(f"standing: {await seen}; newcomers: {len(again)}, {again.count(0)} at once")
            assert again.count(0) > len(again) // 2, "newcomers from elsewhere get in at once"
            assert max(await seen) >= bounds.ADDRESS_HALF_OPEN_MAX // 2, "there is a flood"
        await asyncio.to_thread(greeted, port, FLOODING)
        connections = served._connections
        assert connections is not None
        await eventually(lambda: not connections._floods.halvings, 60.0)
        assert await asyncio.to_thread(greeted, port, FLOODING) == 0
    finally:
        await served.stop()
