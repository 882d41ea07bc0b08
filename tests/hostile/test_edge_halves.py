"""Requests sent by halves: every call lacks its last bytes, so that no bound on calls ever sees it.

Before undelivered bytes were bounded, 100 Appends of 8 MiB, each without its last 100 bytes, took
800 MiB of a store, and nothing ended them but the age of their connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import ssl
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2

from tests.hostile import http2
from tests.hostile.victim import LegalClient, Peak, attacked, resident_mib

pytestmark = [pytest.mark.processes, pytest.mark.long]

STRANGER, SLOW = "127.0.0.9", "127.0.0.8"
APPEND, STREAM = "/logservice.v1.Log/Append", "/logservice.v1.Log/AppendStream"
MISSING_BYTES = 100
CONNECTIONS, CALLS = 4, 25
BLOCK = bytes(8 << 20)
ATTACK_S = 8.0
BYTES_PER_S = 15 << 20
"""The pace of each connection. It matters, because the store closes a connection about a second
after the bound is passed: what comes in that second lies over the bound."""

HALVES_MIB_MAX = 384
"""The 32 MiB that may wait, what all connections send in four seconds, and what the allocator
keeps."""

LIMITS: dict[str, dict[str, object]] = {"limits": {"identity_undelivered_bytes_max": 32 << 20}}


def whole(path: str) -> bytes:
    """A request of 8 MiB; its contents do not matter, since it never arrives whole."""
    if path == APPEND:
        return log_pb2.AppendRequest(shard_id=1, block=BLOCK).SerializeToString()
    return log_pb2.AppendStreamRequest(
        blocks=[log_pb2.AppendStreamRequest.Block(sequence=1, block=BLOCK)]
    ).SerializeToString()


Shown = tuple[Path, Path, Path]


class Sender:
    """A connection that sends requests evenly, at a given pace, and keeps to the store's
    windows.
    """

    def __init__(
        self, address: str, shown: Shown, source: str, path: str, bodies: list[bytes]
    ) -> None:
        self.sent = 0
        self.cut = False
        self.answered = 0
        self.ends = False
        """Whether the end of a body is the end of its request."""
        self._made = http2.connect(address, shown, source)
        self._initial = self._window = 65_535
        self._left = {2 * at + 1: memoryview(body) for at, body in enumerate(bodies)}
        self._windows = dict.fromkeys(self._left, self._initial)
        self._heard = b""
        self._made.settimeout(10)
        self._made.sendall(http2.PREFACE + http2.settings())
        for stream in self._left:
            self._made.sendall(http2.headers(stream, http2.request_fields(path)))

    def run(self, bytes_per_s: float, until: Callable[[], bool]) -> None:
        """Send what may be sent, until the connection is cut or `until` holds."""
        began_s = time.monotonic()
        while not (until() or self.cut):
            try:
                due = bytes_per_s * (time.monotonic() - began_s) - self.sent
                if due < http2.FRAME_BYTES_MAX or not self._send():
                    select.select([self._made], [], [], 0.005)
                self._made.settimeout(0)
                with contextlib.suppress(ssl.SSLWantReadError, BlockingIOError):
                    self._hear(self._made.recv(1 << 16))
            except OSError:
                self.cut = True

    def close(self) -> None:
        """Close the connection."""
        self._made.close()

    def _send(self) -> bool:
        sent = False
        self._made.settimeout(10)
        for stream, left in self._left.items():
            size = min(len(left), self._windows[stream], self._window, http2.FRAME_BYTES_MAX)
            if size > 0:
                flags = http2.END_STREAM if size == len(left) and self.ends else 0
                self._made.sendall(http2.frame(http2.DATA, flags, stream, bytes(left[:size])))
                self._left[stream] = left[size:]
                self._windows[stream] -= size
                self._window -= size
                self.sent += size
                sent = True
        return sent

    def _hear(self, data: bytes) -> None:
        self.cut = not data
        self._heard += data
        while len(self._heard) >= 9:
            size = int.from_bytes(self._heard[:3], "big")
            if len(self._heard) < 9 + size:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._heard, 3)
            body, self._heard = self._heard[9 : 9 + size], self._heard[9 + size :]
            if kind == http2.WINDOW_UPDATE:
                self._open(stream, int.from_bytes(body, "big"))
            elif kind == http2.HEADERS:
                self.answered += 1
            elif kind == http2.PING and not flags & http2.ACK:
                self._made.settimeout(10)
                self._made.sendall(http2.frame(http2.PING, http2.ACK, 0, body))
            elif kind == http2.SETTINGS:
                for at in range(0, size, 6):
                    name, value = struct.unpack_from(">HI", body, at)
                    if name == http2.INITIAL_WINDOW:
                        more = value - self._initial
                        self._initial = value
                        for each in self._windows:
                            self._windows[each] += more
                if not flags & http2.ACK:
                    self._made.settimeout(10)
                    self._made.sendall(http2.frame(http2.SETTINGS, http2.ACK, 0))

    def _open(self, stream: int, size: int) -> None:
        if stream:
            self._windows[stream] += size
        else:
            self._window += size


def halves(address: str, shown: Shown, path: str, until_s: float) -> int:
    """Send 25 requests at a time, on a new connection when the last one was cut; return bytes
    sent.
    """
    sent = 0
    body = http2.grpc_body(whole(path))[:-MISSING_BYTES]
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError):
            one = Sender(address, shown, STRANGER, path, [body] * CALLS)
            one.run(BYTES_PER_S, lambda: time.monotonic() > until_s)
            sent += one.sent
            one.close()
    return sent


async def attack(address: str, shown: Shown, path: str) -> int:
    """Run `halves` on four connections at once; return MiB sent."""
    until_s = time.monotonic() + ATTACK_S
    sent = await asyncio.gather(
        *(asyncio.to_thread(halves, address, shown, path, until_s) for _ in range(CONNECTIONS))
    )
    return sum(sent) >> 20


def slow_upload(address: str, shown: Shown) -> Sender:
    """An honest block of 7 MiB over a slow link, with the attacker's identity."""
    block = encode_block([bytes(1 << 20)] * 7, 0)
    request = log_pb2.AppendRequest(shard_id=1, block=block).SerializeToString()
    one = Sender(address, shown, SLOW, APPEND, [http2.grpc_body(request)])
    one.ends = True
    one.run(1 << 20, lambda: one.answered > 0)
    one.close()
    return one


@pytest.mark.parametrize("path", [APPEND, STREAM])
def test_requests_that_never_become_whole(tmp_path: Path, path: str) -> None:
    with attacked(tmp_path / "cluster", settings=LIMITS) as cluster:
        address = cluster.endpoints()[0]
        pid = next(iter(cluster.pids().values()))
        assert pid is not None
        shown = cluster.client_files()
        before = resident_mib(pid)
        peaks, sent = [], []
        with LegalClient(cluster) as client, ThreadPoolExecutor() as pool:
            upload = pool.submit(slow_upload, address, shown)
            for _ in range(3):
                with Peak(pid) as peak:
                    sent.append(asyncio.run(attack(address, shown, path)))
                peaks.append(round(peak.mib))
            slow = upload.result(60)
        print(f"{path}: {before:.0f} MiB before, peaks {peaks}, sent {sent} MiB")
        client.seen.check(least=10)
        assert slow.answered
        assert not slow.cut
        assert max(peaks) - before < HALVES_MIB_MAX
