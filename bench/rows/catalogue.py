"""The rows of the report, in its order, with the targets that ours has for each.

`WORKLOADS` are the lines of the list of targets; each has a row at least, and each row belongs to
one, or to `FURTHER`: what the list does not name, but a reader wants to see.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.peers.peer import Workload
from bench.rows.appends import appends
from bench.rows.batches import blocks, bulk
from bench.rows.calls import calls
from bench.rows.catch_up import catch_up
from bench.rows.failover import KILLS_A_ROUND, failover
from bench.rows.idle import idle
from bench.rows.keeper import keeper
from bench.rows.orderly import orderly
from bench.rows.ours import Batches
from bench.rows.reads import in_blocks, one_by_one
from bench.rows.restart import restart
from bench.rows.row import Row, Target
from bench.rows.spark import PARQUET, spark
from bench.rows.steady import steady
from bench.rows.sweep import sweep

ONE: Final = "1 caller, 256 B"
MANY: Final = "64 callers in one client, 256 B"
UNARY: Final = "64 separate connections, unary"
THOUSAND: Final = "1000 callers, 16 B, one shard"
SHARDS: Final = "1000 callers, 16 B and 1 KiB, 48 shards"
BLOCKS: Final = "blocks of 1000 x 100 B"
BULK: Final = "1 KiB records in bulk"
READS: Final = "reads"
SPARK: Final = "Spark replay, 100 B records, from a real cluster"
CATCH_UP: Final = "catch-up of 1 GiB beside load"
KILLED: Final = "leader killed -> next acked append"
RESTART: Final = "restart with 10 GiB retained"
IDLE: Final = "idle cluster; 1 000; 10 000 idle shards, three stores together"
KEEPER: Final = "HAKeeper, 100 stores x 10 000 shards"

WORKLOADS: Final = (
    ONE,
    MANY,
    UNARY,
    THOUSAND,
    SHARDS,
    BLOCKS,
    BULK,
    READS,
    SPARK,
    CATCH_UP,
    KILLED,
    RESTART,
    IDLE,
    KEEPER,
)
FURTHER: Final = "further"

APPENDS: Final = "appends/s"

TRIPLE: Final = Target(
    "at least 3x the better engine of Dragonboat", "rate", 3.0, peer="Dragonboat"
)


def _few(most: int) -> partial[int]:
    return partial(min, most)


def _idle_targets(core: float, *, shards: int = 1) -> tuple[Target, ...]:
    targets = [
        Target(f"at most {100 * core:g} % of a core", "core", core, at_most=True),
        Target("starts in at most 3 s", "start_s", 3.0, at_most=True),
    ]
    if shards > 1:
        targets.insert(1, Target("at most 20 KiB per replica", "replica_kib", 20.0, at_most=True))
    return tuple(targets)


ROWS: Final = (
    Row(
        "one-caller",
        "1 caller, 256 B",
        ONE,
        APPENDS,
        partial(appends, Workload(1, 256), disk=True),
        (
            Target("p50 at most etcd's", "p50_ms", 1.0, at_most=True, peer="etcd"),
            Target("stretch: p50 at most 0.8x", "p50_ms", 0.8, at_most=True, peer="etcd"),
        ),
    ),
    Row(
        "one-caller-calls",
        "system calls of the leader for it",
        ONE,
        "calls/append",
        calls,
        (
            Target("at most 25", "calls", 25.0, at_most=True),
            Target("at most 6 of them futex", "futex", 6.0, at_most=True),
        ),
        value="calls",
        rounds=_few(3),
    ),
    Row(
        "64-callers-16",
        "64 callers in one client, 16 B",
        FURTHER,
        APPENDS,
        partial(appends, Workload(64, 16)),
    ),
    Row(
        "64-callers",
        "64 callers in one client, 256 B",
        MANY,
        APPENDS,
        partial(appends, Workload(64, 256)),
        (
            Target("at least 6.5x etcd 3.4", "rate", 6.5, peer="etcd 3.4"),
            Target("at least 2x NATS", "rate", 2.0, peer="NATS"),
            Target("at least Dragonboat in process", "rate", 1.0, peer="Dragonboat"),
        ),
    ),
    Row(
        "64-connections",
        "64 connections, unary, 256 B",
        UNARY,
        APPENDS,
        partial(appends, Workload(64, 256, connections=64)),
        (Target("at least etcd", "rate", 1.0, peer="etcd"),),
    ),
    Row(
        "512-connections",
        "512 connections, unary, 256 B",
        FURTHER,
        APPENDS,
        partial(appends, Workload(512, 256, connections=512)),
    ),
    Row(
        "1000-callers",
        "1000 callers, 16 B, one shard",
        THOUSAND,
        APPENDS,
        partial(appends, Workload(1000, 16)),
        (Target("at least 1.2x Dragonboat in process", "rate", 1.2, peer="Dragonboat"),),
    ),
    Row(
        "48-shards",
        "1000 callers, 48 shards, 16 B",
        SHARDS,
        APPENDS,
        partial(appends, Workload(1000, 16, shards=48)),
        (TRIPLE,),
    ),
    Row(
        "48-shards-1k",
        "1000 callers, 48 shards, 1 KiB",
        SHARDS,
        APPENDS,
        partial(appends, Workload(1000, 1024, shards=48)),
        (TRIPLE,),
    ),
    Row(
        "1000-shards",
        "1000 callers, 1000 shards, 16 B",
        FURTHER,
        APPENDS,
        partial(appends, Workload(1000, 16, shards=1000)),
    ),
    Row(
        "blocks",
        "blocks of 1000 x 100 B, 8 under way",
        BLOCKS,
        "records/s",
        partial(blocks, Batches(8, 1000, 100)),
        (Target("at least 1 M records/s", "rate", 1e6),),
    ),
    Row(
        "bulk",
        "1 KiB records in blocks of 256 KiB, 16 under way",
        BULK,
        "B/s",
        partial(bulk, Batches(16, 256, 1024)),
        (Target("at least 70 % of three raw copies", "rate", 0.7, peer="raw disk"),),
    ),
    Row(
        "reads",
        "reads in blocks, one client",
        READS,
        "B/s",
        in_blocks,
        (Target("at least 1 GB/s", "rate", 1e9),),
    ),
    Row(
        "unary-reads",
        "linearizable reads, unary, 64 at a time",
        READS,
        "reads/s",
        one_by_one,
        (Target("at least 10 k/s", "rate", 1e4),),
    ),
    Row(
        "spark",
        "Spark replay, 100 B records, from a cluster",
        SPARK,
        "rows/s",
        spark,
        (
            Target("at least 1 M rows/s", "rate", 1e6),
            Target("aggregate: at most 2x Parquet", "aggregate_us", 2.0, True, PARQUET),
            Target("count: at most 1.5x Parquet", "count_us", 1.5, True, PARQUET),
        ),
        long=True,
    ),
    Row(
        "catch-up",
        "appends of 64 callers beside a catch-up of 1 GiB",
        CATCH_UP,
        "of the appends",
        catch_up,
        (Target("keep at least two thirds", "kept", 2 / 3),),
        value="kept",
        rounds=_few(3),
        long=True,
    ),
    Row(
        "failover",
        "leader killed, next acked append",
        KILLED,
        "election time-outs",
        failover,
        (Target("at most 1.5 election time-outs, p99", "elections", 1.5, True, p99=True),),
        value="elections",
        rounds=lambda rounds: KILLS_A_ROUND * rounds,
    ),
    Row(
        "orderly",
        "leader told to stop under load, longest time without an ack",
        FURTHER,
        "s",
        orderly,
        value="gap_s",
    ),
    Row(
        "restart-1",
        "restart with 1 GiB retained",
        FURTHER,
        "s to serving",
        partial(restart, 1.0),
        (Target("at most 2 s", "ready_s", 2.0, at_most=True),),
        value="ready_s",
    ),
    Row(
        "restart-10",
        "restart with 10 GiB retained",
        RESTART,
        "s to serving",
        partial(restart, 10.0),
        (Target("at most 2 s", "ready_s", 2.0, at_most=True),),
        value="ready_s",
        long=True,
    ),
    Row(
        "idle",
        "idle cluster",
        IDLE,
        "of a core, three stores",
        partial(idle, 1),
        _idle_targets(0.015),
        value="core",
        rounds=_few(3),
    ),
    Row(
        "idle-1000",
        "1 000 idle shards",
        IDLE,
        "of a core, three stores",
        partial(idle, 1000),
        _idle_targets(0.05, shards=1000),
        value="core",
        rounds=_few(3),
    ),
    Row(
        "idle-10000",
        "10 000 idle shards",
        IDLE,
        "of a core, three stores",
        partial(idle, 10_000),
        _idle_targets(0.10, shards=10_000),
        value="core",
        rounds=_few(1),
        long=True,
    ),
    Row(
        "hakeeper",
        "HAKeeper, 100 stores x 10 000 shards: a check after one changed report",
        KEEPER,
        "ms of processor",
        keeper,
        (
            Target("at most 5 ms", "check_ms", 5.0, at_most=True),
            Target("no stretch longer than 20 ms", "stretch_ms", 20.0, at_most=True),
        ),
        value="check_ms",
        rounds=_few(3),
        long=True,
    ),
    Row(
        "open-200",
        "open loop, 200 appends/s of 256 B",
        FURTHER,
        "ms, p99",
        partial(steady, 200.0),
        value="p99_ms",
    ),
    Row(
        "open-5000",
        "open loop, 5 000 appends/s of 256 B",
        FURTHER,
        "ms, p99",
        partial(steady, 5000.0),
        value="p99_ms",
    ),
    Row(
        "open-half",
        "open loop at half of each one's closed loop of 256 callers",
        FURTHER,
        "ms, p99",
        partial(steady, 0.5),
        value="p99_ms",
    ),
    Row(
        "callers",
        "throughput against callers, 256 B; the table shows 1000",
        FURTHER,
        APPENDS,
        partial(sweep, 256),
        value="rate_1000",
        rounds=_few(3),
        long=True,
    ),
)
