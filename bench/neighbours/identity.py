"""One identity beside another that takes all it can get: what the quiet one's calls cost it.

    python -m bench.neighbours.identity [--rounds 3] [--seconds 5] [--connections 64] [--calls 16]

Three stores run on loopback with TLS. The identity *quiet* has one call of each kind under way: an
append on its stream, a unary append, a read. The identity *loud* is a process, or several, with a
number of connections, and calls under way on each. Both have a log of their own, and one store
leads both, so that they share an event loop. Quiet is measured alone and beside each load in turn,
round after round:

- *processor*: as many processes that compute and never call us. What it costs is the machine's;
- *unary*: unary appends of 256 B;
- *streams*: a client for each connection, whose callers share its append stream;
- *blocks*: unary appends of 64 KiB;
- *follow*: as many streams as connections, which replay the loud log again and again;
- *reads*: unary reads of 16 KiB.

Per load: p50 and p99 of each kind of quiet call, the median of the rounds with its range, and what
the loud identity got. With `--loud-alone` nobody is quiet, and its rate is what one identity gets.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc.aio
from logservice_client import LogClient
from logservice_client.failure import error_of
from logservice_client.tls import Tls
from logservice_wire import rpcs
from logservice_wire.block import encode_block
from logservice_wire.errors import Busy
from logservice_wire.v1 import log_pb2

from bench.load.channels import OWN_CONNECTION
from bench.probes import environment
from bench.rows.ours import TIMEOUT_S
from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import LocalCluster

PAUSE_S: Final = 0.01
"""Between two calls of one kind of the quiet identity."""

SETTLE_S: Final = 1.5
FILL_BLOCKS: Final = 512
KINDS: Final = ("stream", "unary", "read")

Request = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an identity goes, and what it shows there."""

    endpoints: tuple[str, ...]
    leader: str
    log: int
    tls: Tls
    connections: int = 1
    calls: int = 1


@dataclass(slots=True)
class Window:
    """Latencies of the quiet calls in ms by kind, and what the loud identity says it got."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    loud: str = ""


# --- the quiet identity ---------------------------------------------------------------------------


async def quiet(place: Place, seconds: float) -> dict[str, list[float]]:
    """One call of each kind at a time."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    async with LogClient(place.endpoints, tls=place.tls) as client, _channels(place) as (channel,):
        shard = client.shard(place.log)

        async def stream() -> None:
            await shard.append(bytes(256), timeout=TIMEOUT_S)

        async def loop(kind: str, request: Request, ends_s: float) -> None:
            while time.perf_counter() < ends_s:
                began_s = time.perf_counter()
                await request()
                found[kind].append((time.perf_counter() - began_s) * 1000)
                await asyncio.sleep(PAUSE_S)

        calls = (stream, _append(channel, place.log, 256), _read(channel, place.log, 1, 1024))
        for call in calls:
            await call()
        ends_s = time.perf_counter() + seconds
        await asyncio.gather(
            *(loop(kind, call, ends_s) for kind, call in zip(KINDS, calls, strict=True))
        )
    return found


# --- the loud identity: processes of their own until they are told to end -------------------------


async def _closed_loops(requests: Sequence[Request], stop: Connection, size: int) -> str:
    done = refused = 0
    ending = asyncio.Event()

    async def loop(request: Request) -> None:
        nonlocal done, refused
        while not ending.is_set():
            try:
                await request()
                done += 1
            except grpc.aio.AioRpcError as error:
                found = error_of(error, mutating=True)
                if not isinstance(found, Busy):
                    raise
                refused += 1
                await asyncio.sleep(int(found.metadata.get("retry_after_ms", 50)) / 1000)

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(loop(request))
        await asyncio.sleep(SETTLE_S)
        stop.send("under load")
        began_s, before = time.perf_counter(), done
        await asyncio.to_thread(stop.recv)
        rate = (done - before) / (time.perf_counter() - began_s)
        ending.set()
    return f"{rate:.0f} calls/s, {rate * size / 1e6:.1f} MB/s, {refused} refused"


async def unary(place: Place, stop: Connection) -> str:
    """Unary appends of small records."""
    async with _channels(place) as channels:
        calls = [_append(one, place.log, 256) for one in channels] * place.calls
        return await _closed_loops(calls, stop, 256)


