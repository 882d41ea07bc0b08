"""Names of stores: looked up once at a time, never in the way of other names or of the end."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

from logservice.nodehost.transport.dialing.resolve import Resolver
from tests.nodehost.test_transport_tcp import TcpWorld, world
from tests.nodehost.transport_conformance import A, B, Recorder, identity

__all__ = ["world"]  # a fixture


class NameService:
    """Stands for getaddrinfo: `known` names have addresses, the others hang until `answer`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **known: list[str]) -> None:
        self.known = known
        self.asked: list[str] = []
        self.answer = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", self.getaddrinfo)

    def getaddrinfo(self, host: str, port: object, *args: Any, **more: Any) -> list[Any]:
        self.asked.append(host)
        if host not in self.known:
            self.answer.wait(30)
            raise socket.gaierror(-3, "Temporary failure in name resolution")
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, 0)) for address in self.known[host]]


async def test_a_numeric_address_is_nobodys_business(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameService(monkeypatch)
    resolver = Resolver()
    assert await resolver.addresses("10.0.0.1") == ["10.0.0.1"]
    assert await resolver.addresses("::1") == ["::1"]
    assert names.asked == []


async def test_a_name_that_hangs_is_asked_for_once_and_delays_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = NameService(monkeypatch, alive=["10.0.0.1", "10.0.0.2", "10.0.0.1"])
    resolver = Resolver()
    waiting = [asyncio.create_task(resolver.addresses("dead")) for _ in range(50)]
    others = [asyncio.create_task(resolver.addresses(f"dead-{n}")) for n in range(50)]
    assert await resolver.addresses("alive") == ["10.0.0.1", "10.0.0.2"]
    waiting.pop().cancel()
    assert names.asked.count("dead") == 1
    names.answer.set()
    for task in (*waiting, *others):
        with pytest.raises(OSError, match="name resolution"):
            await task
    # The next one asks again.
    with pytest.raises(OSError, match="name resolution"):
        await resolver.addresses("dead")
    assert names.asked.count("dead") == 2


async def test_a_name_that_can_be_none_is_refused() -> None:
    with pytest.raises(OSError, match="is no host name"):
        await Resolver().addresses("a" * 70 + ".example")


def test_the_process_ends_while_a_lookup_hangs() -> None:
    script = (
        "import asyncio, socket, threading\n"
        "socket.getaddrinfo = lambda *a, **k: threading.Event().wait(60)\n"
        "from logservice.nodehost.transport.dialing.resolve import Resolver\n"
        "async def main():\n"
        "    asyncio.create_task(Resolver().addresses('dead'))\n"
        "    await asyncio.sleep(0.1)\n"
        "asyncio.run(main())\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "ended\n"


async def test_the_next_address_is_tried(world: TcpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens at the first one.
    names = NameService(monkeypatch, peer=["127.0.0.2", "127.0.0.1"])
    one, other = world.make(identity(A)), world.make(identity(B))
    await one.start(Recorder())
    await other.start(Recorder())
    port = other.address.rpartition(":")[2]
    assert await one.request(f"peer:{port}", "echo", b"1", 60)
    assert names.asked == ["peer"]
