"""Reading one shard of a store that many share, cold, against the bare disk; and through gRPC.

    python -m bench.storage.reading DIRECTORY [--gib 1] [--store-gib 20] [--rounds 7]
    python -m bench.storage.reading DIRECTORY --through-grpc [--mib 256] [--seconds 3] [--rounds 5]

48 shards share one sequence of segments. Three of them are read: each has `gib` of payloads, in
*pieces*. A piece is the part of a commit group that belongs to the shard: 32 KiB in every group
(eight entries of 4 KiB), 64 KiB in every second one (one entry), 256 KiB in every eighth (four
entries). The other 45 have one entry in every group, as large as makes the store `store-gib`. Each
round reads the following in turn, each time with none of the segments in the page cache:

- a shard from end to end, as Read does it: 1 MiB at a time, by the read thread, with both checksums
  of every record verified, and each entry an object;
- its pieces, bare: the same reads, with 64 of them asked for in advance; nothing looks at them;
- the segments one after the other, as many bytes, a mebibyte at a time.

The bare sides read into one buffer: memory that is mapped anew for every read would cost them as
much as the disk does.

*CPU* is the processor time of the process for a GiB, in the kernel too: other work on the machine
changes this figure least. The directory must be on the file system of interest; the bench removes
what it makes there.

*Through gRPC*: three stores, and a client that follows a log from its first record to its tail,
from one store and its page cache: blocks of 1000 x 100 B, and of one record of 1 MiB. Beside each,
in the same round, the same bytes of one object from a gRPC server that does nothing else: that is
the ceiling here. Then linearizable reads, by 64 callers of one client and by a connection each;
what empty calls cost is `bench.parts.grpc_calls`. In each round everything is read once more,
outside of the time, and compared byte by byte with what was appended.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from logservice_client import LogClient, Records, Shard
from logservice_client.channels import CHANNEL_OPTIONS
from logservice_wire.block import HEADER_BYTES
from logservice_wire.rpcs import GET_SHARD_STATUS, serialize
from logservice_wire.v1 import log_pb2

from bench.load.closed_loop import Request
from bench.load.closed_loop import measure as measure_callers
from bench.storage.logdb import Shape, Store, drop_pages
from logservice.bounds import READ_BYTES_DEFAULT
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.ids import Index, ReplicaId, ShardId
from logservice.logdb.format.segment import segment_name
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.disks.executor import ThreadExecutor
from logservice.server.process import tune_interpreter

SHARDS = 48

IN_ORDER, BARE = "the files in order", "bare pieces of "


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of every `every`-th group that belongs to a shard which is read."""

    name: str
    shard: int
    every: int
    shape: Shape


PIECES = (
    Piece("32 KiB", 12, 1, Shape("", 1, 8, 4 << 10)),
    Piece("64 KiB", 24, 2, Shape("", 1, 1, 64 << 10)),
    Piece("256 KiB", 36, 8, Shape("", 1, 4, 64 << 10)),
)

ASKED = 64
"""How many bare pieces are asked for in advance; more made no difference beyond noise."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One side of one round."""

    mb_per_s: float
    cpu_s_per_gib: float


class Unsynced(PosixVfs):
    """Syncs nothing while a store is built that only has to exist: this saves minutes."""

    def write_durably(
        self, handle: int, buffers: Sequence[bytes | memoryview], offset: int
    ) -> None:
        """Write without a sync."""
        self.pwritev(handle, buffers, offset)

    def fdatasync(self, handle: int) -> None:
        """Do nothing: `build` syncs at its end."""


