"""The speed of the transport between stores: two processes on loopback, without Raft or a disk.

The bench prints pipelined messages per second (100 B AppendEntries, 64 to a flush, as a busy leader
sends them) and the latency of one message and its answer. Run: ``python -m bench.parts.transport``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import click
from rich.console import Console
from rich.table import Table

from logservice.entry import Entry, EntryKind
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.raft.messages import AppendEntries, AppendResponse, Message

_HERE, _THERE = StoreId("bench-here"), StoreId("bench-there")
_SHARD = ShardId(1)


def _identity(store: StoreId) -> PeerIdentity:
    return PeerIdentity(ClusterId("bench"), store, (Incarnation(1),), 1)


def _append(index: int, payload: bytes) -> AppendEntries:
    entry = Entry(Term(1), Index(index), Lsn(index), 1, EntryKind.BLOCK, payload)
    return AppendEntries(
        to=ReplicaId(2),
        sender=ReplicaId(1),
        term=Term(1),
        prev_index=Index(index - 1),
        prev_term=Term(1),
        entries=(entry,),
        commit=Index(0),
    )


class _Echo:
    """Answers one AppendResponse per received batch, as a follower after its commit group."""

    def __init__(self, transport: TcpTransport) -> None:
        self._transport = transport

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        last = batch[-1][1]
        if isinstance(last, AppendEntries):
            response = AppendResponse(
                to=ReplicaId(1), sender=ReplicaId(2), term=last.term, index=last.entries[-1].index
            )
            self._transport.send(peer.store_id, _SHARD, response)
            self._transport.flush()

    def on_unreachable(self, store: StoreId) -> None:
        """Nothing to repair here."""

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        self._transport.set_address(StoreId(peer.store_id), body.decode())
        return b""


class _Acks:
    """Waits for the highest acknowledged index."""

    def __init__(self) -> None:
        self.acked = 0
        self.changed = asyncio.Event()

    def on_messages(self, peer: PeerIdentity, batch: Sequence[tuple[ShardId, Message]]) -> None:
        for _, message in batch:
            if isinstance(message, AppendResponse):
                self.acked = message.index
        self.changed.set()

    def on_unreachable(self, store: StoreId) -> None:
        """Nothing to repair here."""

    async def on_request(self, peer: PeerIdentity, method: str, body: bytes) -> bytes:
        return b""

    async def reach(self, index: int) -> None:
        while self.acked < index:
            self.changed.clear()
            await self.changed.wait()


def _serve(pipe: Connection) -> None:
    async def run() -> None:
        transport = TcpTransport(_identity(_THERE), "127.0.0.1", 0)
        await transport.start(_Echo(transport))
        pipe.send(transport.address)
        await asyncio.to_thread(pipe.recv)
        await transport.stop()

    asyncio.run(run())


async def _pipelined(
    transport: TcpTransport, acks: _Acks, payload: bytes, per_flush: int, seconds: float
) -> float:
    window = per_flush * 64
    sent = start = acks.acked
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(per_flush):
            sent += 1
            transport.send(_THERE, _SHARD, _append(sent, payload))
        transport.flush()
        await acks.reach(sent - window)
        await asyncio.sleep(0)
    await acks.reach(sent)
    return (sent - start) / (time.perf_counter() - began)


async def _ping_pong(transport: TcpTransport, acks: _Acks, rounds: int) -> list[float]:
    took: list[float] = []
    for _ in range(rounds):
        index = acks.acked + 1
        began = time.perf_counter()
        transport.send(_THERE, _SHARD, _append(index, b"x" * 100))
        transport.flush()
        await acks.reach(index)
        took.append((time.perf_counter() - began) * 1e6)
    return sorted(took)


async def _requests(transport: TcpTransport, seconds: float, callers: int) -> float:
    done = 0
    body = transport.address.encode()
    began = time.perf_counter()

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await transport.request(_THERE, "hello", body, 5.0)
            done += 1

    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - began)


async def _measure(address: str, seconds: float) -> Table:
    transport = TcpTransport(_identity(_HERE), "127.0.0.1", 0)
    acks = _Acks()
    await transport.start(acks)
    transport.set_address(_THERE, address)
    await transport.request(_THERE, "hello", transport.address.encode(), 5.0)
    table = Table("what", "figure", title="transport, two processes, loopback")
    small = await _pipelined(transport, acks, b"x" * 100, 64, seconds)
    table.add_row("AppendEntries of 100 B, 64 per flush", f"{small:,.0f} messages/s")
    large = await _pipelined(transport, acks, b"x" * 262_144, 4, seconds)
    table.add_row("AppendEntries of 256 KiB", f"{large * 262_144 / 1e6:,.0f} MB/s")
    took = await _ping_pong(transport, acks, int(seconds * 2000))
    table.add_row("append and answer, p50", f"{statistics.median(took):.0f} us")
    table.add_row("append and answer, p99", f"{took[int(len(took) * 0.99)]:.0f} us")
    for callers in (1, 64):
        rate = await _requests(transport, seconds, callers)
        table.add_row(f"requests, {callers} callers", f"{rate:,.0f} /s")
    await transport.stop()
    return table


@click.command()
@click.option("--seconds", default=1.0, show_default=True, help="Per measurement.")
def main(seconds: float) -> None:
    """Measure the transport between two processes."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    peer = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,))
    peer.start()
    try:
        Console().print(asyncio.run(_measure(ours.recv(), seconds)))
    finally:
        ours.send(None)
        peer.join(10)


if __name__ == "__main__":
    main()
