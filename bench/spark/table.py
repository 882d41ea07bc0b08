"""A log into a Delta table, beside reading it and beside writing the same rows from memory.

    python -m bench.spark.table [--mib 256] [--rounds 3]

One real store, for blocks of 1000 records and of three, of 100 bytes each. In each round, one after
the other: the log is followed and nothing is done with it (*read*); it is brought into a new table
(*table*, `logservice_delta.tail`); and the same rows, which are in memory, are put into a new table
by delta-rs (*write*). Figures are MB of record bytes per second; what is compared is of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from logservice_client import Records, Shard
from logservice_client.testing import local_cluster
from logservice_delta import LogName, LogTable, tail
from logservice_delta.table import SCHEMA
from logservice_wire.block import encode_block

RECORD_BYTES = 100
UNDER_WAY = 64


async def fill(log: Shard, block_records: int, total: int) -> None:
    """Append `total` bytes of records."""
    block = encode_block([bytes(RECORD_BYTES)] * block_records, time.time_ns() // 1000)
    blocks = iter(range(total // (RECORD_BYTES * block_records)))

    async def one() -> None:
        for _ in blocks:
            await log.append_block(block)

    await asyncio.gather(*(one() for _ in range(UNDER_WAY)))


async def read(log: Shard) -> float:
    """Seconds."""
    began_s = time.perf_counter()
    async for item in log.follow(1, until_tail=True):
        assert isinstance(item, Records)
    return time.perf_counter() - began_s


async def bring(log: Shard, uri: Path) -> float:
    """Seconds."""
    began_s = time.perf_counter()
    assert log.lineage is not None
    table = LogTable.open(str(uri), LogName("bench", log.shard_id), log.lineage)
    await tail(log, table, until_tail=True)
    return time.perf_counter() - began_s


def write(found: DeltaTable, uri: Path) -> float:
    """Seconds to write what another table has, from memory."""
    rows = found.to_pyarrow_table().cast(SCHEMA)
    began_s = time.perf_counter()
    write_deltalake(uri, rows, mode="append")
    return time.perf_counter() - began_s


def show(name: str, rates: Sequence[float]) -> str:
    """Median and range."""
    return f"{name} {statistics.median(rates):.0f} ({min(rates):.0f} - {max(rates):.0f})"


async def rounds(log: Shard, total: int, count: int, folder: Path) -> None:
    """Print a line of figures."""
    rates: dict[str, list[float]] = {"read": [], "table": [], "write": []}
    for number in range(count):
        one, two = folder / f"a{number}", folder / f"b{number}"
        rates["read"].append(total / 1e6 / await read(log))
        rates["table"].append(total / 1e6 / await bring(log, one))
        table = DeltaTable(str(one))
        rates["write"].append(total / 1e6 / await asyncio.to_thread(write, table, two))
        shutil.rmtree(one)
        shutil.rmtree(two)
    shares = [a / b for a, b in zip(rates["table"], rates["write"], strict=True)]
    print("  MB/s:", ", ".join(show(name, found) for name, found in rates.items()))
    print(f"  table beside write: {statistics.median(shares):.2f}", end="")
    print(f" ({min(shares):.2f} - {max(shares):.2f})", flush=True)


async def run(options: argparse.Namespace) -> None:
    """All of it."""
    total = options.mib << 20
    with tempfile.TemporaryDirectory() as folder, local_cluster(logs=2) as cluster:
        async with cluster.async_client() as client:
            for shard, block_records in ((1, 1000), (2, 3)):
                log, size = client.shard(shard), total if block_records > 3 else total // 8
                await fill(log, block_records, size)
                print(f"blocks of {block_records} records, {size >> 20} MiB", flush=True)
                await rounds(log, size, options.rounds, Path(folder))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    print(f"pyarrow {pa.__version__}")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
