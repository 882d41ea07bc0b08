"""One chaos run: start, disturb under load, heal, read everything back, judge."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import grpc
import grpc.aio

from logservice.cli.processes.local_cluster import LocalCluster
from logservice.sim.history import Append, Operation, Outcome, Verdict, check
from tests.chaos.client import Settings
from tests.chaos.final_read import NotConverged, converged, read_all
from tests.chaos.history_file import HistoryWriter, load
from tests.chaos.nemesis import Wanted, plan
from tests.chaos.world import Client, World

PROGRESS_TIMEOUT_S = 60.0
"""With every store running, appends must go on within this time (an election takes about one;
the rest is for a machine that is busy with something else)."""
PROGRESS_RECORDS = 200
"""How many records are acked between two disturbances: a fault without load tests nothing."""
CONVERGE_TIMEOUT_S = 60.0

Show = Callable[[World, str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line, which describes them."""

    seed: int
    wanted: Wanted
    stores: int
    clients: int
    writers: int
    shards: int
    batch_max: int
    record_bytes: int
    pause_s: float
    keep_records: int
    min_records: int
    directory: Path


@dataclass(slots=True)
class Result:
    """What came of a run. `problems`: everything that is wrong besides the verdicts."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    pauses: int = 0
    acked: int = 0
    slowest_append_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    longest_gap_s: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and all(verdict.ok for verdict in self.verdicts.values())


def _settings(options: Options, cluster: LocalCluster, number: int) -> Settings:
    return Settings(
        name=f"c{number}",
        endpoints=cluster.endpoints(),
        shards=list(range(1, options.shards + 1)),
        directory=str(options.directory),
        seed=options.seed,
        writers=options.writers,
        batch_max=options.batch_max,
        record_bytes=options.record_bytes,
        pause_s=options.pause_s,
        keep_records=options.keep_records if number == 0 else 0,
    )


def _new_cluster(options: Options) -> LocalCluster:
    settings: dict[str, dict[str, object]] = {"storage": {"segment_bytes": 4 * 1024 * 1024}}
    if options.wanted.replacements:
        settings["hakeeper"] = {"store_timeout_s": 10.0}
    return LocalCluster.create(
        options.directory / "cluster",
        stores=options.stores,
        shards=options.shards,
        settings=settings,
    )


async def run(options: Options, show: Show) -> Result:
    """Do the whole run. At the end the cluster is stopped; its files stay."""
    result = Result()
    cluster = _new_cluster(options)
    clients = [Client(_settings(options, cluster, number)) for number in range(options.clients)]
    world = World(cluster, clients, list(range(1, options.shards + 1)))
    try:
        began = time.monotonic()
        show(world, "starting")
        await asyncio.to_thread(cluster.up)
        for shard in world.shards:
            await asyncio.to_thread(cluster.wait_ready, 60.0, shard)
        result.seconds["start"] = time.monotonic() - began
        began = time.monotonic()
        for client in clients:
            await client.start()
        await _disturb(options, world, show)
        show(world, "stopping clients")
        await world.stop_clients()
        world.check_alive()
        result.seconds["load"] = time.monotonic() - began
        began = time.monotonic()
        show(world, "reading every replica")
        await _read_back(options, world)
        result.seconds["read back"] = time.monotonic() - began
    finally:
        await asyncio.to_thread(cluster.down)
    began = time.monotonic()
    show(world, "checking")
    for shard in world.shards:
        operations = load(sorted(options.directory.glob(f"history-{shard}-*.jsonl")))
        result.verdicts[shard] = check(operations)
        _measure_gaps(operations, world, result)
    result.seconds["check"] = time.monotonic() - began
    _sum_up(options, world, result)
    return result


def _measure_gaps(operations: list[Operation], world: World, result: Result) -> None:
    """Find the longest time without an ack of the shard after each kind of fault."""
    acks = sorted(
        op.returned for op in operations if isinstance(op, Append) and op.outcome is Outcome.OK
    )
    times = [when for when, _ in world.events]
    for before, after in pairwise(acks):
        # The last fault that began before the gap ended is the one that can have caused it.
        index = bisect.bisect_right(times, after) - 1
        if index >= 0:
            kind = world.events[index][1]
            result.longest_gap_s[kind] = max(result.longest_gap_s.get(kind, 0.0), after - before)


def _sum_up(options: Options, world: World, result: Result) -> None:
    result.problems = world.problems
    result.faults = dict(world.done)
    result.kills, result.pauses, result.acked = world.kills, world.pauses, world.acked
    for client in world.clients:
        result.slowest_append_s = max(result.slowest_append_s, client.counts.slowest_append_s)
        for reason, count in client.counts.errors.items():
            result.errors[reason] = result.errors.get(reason, 0) + count
    if result.acked < options.min_records:
        result.problems.append(
            f"only {result.acked} records were acked, {options.min_records} make a valid run"
        )
    for shard in world.shards:
        path = options.directory / "cluster"
        for name in world.names:
            log = (path / name / "store.log").read_text(errors="replace")
            for sign in ("InvariantViolation", "Traceback (most recent call last)"):
                if sign in log and not any(sign in problem for problem in result.problems):
                    result.problems.append(f"{sign} in the log of {name} (shard {shard})")


async def _progress(world: World, records: int, show: Show, note: str) -> bool:
    """Wait until `records` more of every shard are acked; False when that takes too long."""
    goals = {shard: world.acked_of(shard) + records for shard in world.shards}
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while any(world.acked_of(shard) < goal for shard, goal in goals.items()):
        world.check_alive()
        show(world, note)
        if time.monotonic() > deadline:
            world.problems.append(
                f"no progress for {PROGRESS_TIMEOUT_S:g} s with all stores running: {note}"
            )
            return False
        await asyncio.sleep(0.05)
    return True


async def _disturb(options: Options, world: World, show: Show) -> None:
    steps = plan(options.seed, options.wanted, options.stores)
    note = "first appends"
    for step in steps:
        if not await _progress(world, PROGRESS_RECORDS, show, note):
            return
        await asyncio.sleep(step.before_s)
        note = step.fault.value
        show(world, note)
        await world.disturb(step)
    if not await _progress(world, PROGRESS_RECORDS, show, note):
        return
    left = options.min_records - world.acked
    while left > 0 and await _progress(world, min(left, PROGRESS_RECORDS), show, "filling up"):
        left = options.min_records - world.acked


async def _read_back(options: Options, world: World) -> None:
    addresses = world.addresses()
    for shard in world.shards:
        writer = HistoryWriter(options.directory / f"history-{shard}-final.jsonl")
        try:
            holders = await converged(addresses, shard, min(3, options.stores), CONVERGE_TIMEOUT_S)
            for store in holders:
                writer.add(await read_all(store, addresses[store], shard))
        except NotConverged as error:
            world.problems.append(str(error))
        except (grpc.aio.AioRpcError, ValueError) as error:
            world.problems.append(f"final read of shard {shard}: {error}")
        finally:
            writer.close()
    world.check_alive()