async def blocks(place: Place, stop: Connection) -> str:
    """Unary appends of larger blocks."""
    async with _channels(place) as channels:
        calls = [_append(one, place.log, 65536) for one in channels] * place.calls
        return await _closed_loops(calls, stop, 65536)


async def reads(place: Place, stop: Connection) -> str:
    """Unary reads."""
    async with _channels(place) as channels:
        calls = [_read(one, place.log, 1, 16384) for one in channels] * place.calls
        return await _closed_loops(calls, stop, 16384)


async def streams(place: Place, stop: Connection) -> str:
    """Append streams."""
    async with contextlib.AsyncExitStack() as stack:
        requests: list[Request] = []
        for _ in range(place.connections):
            client = await stack.enter_async_context(LogClient(place.endpoints, tls=place.tls))
            shard = client.shard(place.log)

            async def append(shard: Any = shard) -> None:
                await shard.append(bytes(256), timeout=TIMEOUT_S)

            requests += [append] * place.calls
        return await _closed_loops(requests, stop, 256)


async def follow(place: Place, stop: Connection) -> str:
    """Streams that read the log from its beginning to its end, again and again."""
    async with _channels(place) as channels:

        def replay(channel: grpc.aio.Channel) -> Request:
            call = channel.unary_stream(
                rpcs.FOLLOW.path,
                request_serializer=log_pb2.FollowRequest.SerializeToString,
                response_deserializer=None,
            )

            async def once() -> None:
                request = log_pb2.FollowRequest(shard_id=place.log, lsn=1, until_tail=True)
                async for _ in call(request):
                    pass

            return once

        return await _closed_loops([replay(one) for one in channels], stop, FILL_BLOCKS * 65536)


async def processor(_: Place, stop: Connection) -> str:
    """Compute, and leave the stores alone."""
    stop.send("under load")
    while not stop.poll():
        sum(range(100_000))
    return ""


LOADS: Final = {one.__name__: one for one in (processor, unary, streams, blocks, follow, reads)}


def _run(name: str, place: Place, pipe: Connection) -> None:
    pipe.send(asyncio.run(LOADS[name](place, pipe)))


@contextlib.asynccontextmanager
async def beside(name: str, place: Place, processes: int, got: list[str]) -> AsyncIterator[None]:
    """Run a load beside what is inside; afterwards `got` has what each process says."""
    started = []
    for _ in range(processes):
        here, there = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_run, args=(name, place, there)
        )
        process.start()
        there.close()
        started.append((process, here))
    try:
        for _, here in started:
            await asyncio.to_thread(here.recv)
        yield
        for _, here in started:
            here.send("end")
        for _, here in started:
            got.append(await asyncio.to_thread(here.recv))
    finally:
        for process, _ in started:
            process.join(5.0)
            process.kill()


# --- calls ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _channels(place: Place) -> AsyncIterator[list[grpc.aio.Channel]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(
                grpc.aio.secure_channel(
                    place.leader,
                    place.tls.credentials(),
                    options=(*OWN_CONNECTION, *place.tls.options()),
                )
            )
            for _ in range(place.connections)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in made))
        yield made