def build(path: str, wanted: int, store_bytes: int) -> Store:
    """A store of `store_bytes` in which each shard of PIECES has `wanted` bytes."""
    groups = wanted // PIECES[0].shape.bytes
    measured = {piece.shard: piece for piece in PIECES}
    others = SHARDS - len(PIECES)
    other = Shape("", 1, 1, max(1, (store_bytes - len(PIECES) * wanted) // groups // others))
    store = Store(path, Unsynced())
    for number in range(groups):
        updates = []
        for shard in range(SHARDS):
            piece = measured.get(shard)
            if piece is None:
                updates += store.updates(other, shard)
            elif number % piece.every == 0:
                updates += store.updates(piece.shape, shard)
        store.db.commit(updates)
    store.close()
    os.sync()
    store = Store(path)
    print(
        f"{groups} groups; {others} shards with an entry of {other.payload_bytes} bytes in each; "
        f"{store.db.segment_bytes / (1 << 30):.1f} GiB of segments"
    )
    return store


def bench_read(directory: Path, wanted: int, store_bytes: int, rounds: int) -> None:
    """Build, measure, print."""
    store = build(str(directory), wanted, store_bytes)
    sides: dict[str, Callable[[], int]] = {
        IN_ORDER: lambda: read_sequentially(directory, wanted),
    }
    for piece in PIECES:
        log = store.db.log(ShardId(piece.shard), ReplicaId(1))
        pieces = pieces_of(log)
        sides[f"a shard in pieces of {piece.name}"] = partial(read_shard, log)
        sides[f"{BARE}{piece.name}"] = partial(read_pieces, directory, pieces)
    found: dict[str, list[Measured]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(rounds):
        # Each round begins with another side, so that other work on the disk meets all sides alike.
        begin = number % len(names)
        for name in names[begin:] + names[:begin]:
            drop_pages(directory / "segments")
            found[name].append(measure(sides[name]))
    store.close()
    print(table(found))


def table(found: dict[str, list[Measured]]) -> str:
    """A row for each side: medians with their ranges, and shares within each round."""
    rows = [
        "| | MB/s | CPU, s/GiB | of the files in order | of its pieces, bare |",
        "|" + "---|" * 5,
    ]
    for name, ours in found.items():
        bare = found.get(name.replace("a shard in pieces of ", BARE), [])
        cpu = statistics.median(one.cpu_s_per_gib for one in ours)
        rows.append(
            f"| {name} | {spread([one.mb_per_s for one in ours])} | {cpu:.2f} "
            f"| {shares(ours, found[IN_ORDER])} | {shares(ours, bare)} |"
        )
    return "\n".join(rows)


def shares(ours: list[Measured], theirs: list[Measured]) -> str:
    """Our rate as a share of theirs, round by round; empty where there is nothing to compare."""
    if not theirs or ours is theirs:
        return ""
    ratios = [100 * one.mb_per_s / two.mb_per_s for one, two in zip(ours, theirs, strict=True)]
    return spread(ratios, " %")


def spread(values: list[float], unit: str = "") -> str:
    """Median and range."""

    def shown(value: float) -> str:
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"

    return f"{shown(statistics.median(values))}{unit} ({shown(min(values))} - {shown(max(values))})"


def measure(side: Callable[[], int]) -> Measured:
    """Rate and processor time of a side, by the bytes that it says it has read."""
    started, cpu = time.perf_counter(), time.process_time()
    size = side()
    spent, cpu = time.perf_counter() - started, time.process_time() - cpu
    return Measured(size / spent / 1e6, cpu / size * (1 << 30))


def read_shard(log: ReplicaLog) -> int:
    """Read all payloads of a shard as a Read does: a thread fetches them, the loop takes them."""
    executor = ThreadExecutor("reads")
    position, end, size = log.first_index(), Index(log.last_index() + 1), 0
    while position < end:
        fetch = log.fetch(position, end, READ_BYTES_DEFAULT)
        executor.submit(fetch.run).result()
        log.end_fetch(fetch)
        entries = log.fetched(fetch)
        size += sum(len(entry.payload) for entry in entries)
        position = Index(position + len(entries))
    executor.shutdown()
    return size


def pieces_of(log: ReplicaLog) -> list[tuple[int, int, int]]:
    """(segment, offset, bytes) of everything that `read_shard` has to read."""
    position, end = log.first_index(), Index(log.last_index() + 1)
    pieces = []
    while position < end:
        fetch = log.fetch(position, end, READ_BYTES_DEFAULT, ahead=False)
        for read in fetch.reads:
            pieces += [(read.segment, offset, size) for _, _, offset, size in read.spans()]
        position = Index(fetch.reads[-1].last + 1)
        log.end_fetch(fetch)
    return pieces


def read_pieces(directory: Path, pieces: list[tuple[int, int, int]]) -> int:
    """Do the same reads into one buffer."""
    buffer = memoryview(bytearray(max(size for _, _, size in pieces)))
    names = {
        segment: str(directory / "segments" / segment_name(segment)) for segment, _, _ in pieces
    }
    handles = {segment: os.open(name, os.O_RDONLY) for segment, name in names.items()}
    total = asked = 0
    for number, (segment, offset, size) in enumerate(pieces):
        for ahead, at, length in pieces[asked : number + ASKED]:
            os.posix_fadvise(handles[ahead], at, length, os.POSIX_FADV_WILLNEED)
        asked = max(asked, number + ASKED)
        total += os.preadv(handles[segment], [buffer[:size]], offset)
    for handle in handles.values():
        os.close(handle)
    return total


def read_sequentially(directory: Path, wanted: int) -> int:
    """Read at least `wanted` bytes of the segments into one buffer, a mebibyte at a time."""
    buffer, size = bytearray(1 << 20), 0
    for path in sorted((directory / "segments").glob("*.segment")):
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                size += count
        if size >= wanted:
            break
    return size


# --- through gRPC ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filled:
    """A log of equal appends, which whoever reads it compares with `records`."""

    shard: int
    records: tuple[bytes, ...]
    appends: int
    first_lsn: int

    @property
    def name(self) -> str:
        """For people."""
        return f"blocks of {len(self.records)} x {len(self.records[0])} B"


@dataclass(slots=True)
class Rounds:
    """MB/s, or reads/s, of each side."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, side: str, figure: float) -> None:
        """One round's."""
        self.found.setdefault(side, []).append(figure)

    def show(self) -> None:
        """Medians and ranges."""
        for side, figures in self.found.items():
            print(f"{side}: {spread(figures)}")


async def fill(client: LogClient, shard: int, count: int, size: int, total: int) -> Filled:
    """Append at least `total` bytes in blocks of `count` records of `size` random bytes."""
    records = tuple(os.urandom(size) for _ in range(count))
    log = client.shard(shard)
    first_lsn = await log.append(records)
    left = max(0, -(-total // (count * size)) - 1)
    appends = 1 + left

    async def writer() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await log.append(records)

    await asyncio.gather(*(writer() for _ in range(8)))
    return Filled(shard, records, appends, first_lsn)


async def block_reads(client: LogClient, filled: Filled) -> Measured:
    """Follow the log from its first append to its tail, as a reader of blocks does; the client
    checks each block's checksum and that no LSN is left out. CPU is this process's.
    """
    started, cpu = time.perf_counter(), time.process_time()
    size = records = 0
    async for item in client.shard(filled.shard).follow(filled.first_lsn, until_tail=True):
        assert isinstance(item, Records), item
        size += len(item.block.data)
        records += item.record_count
    spent, cpu = time.perf_counter() - started, time.process_time() - cpu
    wanted = filled.appends * len(filled.records)
    if records != wanted:
        raise RuntimeError(f"{records} records were read, and {wanted} appended")
    return Measured(size / spent / 1e6, cpu / size * (1 << 30))


async def verify(client: LogClient, filled: Filled) -> None:
    """Read the log and compare each record with what was appended. Raises RuntimeError."""
    wanted, next_lsn = list(filled.records), filled.first_lsn
    compared: dict[int, bytes] = {}
    async for item in client.shard(filled.shard).follow(filled.first_lsn, until_tail=True):
        assert isinstance(item, Records), item
        body = item.block.data[HEADER_BYTES:]
        times, rest = divmod(item.record_count, len(wanted))
        # Appends that waited together share a block. All are equal, so what has the bytes of a
        # block that was compared is equal, too.
        same = body == compared.get(times) or item.records() == wanted * times
        if item.first_lsn != next_lsn or rest or not same:
            raise RuntimeError(f"LSN {item.first_lsn} is not what was appended")
        compared[times], next_lsn = bytes(body), item.next_lsn
    if next_lsn != filled.first_lsn + filled.appends * len(wanted):
        raise RuntimeError(f"the log ends at {next_lsn}")


@asynccontextmanager
async def linearizable_reads(
    endpoints: Sequence[str], shard: int, callers: int
) -> AsyncIterator[list[Request]]:
    """Callers of one client who ask for the log's end. Each checks that no answer is older than
    what was acked before its question: a writer appends a record every 10 ms meanwhile.
    """
    async with LogClient(endpoints) as client, AsyncExitStack() as stack:
        acked = await _appending(client.shard(shard), stack)

        async def read() -> int:
            least = acked[-1]
            found = (await client.shard(shard).status()).position.applied_lsn
            _check_end(found, least)
            return 1

        yield [read] * callers


@asynccontextmanager
async def linearizable_connections(
    endpoints: Sequence[str], leader: str, shard: int, callers: int
) -> AsyncIterator[list[Request]]:
    """The same by callers with a connection each, as that many processes would ask."""
    async with LogClient(endpoints) as client, AsyncExitStack() as stack:
        acked = await _appending(client.shard(shard), stack)
        rpc, request = GET_SHARD_STATUS, log_pb2.GetShardStatusRequest(shard_id=shard)

        def reader(channel: grpc.aio.Channel) -> Request:
            call: Any = channel.unary_unary(rpc.path, serialize, rpc.parse_response)

            async def read() -> int:
                least = acked[-1]
                _check_end((await call(request, timeout=30)).position.applied_lsn, least)
                return 1

            return read

        yield [reader(channel) for channel in await _channels(leader, callers, stack)]


def _check_end(found: int, least: int) -> None:
    if found < least:
        raise RuntimeError(f"a linearizable read ended at {found}; {least} was acked before it")


async def _appending(log: Shard, stack: AsyncExitStack) -> list[int]:
    """The LSNs that were acked so far; more come until `stack` ends."""
    acked = [await log.append(b"read")]

    async def writer() -> None:
        while True:
            await asyncio.sleep(0.01)
            acked.append(await log.append(b"read"))

    writing = asyncio.create_task(writer())

    async def end() -> None:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    stack.push_async_callback(end)
    return acked


async def _channels(address: str, count: int, stack: AsyncExitStack) -> list[grpc.aio.Channel]:
    channels = [
        await stack.enter_async_context(grpc.aio.insecure_channel(address, CHANNEL_OPTIONS))
        for _ in range(count)
    ]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    return channels


class Ceiling:
    """A gRPC server in a process of its own that streams one object again and again."""

    def __init__(self) -> None:
        """Starts it."""
        ours, its = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve_nothing, args=(its,), daemon=True)
        self._process.start()
        self.address = f"127.0.0.1:{ours.recv()}"

    async def streamed(self, message_bytes: int, total: int) -> Measured:
        """MB/s of `total` bytes in messages of `message_bytes`, which nobody looks at."""
        async with AsyncExitStack() as stack:
            (channel,) = await _channels(self.address, 1, stack)
            call: Any = channel.unary_stream("/ceiling/Stream", _as_it_is, _as_it_is)
            count, size = -(-total // message_bytes), 0
            started, cpu = time.perf_counter(), time.process_time()
            async for message in call(f"{message_bytes} {count}".encode()):
                size += len(message)
            spent, cpu = time.perf_counter() - started, time.process_time() - cpu
        return Measured(size / spent / 1e6, cpu / size * (1 << 30))

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()


def _as_it_is(data: bytes) -> bytes:
    return data


def _serve_nothing(told: Connection) -> None:
    tune_interpreter()
    asyncio.run(_nothing(told))


async def _nothing(told: Connection) -> None:
    async def stream(request: bytes, context: Any) -> None:
        size, count = map(int, request.split())
        message = os.urandom(size)
        for _ in range(count):
            await context.write(message)

    handlers = {"Stream": grpc.unary_stream_rpc_method_handler(stream)}
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ceiling", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    told.send(port)
    await server.wait_for_termination()


async def bench_through_grpc(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    """Measure and print; `cluster` has three logs and runs."""
    total, ceiling, rounds = arguments.mib << 20, Ceiling(), Rounds()
    endpoints = cluster.endpoints()
    try:
        async with LogClient(endpoints) as client:
            state = await client.hakeeper.cluster_state()
            small, large, asked = sorted(one.shard_id for one in state.shards if one.shard_id)[:3]
            logs = (
                await fill(client, small, 1000, 100, total),
                await fill(client, large, 1, 1 << 20, total),
            )
            leader = (await client.shard(asked).status()).position.leader_address
        for _ in range(arguments.rounds):
            for log in logs:
                # A client that did nothing before is a process that only reads.
                async with LogClient(endpoints) as client:
                    found = await block_reads(client, log)
                    await verify(client, log)
                bare = await ceiling.streamed(1 << 20, total)
                rounds.add(f"{log.name}, MB/s", found.mb_per_s)
                rounds.add(f"{log.name}, client's CPU, s/GiB", found.cpu_s_per_gib)
                rounds.add(f"{log.name}, of gRPC alone, %", 100 * found.mb_per_s / bare.mb_per_s)
                rounds.add("gRPC alone, 1 MiB, MB/s", bare.mb_per_s)
                rounds.add("gRPC alone, client's CPU, s/GiB", bare.cpu_s_per_gib)
            for name, callers in (
                (
                    "linearizable, 64 callers in one client, /s",
                    linearizable_reads(endpoints, asked, 64),
                ),
                (
                    "linearizable, 64 connections, /s",
                    linearizable_connections(endpoints, leader, asked, 64),
                ),
            ):
                async with callers as requests:
                    sample = await measure_callers(
                        requests, warmup_s=0.5, seconds=arguments.seconds
                    )
                rounds.add(name, sample.rate)
    finally:
        ceiling.close()
    rounds.show()


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory")
    parser.add_argument("--gib", type=float, default=1.0, help="payloads of each shard read")
    parser.add_argument("--store-gib", type=float, default=20.0, help="of all shards")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--through-grpc", action="store_true", help="of three stores, warm")
    parser.add_argument("--mib", type=int, default=256, help="of each log read through gRPC")
    parser.add_argument("--seconds", type=float, default=3.0, help="of linearizable reads")
    arguments = parser.parse_args()
    tune_interpreter()
    root = Path(tempfile.mkdtemp(prefix="read-bench-", dir=arguments.directory))
    try:
        if arguments.through_grpc:
            cluster = LocalCluster.create(root / "cluster", stores=3, shards=3)
            try:
                cluster.up()
                asyncio.run(bench_through_grpc(cluster, arguments))
            finally:
                cluster.down()
            return
        wanted, store_bytes = int(arguments.gib * (1 << 30)), int(arguments.store_gib * (1 << 30))
        bench_read(root / "store", wanted, store_bytes, arguments.rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
