"""A rogue store with a valid certificate, with its own sockets and its own codec.

Nothing of the product is used but the version of its peer protocol. An attacker would write this
who has the documents and has taken a machine, or a certificate of the peer CA.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import struct
import zlib
from dataclasses import dataclass

from logservice.nodehost.transport.wire.control import PROTOCOL
from tests.papers import Papers

HELLO, REFUSED, MESSAGES, REQUEST, RESPONSE, PING, PONG = range(1, 8)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A typed error as it came over the wire."""

    reason: str
    message: str
    metadata: dict[str, str]


def name(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<H", len(data)) + data


def frame(kind: int, body: bytes) -> bytes:
    head = struct.pack("<HBBII", 0x4C57, 1, kind, len(body), zlib.crc32(body))
    return head + struct.pack("<I", zlib.crc32(head)) + body


def context_of(papers: Papers, trusted: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=trusted.decode())
    descriptor = os.memfd_create("papers")
    os.write(descriptor, papers.key + papers.certificate)
    context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    return context


class RoguePeer:
    """One connection to a peer port. `connect`, then `ask` as often as it answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0

    @classmethod
    async def connect(
        cls,
        address: str,
        context: ssl.SSLContext | None,
        *,
        cluster: str,
        store: str,
        incarnations: tuple[int, ...] = (77,),
        boot: int = 1,
    ) -> RoguePeer:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        peer = cls(reader, writer)
        first, *more = incarnations
        body = struct.pack("<HBBQQ", PROTOCOL, 0, len(more), first, boot)
        body += name(cluster) + name(store) + name("")
        peer.send(HELLO, body + b"".join(struct.pack("<Q", one) for one in more))
        kind, answer = await peer.receive()
        assert kind == HELLO, answer
        return peer

    def send(self, kind: int, body: bytes) -> None:
        self._writer.write(frame(kind, body))

    async def receive(self) -> tuple[int, bytes]:
        while True:
            head = await self._reader.readexactly(16)
            _, _, kind, size, _ = struct.unpack("<HBBII", head[:12])
            body = await self._reader.readexactly(size)
            if kind == PING:
                self.send(PONG, body)
            else:
                return kind, body

    async def ask(self, method: str, body: bytes, timeout_s: float = 10.0) -> bytes | Refusal:
        """The answer, or the refusal."""
        self._number += 1
        head = struct.pack("<QI", self._number, int(timeout_s * 1000))
        self.send(REQUEST, head + name(method) + body)
        async with asyncio.timeout(timeout_s + 5):
            while True:
                kind, answer = await self.receive()
                number, status = struct.unpack_from("<QB", answer)
                if kind == RESPONSE and number == self._number:
                    return answer[9:] if status == 0 else _refusal(answer[9:])

    async def close(self) -> None:
        self._writer.close()


def _refusal(data: bytes) -> Refusal:
    at = 0

    def text() -> str:
        nonlocal at
        (size,) = struct.unpack_from("<H", data, at)
        at += 2 + size
        return data[at - size : at].decode()

    reason, message = text(), text()
    (count,) = struct.unpack_from("<H", data, at)
    at += 2
    return Refusal(reason, message, {text(): text() for _ in range(count)})