def _append(channel: grpc.aio.Channel, log: int, size: int) -> Request:
    call = channel.unary_unary(
        rpcs.APPEND.path,
        request_serializer=log_pb2.AppendRequest.SerializeToString,
        response_deserializer=log_pb2.AppendResponse.FromString,
    )
    block = encode_block([bytes(size)], timestamp_us=time.time_ns() // 1000)

    async def append() -> None:
        await call(log_pb2.AppendRequest(shard_id=log, block=block), timeout=TIMEOUT_S)

    return append


def _read(channel: grpc.aio.Channel, log: int, lsn: int, size: int) -> Request:
    call = channel.unary_unary(
        rpcs.READ.path,
        request_serializer=log_pb2.ReadRequest.SerializeToString,
        response_deserializer=log_pb2.ReadResponse.FromString,
    )

    async def read() -> None:
        await call(log_pb2.ReadRequest(shard_id=log, lsn=lsn, max_bytes=size), timeout=TIMEOUT_S)

    return read


# --- the rounds -----------------------------------------------------------------------------------


async def _two_logs(client: LogClient, created: int) -> tuple[int, int, str]:
    """Two logs that one store leads, and that store's address."""
    state = await client.hakeeper.cluster_state()
    found = [one.shard_id for one in state.shards if one.shard_id]
    while len(found) < created:
        found.append(await client.hakeeper.create_shard())
    await asyncio.gather(*(client.shard(log).connect(timeout=TIMEOUT_S) for log in found))
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            led: dict[str, int] = {}
            for log in found:
                leader = (await client.hakeeper.shard_info(log, fresh=True)).leader_address
                if leader in led:
                    return led[leader], log, leader
                if leader:
                    led[leader] = log
            await asyncio.sleep(0.2)


async def measure(cluster: LocalCluster, asked: argparse.Namespace) -> dict[str, list[Window]]:
    """All rounds."""
    names = ["alone", *(name for name in LOADS if name in asked.only.split(","))]
    admin, authority = cluster.client_tls(), Authority.open(cluster.directory / "certs")
    windows: dict[str, list[Window]] = {}
    async with LogClient(cluster.endpoints(), tls=admin) as client:
        loud_log, quiet_log, leader = await _two_logs(client, 6)
        places = {}
        for name, log in (("loud", loud_log), ("quiet", quiet_log)):
            files = cluster.client_tls(name)
            assert files is not None  # the cluster has TLS
            version = await client.hakeeper.change_access(
                authority.client_uri(name), f"shard/{log}", grant=("append", "read")
            )
            await client.hakeeper.wait_access(version)
            places[name] = Place(
                tuple(cluster.endpoints()),
                leader,
                log,
                files.current(),
                *((asked.connections, asked.calls) if name == "loud" else ()),
            )
        for log in (loud_log, quiet_log):
            for _ in range(FILL_BLOCKS // 8):
                await asyncio.gather(*(client.shard(log).append(bytes(65536)) for _ in range(8)))
    for number in range(asked.rounds):
        for name in names:
            window = await _window(name, places["loud"], places["quiet"], asked)
            windows.setdefault(name, []).append(window)
            sys.stdout.write(f"round {number + 1}: {line(name, [window])}\n")
            sys.stdout.flush()
    return windows


async def _window(name: str, loud: Place, quiet_one: Place, asked: argparse.Namespace) -> Window:
    async def calls() -> dict[str, list[float]]:
        if asked.loud_alone:
            await asyncio.sleep(asked.seconds)
            return {}
        return await quiet(quiet_one, asked.seconds)

    if name == "alone":
        return Window(await calls())
    got: list[str] = []
    async with beside(name, loud, asked.processes, got):
        found = await calls()
    await asyncio.sleep(SETTLE_S)
    return Window(found, "; ".join(got))


def line(name: str, windows: Sequence[Window]) -> str:
    """Median and range of p50 and p99 over `windows`."""
    text = [f"{name:9}"]
    for kind in KINDS:
        if not all(window.latencies.get(kind) for window in windows):
            continue
        shown = []
        for fraction in (0.5, 0.99):
            values = sorted(_at(sorted(one.latencies[kind]), fraction) for one in windows)
            spread = f" ({values[0]:.1f} - {values[-1]:.1f})" if len(values) > 1 else ""
            shown.append(f"{median(values):.1f}{spread}")
        text.append(f"{kind} p50 {shown[0]} p99 {shown[1]} ms;")
    return " ".join([*text, windows[-1].loud])


def _at(ordered: Sequence[float], fraction: float) -> float:
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def main() -> None:
    """Measure, and print a line for each window and for each load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=64, help="of each loud process")
    parser.add_argument("--calls", type=int, default=16, help="under way on each of them")
    parser.add_argument("--processes", type=int, default=1, help="of the loud identity")
    parser.add_argument("--only", default=",".join(LOADS), help="loads, separated by commas")
    parser.add_argument("--loud-alone", action="store_true", help="nobody is quiet")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: a temporary folder")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="identity-", dir=asked.dir) as name:
        for what, value in environment.describe(Path(name)).items():
            sys.stdout.write(f"{what}: {value}\n")
        cluster = LocalCluster.create(Path(name) / "stores", stores=3, shards=2, tls=True)
        try:
            cluster.up()
            windows = asyncio.run(measure(cluster, asked))
        finally:
            cluster.down()
    for load, measured in windows.items():
        sys.stdout.write(f"median: {line(load, measured)}\n")


if __name__ == "__main__":
    main()
