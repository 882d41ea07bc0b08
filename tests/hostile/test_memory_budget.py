"""The memory budget of real stores under attack: every part at once, and a disk that is slow.

The stores have the least limits that a configuration may name. While a client floods six logs,
readers take nothing, requests never become whole, and stores freeze, die and come back; a log is
deleted while it is flooded. What is asserted is seen from outside. The parts never exceed their
limits, and neither does the memory of the processes. Whoever is refused is told why, and nothing
acked is lost. When everybody has gone away in the middle of everything, no part holds anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from logservice_client import LogClient

from logservice import memory_budget
from logservice.cli.processes.local_cluster import LocalCluster
from tests.hostile import http2
from tests.hostile.budget_attack import (
    FOLLOW,
    MIB,
    READ,
    Gauges,
    Pump,
    catch_up,
    deaf_stream,
    greedy,
    record_ids,
)
from tests.hostile.test_edge_halves import APPEND, MISSING_BYTES, Sender, whole
from tests.hostile.victim import SETTINGS, Peak, resident_mib
from tests.local_stores import kill_stores
from tests.slow_disk import slow_syncs
from tests.waiting import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

SHARDS = (1, 2, 3, 4, 5, 6)
DELETED = 6
AT_A_TIME = 20
"""Appends of a MiB to each log at a time: 120 MiB are under way, of which a store may keep 64."""

KEYS = {
    "answer_bytes_max": 16 * MIB,
    "undelivered_bytes_max": 32 * MIB,
    "proposal_bytes_max": 64 * MIB,
    "unwritten_bytes_max": 64 * MIB,
    "peer_queue_bytes_max": 64 * MIB,
    "peer_request_bytes_max": 64 * MIB,
}
LIMITS = memory_budget.limits_of(KEYS, 1)
UNFILLED = ("call_lines", "peer_partial", "admin_answers")
"""Parts that this attack does not fill: a client that is alone waits in no line (the tests of lines
fill them), the snapshots of these logs are small (`test_transport_budget`), and the admin port is
not attacked (`test_deaf_connections`)."""

HALVES_BYTES_PER_S = 8 * MIB
"""Of each of two connections to a store. More would come before anybody can be cut."""

OVER_UNDELIVERED = AT_A_TIME * len(SHARDS) * MIB + 2 * 2 * HALVES_BYTES_PER_S
"""The kernel counts what comes, so this part is looked at, and not asked. Its gauge may be above
its limit by what the links bring in two seconds (docs/limits.md), until somebody is cut. That is
everything that the flood has under way, when a store was frozen, and what the attackers send."""

SLACK_MIB = OVER_UNDELIVERED // MIB + 64 + 64
"""What a store may have beside the parts that are filled. All requests that are under way: one that
is about to be refused is in memory, too. Entries whose proposers have given up, of logs whose
quorum is frozen, which are in no part (64). What Python takes beside the bytes, and the allocator
keeps (64)."""

GROWTH_MIB = sum(size for part, size in LIMITS.items() if part not in UNFILLED) // MIB + SLACK_MIB

LEFT_MIB = LIMITS["caches"] // MIB + 256
"""What a store may have more than before, when nobody asks anything of it any more: its caches, and
what the allocator keeps of small pieces, as gRPC's buffers of requests are (200 MiB were seen).
When calls that failed kept their requests this was a gigabyte."""

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "262144", "MALLOC_TRIM_THRESHOLD_": "1048576"}
"""The allocator of these stores gives back at once what is large. By default it keeps what there
was at the peak, and from outside that looks like a leak."""

MESSAGE_BYTES = 8 * MIB
"""More than any message of a leader: a sender gets no nearer to its share than by one of them."""

PINNED_S = 600.0
"""How long the leaders stay where the test has put them: longer than it runs."""

NOTHING_BYTES = 4096
"""What a store at rest may hold all the time: a question of another store that waits for news."""

TYPED = {"Busy", "DeadlineExceeded", "NotLeader", "NotReady"}
"""What a refused append is told. UnknownOutcome is what becomes of one at a store that was killed,
and of one that a leader proposed and lost."""


@pytest.fixture(autouse=True)
def _allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ALLOCATOR.items():
        monkeypatch.setenv(name, value)


@contextlib.contextmanager
def small_stores(directory: Path) -> Iterator[LocalCluster]:
    limits: dict[str, object] = {
        **KEYS,
        "identity_answer_bytes_max": KEYS["answer_bytes_max"],
        "identity_undelivered_bytes_max": KEYS["undelivered_bytes_max"],
        "memory_bytes_max": sum(LIMITS.values()),
    }
    cluster = LocalCluster.create(
        directory, shards=len(SHARDS), settings={**SETTINGS, "limits": limits}
    )
    try:
        cluster.up()
        for shard in SHARDS:
            cluster.wait_ready(60, shard)
        yield cluster
    finally:
        kill_stores(cluster)


class Watched:
    """The gauges of all stores, and the memory of those that live, while the block runs."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.gauges = {name: Gauges(place.admin) for name, place in cluster.stores.items()}
        self._idle: dict[str, float] = {}
        self._peaks: dict[str, Peak] = {}
        self._inside = contextlib.ExitStack()
        self._cluster = cluster

    def __enter__(self) -> Watched:
        for name, pid in self._cluster.pids().items():
            assert pid is not None
            self._idle[name] = resident_mib(pid)
            self._peaks[name] = self._inside.enter_context(Peak(pid))
            self._inside.enter_context(self.gauges[name])
        return self

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    def forget(self) -> None:
        for one in self.gauges.values():
            one.forget()

    def held(self) -> dict[str, dict[str, int]]:
        """What was in all samples since `forget`, but for the caches; of a store that was not
        seen: everything.
        """
        return {
            name: {
                part: size
                for part, size in one.least.items()
                if size > NOTHING_BYTES and part != "caches"
            }
            if one.least
            else LIMITS
            for name, one in self.gauges.items()
        }

    def left(self) -> dict[str, int]:
        """How much more memory each process has now than before, in MiB."""
        pids = self._cluster.pids()
        return {
            name: round(resident_mib(pid) - idle)
            for name, idle in self._idle.items()
            if (pid := pids[name]) is not None
        }

    def most(self, part: str) -> int:
        return max(one.most[part] for one in self.gauges.values())

    def check(self) -> None:
        """No part was above its limit, and no process had more than the parts explain."""
        for name, one in self.gauges.items():
            assert one.limit == LIMITS
            for part, size in one.most.items():
                over = OVER_UNDELIVERED if part == "undelivered" else 0
                assert size <= LIMITS[part] + over, f"{name}: {part} had {size} bytes"
        growth = {name: round(peak.mib - self._idle[name]) for name, peak in self._peaks.items()}
        parts = {part: self.most(part) // MIB for part in LIMITS}
        print(f"growth {growth} of at most {GROWTH_MIB} MiB; the most of each part: {parts}")
        assert max(growth.values()) <= GROWTH_MIB


def halves(address: str, ended: threading.Event) -> None:
    """Requests of 8 MiB that lack their last bytes, on one connection after the other."""
    body = http2.grpc_body(whole(APPEND))[:-MISSING_BYTES]
    while not ended.is_set():
        with (
            contextlib.suppress(OSError),
            contextlib.closing(Sender(address, None, "", APPEND, [body] * 8)) as one,
        ):
            one.run(HALVES_BYTES_PER_S, ended.is_set)


async def check_records(cluster: LocalCluster, pump: Pump) -> None:
    """Everything that was acked is in its log."""
    for shard in SHARDS:
        acked = {key: one for key, one in pump.acked.items() if key[0] == shard}
        last = max((lsn for _, lsn in acked), default=0)
        found = await record_ids(cluster.endpoints()[shard % 3], shard, last)
        assert acked.items() <= found.items()


async def nothing_held(watched: Watched) -> None:
    watched.forget()
    try:
        await eventually(lambda: not any(watched.held().values()), 90)
    except AssertionError as late:
        raise AssertionError(f"it was not given back: {watched.held()}") from late
    try:
        await eventually(lambda: max(watched.left().values()) <= LEFT_MIB, 60)
    except AssertionError as late:
        raise AssertionError(f"memory was not given back: {watched.left()} MiB") from late
    print(f"left {watched.left()} of at most {LEFT_MIB} MiB")


async def faults(cluster: LocalCluster) -> None:
    """A store is frozen, another one dies and comes back, and two are frozen."""
    first, second, third = (cluster.process(name) for name in cluster.stores)
    await asyncio.sleep(2)
    third.signal(signal.SIGSTOP)
    await asyncio.sleep(4)
    third.signal(signal.SIGCONT)
    cluster.kill(second.store_id)
    await asyncio.sleep(1.5)
    cluster.start(second.store_id)
    await asyncio.sleep(4)
    for frozen in (first, second):
        frozen.signal(signal.SIGSTOP)
    await asyncio.sleep(3)
    for frozen in (first, second):
        frozen.signal(signal.SIGCONT)
    await asyncio.sleep(2)


async def attack(cluster: LocalCluster, watched: Watched) -> None:
    refused: Counter[str] = Counter()
    ended = threading.Event()
    addresses = cluster.endpoints()
    held: list[socket.socket] = []
    with ThreadPoolExecutor(2 * len(addresses)) as pool:
        try:
            async with Pump(addresses, SHARDS, AT_A_TIME, MIB) as pump:
                for address in addresses:
                    for _ in range(2):
                        pool.submit(halves, address, ended)
                    held += [greedy(address, 1, path, 10) for path in (READ, FOLLOW)]
                others = [
                    asyncio.create_task(one)
                    for address in addresses
                    for one in (
                        *(catch_up(address, SHARDS, refused) for _ in range(4)),
                        deaf_stream(address, 2),
                    )
                ]
                await faults(cluster)
                for one in others:
                    one.cancel()
                await asyncio.gather(*others, return_exceptions=True)
        finally:
            ended.set()
            for connection in held:
                connection.close()
    print(f"{len(pump.acked)} acked; {dict(pump.errors)}; readers {dict(refused)}")
    await nothing_held(watched)
    watched.check()
    for part in ("answers", "undelivered", "proposals", "peer_queues"):
        asked = sum(one.refused[part] for one in watched.gauges.values())
        assert watched.most(part) >= LIMITS[part] / 2 or asked, f"{part} was not attacked"
    assert pump.errors["Busy"]
    assert refused["Busy"]
    assert set(pump.errors) <= {*TYPED, "UnknownOutcome"}
    await check_records(cluster, pump)


def test_every_part_at_once(tmp_path: Path) -> None:
    with small_stores(tmp_path / "cluster") as cluster, Watched(cluster) as watched:
        asyncio.run(attack(cluster, watched))


async def lead_from(cluster: LocalCluster, stores: Sequence[str]) -> None:
    """The logs are led by these stores, each by the next one in turn."""
    wanted = dict(zip(SHARDS, itertools.cycle(stores), strict=False))
    async with LogClient(cluster.endpoints()) as client:
        for shard, store in wanted.items():
            await client.hakeeper.set_leader(shard, PINNED_S, store_id=store, timeout=60)
        for _ in range(600):
            state = await client.hakeeper.cluster_state(timeout=60)
            if {one.shard_id: one.leader_store for one in state.shards}.items() >= wanted.items():
                return
            await asyncio.sleep(0.1)
    raise AssertionError(f"the logs are not led by {wanted}")


async def flood(cluster: LocalCluster, watched: Watched, slow: str, senders: int) -> None:
    """Until the slow store has refused entries, and holds what so many senders may make it hold."""
    gauges = watched.gauges[slow]
    share = LIMITS["unwritten"] * senders // (senders + 1)
    async with Pump(cluster.endpoints(), SHARDS, AT_A_TIME, MIB) as pump:
        await eventually(lambda: gauges.refused["unwritten"], 90)
        await eventually(lambda: gauges.most["unwritten"] >= share - MESSAGE_BYTES, 90)
        async with LogClient(cluster.endpoints()) as client:
            names = {
                one.shard_id: one.name for one in await client.hakeeper.list_shards(timeout=60)
            }
            await client.hakeeper.delete_shard(DELETED, names[DELETED], force=True, timeout=60)
    print(f"{len(pump.acked)} acked; {dict(pump.errors)}")


@pytest.mark.parametrize("leaders", [("store-1",), ("store-1", "store-2")])
def test_a_disk_that_is_slow(tmp_path: Path, leaders: tuple[str, ...]) -> None:
    """What waits for it stays within its part, also what was to be written of a deleted log. All of
    it comes from one store, or from two.
    """
    with small_stores(tmp_path / "cluster") as cluster, Watched(cluster) as watched:
        slow = "store-3"
        pid = cluster.pids()[slow]
        assert pid is not None
        asyncio.run(lead_from(cluster, leaders))
        with slow_syncs(pid, "delay_enter=500000") as tracer:
            asyncio.run(flood(cluster, watched, slow, len(leaders)))
            tracer.skip_if_ended()
        asyncio.run(nothing_held(watched))
        watched.check()
