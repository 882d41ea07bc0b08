"""What an empty call of gRPC costs a server and a client: what no store of ours can go below.

    python -m bench.parts.grpc_calls --seconds 3 --rounds 5

The server answers what it was sent and does nothing else. It is one process with one event loop and
takes calls as a store does (`edge.acceptor`, `edge.wake_ups`); `--plain` leaves both out, for what
the library does by itself. The client is another process. Both share the machine's cores with
everything else on it, so the processor time says more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

import grpc
import grpc.aio
from rich.console import Console
from rich.table import Table

from bench.cost.process_counts import between, counts_of
from bench.load.channels import connected_channels
from bench.load.closed_loop import Request, measure
from logservice.server.edge.acceptor import server_of
from logservice.server.edge.wake_ups import WakeUpLoop
from logservice.server.process import tune_interpreter

BYTES: Final = 300
"""Of a message: an append of one record of 256 B takes about as many."""

CALLS_MAX: Final = 4096
"""At a time."""

_SERVICE: Final = "bench.Echo"
_UNARY: Final = "Unary"
_STREAM: Final = "Stream"
WIDTH: Final = 110
"""Width of the table when there is no terminal."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Callers, and the connections that they share. `stream`: each has one call, and sends a
    message when the one before was answered.
    """

    name: str
    callers: int
    connections: int
    stream: bool = False


SHAPES: Final = (
    Shape("unary, one caller", 1, 1),
    Shape("unary, 64 callers, a connection each", 64, 64),
    Shape("unary, 64 callers, one connection", 64, 1),
    Shape("a message of a stream and its answer, one caller", 1, 1, stream=True),
    Shape("the same, 64 callers", 64, 1, stream=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Calls (or messages with their answers) per second, and processor time for each, in us."""

    rate: float
    server_us: float
    client_us: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=5, help="in which the shapes take turns")
    parser.add_argument("--plain", action="store_true", help="a server of the library's own")
    arguments = parser.parse_args()
    tune_interpreter()
    costs = asyncio.run(measured(arguments.seconds, arguments.rounds, plain=arguments.plain))
    table = Table("", "a second", "server, us", "client, us", title="median (range)")
    for shape, found in costs.items():
        table.add_row(
            shape.name,
            _spread([cost.rate for cost in found]),
            _spread([cost.server_us for cost in found]),
            _spread([cost.client_us for cost in found]),
        )
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH).print(table)


async def measured(seconds: float, rounds: int, *, plain: bool) -> dict[Shape, list[Cost]]:
    """What each shape costs, in each round."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs, plain), daemon=True)
    server.start()
    theirs.close()
    try:
        port = await asyncio.to_thread(ours.recv)
        pid = server.pid
        assert pid is not None  # it was started
        found: dict[Shape, list[Cost]] = {shape: [] for shape in SHAPES}
        for _ in range(rounds):
            for shape, costs in found.items():
                costs.append(await _cost(shape, f"127.0.0.1:{port}", pid, seconds))
        return found
    finally:
        ours.close()
        server.join()


async def _cost(shape: Shape, address: str, server: int, seconds: float) -> Cost:
    async with _requests(shape, address) as requests:
        await measure(requests, warmup_s=0.0, seconds=seconds / 3)
        pids = (server, os.getpid())
        before = [counts_of(pid) for pid in pids]
        sample = await measure(requests, warmup_s=0.0, seconds=seconds)
        spent_s = [
            sum(between(old, counts_of(pid)).cpu_s.values())
            for pid, old in zip(pids, before, strict=True)
        ]
    server_us, client_us = (1e6 * one / max(1, sample.records) for one in spent_s)
    return Cost(sample.rate, server_us, client_us)


@asynccontextmanager
async def _requests(shape: Shape, address: str) -> AsyncIterator[list[Request]]:
    async with connected_channels(address, shape.connections) as channels:
        ask = _on_a_stream if shape.stream else _unary
        yield [ask(channels[one % len(channels)]) for one in range(shape.callers)]


def _unary(channel: grpc.aio.Channel) -> Request:
    call: Any = channel.unary_unary(f"/{_SERVICE}/{_UNARY}", None, None)
    message = bytes(BYTES)

    async def request() -> int:
        await call(message)
        return 1

    return request


def _on_a_stream(channel: grpc.aio.Channel) -> Request:
    method: Any = channel.stream_stream(f"/{_SERVICE}/{_STREAM}", None, None)
    call = method()
    message = bytes(BYTES)

    async def request() -> int:
        await call.write(message)
        await call.read()
        return 1

    return request


def _serve(pipe: Connection, plain: bool) -> None:
    """The server's process; it ends when the other end of `pipe` does."""
    tune_interpreter()
    with asyncio.Runner(loop_factory=None if plain else WakeUpLoop) as runner:
        runner.run(_served(pipe, plain))


async def _served(pipe: Connection, plain: bool) -> None:
    server = grpc.aio.server() if plain else server_of((), CALLS_MAX)
    handlers = {
        _UNARY: grpc.unary_unary_rpc_method_handler(_echo),
        _STREAM: grpc.stream_stream_rpc_method_handler(_echoes),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE, handlers),),
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    try:
        await asyncio.to_thread(pipe.recv)
    except EOFError:
        await server.stop(None)


async def _echo(message: bytes, context: Any) -> bytes:
    return message


async def _echoes(messages: Any, context: Any) -> None:
    while (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        await context.write(message)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"


if __name__ == "__main__":
    main()
