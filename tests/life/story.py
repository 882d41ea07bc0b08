"""Story: a cluster lives through what an operator does to one, with every log under load.

Six stores in three zones, a host each. The verbs are those of `logctl`, run as a person runs them.
Nothing here retries a verb or an append: what fails has failed. A step waits for what the cluster
*reports*, and each wait has a limit.

In every step, HAKeeper's leader is killed while the cluster is at work on it, and started again.
With hosts of their own (`hosts`) the lost zone falls silent instead of hanging up, and the link of
HAKeeper's leader is cut until the others have replaced it.

The short story has fewer logs, fewer stores join, and the busy log goes from one replica to three;
the long one is that of the contract: 64 logs, twice as many stores, one to three to five to three.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logservice_client import LogClient
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import hakeeper_pb2

from logservice.cli.processes.local_cluster import ADMIN, LocalCluster
from tests.cluster_state import whole
from tests.life.hosts import HostedCluster, Network
from tests.life.load import Load, Phase
from tests.stories import Teller

ZONES = ("z1", "z2", "z3")
STORE_TIMEOUT_S = 5.0
HEARTBEAT_S = 0.3
"""A move takes four heartbeats, and one more until its place is free for the next move; that begins
when balancing looks, every 2 s. With 1 s a place was taken for 6 s, with 0.5 s for 4 s, and most of
the story was waiting.
"""

TRUNCATION_S = 5.0
"""A visit exports a snapshot of every log that was written to, with three syncs each. Once a second
and on eight stores, that is most of what a disk can do, and the appends wait behind it.
"""

STEP_TIMEOUT_S = 180.0
POLL_S = 0.2
KILL_AFTER_S = 1.0
"""HAKeeper's leader is killed so long after a step began: its verb is under way then. A verb that
would be refused while a store is away (`drain`) is waited for."""

SEGMENT_BYTES = 4 * 1024 * 1024
LARGE_BYTES = 256 * 1024
CTL_AT_ONCE = 8

State = hakeeper_pb2.ClusterState


class LifeFailed(Exception):
    """A check did not hold."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the story is."""

    logs: int
    counts: tuple[int, ...]
    """The numbers of replicas that the busy log has, one after the other."""
    pause_s: float
    joining: int
    """How many stores join; there are four then."""
    large_appends: int
    """How many large appends each log gets before half of the logs are deleted."""


LONG = Size(64, (1, 3, 5, 3), 1.0, 4, 16)
SHORT = Size(12, (1, 3), 0.25, 2, 32)


class Story:
    """One run; `run` raises LifeFailed."""

    def __init__(
        self, directory: Path, size: Size, say: Callable[[str], None], *, hosts: bool = False
    ) -> None:
        """`hosts`: whether each store has a host of its own; only after `hosts.enter`."""
        self.size = size
        self.tell = Teller(say).tell
        self.cluster = (HostedCluster if hosts else LocalCluster).create(
            directory / "cluster",
            stores=6,
            shards=size.logs,
            zones=len(ZONES),
            tls=hosts,
            settings={
                "hakeeper": {
                    "store_timeout_s": STORE_TIMEOUT_S,
                    "heartbeat_interval_s": HEARTBEAT_S,
                },
                "storage": {"segment_bytes": SEGMENT_BYTES},
                "truncation": {"interval_s": TRUNCATION_S},
            },
        )
        self.deleted: set[int] = set()
        self.deleting = asyncio.Semaphore(CTL_AT_ONCE)
        self.machines = asyncio.Lock()
        """Whoever stops or starts a store holds it, so that nobody kills one that is being started.
        """
        self.kills = 0
        self.may_kill = asyncio.Event()
        """Not set: the step's verb has not been accepted yet."""
        self.client: LogClient
        self.load: Load

    async def run(self) -> Load:
        """The whole story."""
        await asyncio.to_thread(self.cluster.up, 120.0)
        for store, place in self.cluster.stores.items():
            if not place.bootstrap:
                await asyncio.to_thread(self.cluster.admit, store)
        self.client = LogClient(self.cluster.endpoints(), tls=self.cluster.client_tls())
        self.load = Load(self.client, self.size.pause_s)
        try:
            self.begin("start")
            logs = list(range(1, self.size.logs + 1))
            for log in logs:
                self.load.write(log)
            await self.until("every log has its replicas", whole)
            await self.until("no zone holds a majority of a log", spread)
            for step in self.steps():
                self.may_kill.set()
                killer = asyncio.create_task(self.kill_hakeeper_leader())
                try:
                    await step()
                finally:
                    self.may_kill.set()
                    await killer
                await self.until("every log has its replicas", whole)
                self.check()
            await self.load.stop()
            self.load.end()
            await self.read_back()
        finally:
            await self.client.close()
        return self.load

    def steps(self) -> list[Callable[[], Any]]:
        """What happens, in its order."""
        steps = [
            self.zone_lost,
            self.zone_back,
            self.drain,
            self.rolling_restart,
            self.grown,
            self.moved,
            self.replica_counts,
            self.deletion,
        ]
        if isinstance(self.cluster, HostedCluster):
            self.tell(f"  every link: {self.cluster.network.shaped}")
            steps.insert(0, functools.partial(self.link_cut, self.cluster.network))
        return steps

    # --- steps ------------------------------------------------------------------------------------

    async def link_cut(self, network: Network) -> None:
        """The host of HAKeeper's leader is cut off, while its processes run on, and comes back."""
        phase = self.begin("the link of HAKeeper's leader is cut")
        async with self.machines:
            cut = of_log(await self.state(), 0).leader_store
            network.cut(cut)
            state = await self.until("it has expired", lambda now: silent(now, cut))
            state = await self.until("others have its replicas", lambda now: whole(now, [cut]))
            phase.note = f"{cut}; {of_log(state, 0).leader_store} leads HAKeeper then"
            network.heal(cut)
        await self.until(f"{cut} is back", functools.partial(joined, cut))

    async def zone_lost(self) -> None:
        """A zone is lost for good, with its disks."""
        lost = self.stores_in(await self.state(), "z3")
        phase = self.begin("zone z3 is lost for good")
        for store in lost:
            async with self.machines:
                if isinstance(self.cluster, HostedCluster):
                    self.cluster.network.cut(store)
                await asyncio.to_thread(self.cluster.forget, store)
        await self.until("every log has its replicas in two zones", lambda now: whole(now, lost))
        for store in lost:
            await self.ctl("stores", "forget", store, "--lost")
        phase.note = f"{len(lost)} stores"

    async def zone_back(self) -> None:
        """New machines come up in that zone."""
        self.begin("two new stores in z3")
        await self.join(["z3", "z3"])
        await self.until("no zone holds a majority of a log", spread)

    async def drain(self) -> None:
        """Two stores are emptied, stopped and forgotten."""
        self.may_kill.clear()
        phase = self.begin("two stores drained and removed")
        stores = [self.stores_in(await self.state(), zone)[-1] for zone in ("z1", "z2")]
        began_s = time.monotonic()
        wait = f"{STEP_TIMEOUT_S:.0f}"
        drains = asyncio.gather(
            *(self.ctl("stores", "drain", store, "--wait", wait) for store in stores)
        )
        begun = asyncio.create_task(
            self.until("both are draining", functools.partial(draining, stores))
        )
        under_way: list[asyncio.Future[Any]] = [drains, begun]
        await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        self.may_kill.set()
        await asyncio.gather(*under_way)
        phase.note = f"{' and '.join(stores)} empty after {time.monotonic() - began_s:.1f} s"
        for store in stores:
            async with self.machines:
                await asyncio.to_thread(self.cluster.forget, store)
            await self.ctl("stores", "forget", store)

    async def rolling_restart(self) -> None:
        """Every store is restarted, one after the other."""
        phase = self.begin("rolling restart")
        for store in list(self.cluster.stores):
            async with self.machines:
                await asyncio.to_thread(self.cluster.stop, store)
                await asyncio.to_thread(self.cluster.start, store)
            await self.until("every log has its replicas", whole)
        phase.note = f"{len(self.cluster.stores)} stores"

    async def grown(self) -> None:
        """More stores join, each in the zone that has fewest, and take their share."""
        phase = self.begin(f"{self.size.joining} stores join, rebalanced")
        state = await self.state()
        counts = {zone: len(self.stores_in(state, zone)) for zone in ZONES}
        zones = []
        for _ in range(self.size.joining):
            zones.append(min(ZONES, key=lambda zone: counts[zone]))
            counts[zones[-1]] += 1
        await self.join(zones)
        await self.ctl("cluster", "rebalance", "--wait", f"{STEP_TIMEOUT_S:.0f}")
        state = await self.until("the stores of a zone have equal shares", balanced)
        phase.note = ", ".join(f"{one.replicas}" for one in living(state)) + " replicas"

    async def moved(self) -> None:
        """A voter, and the leader, of a log go where a person wants them."""
        self.begin("a replica and a leader are moved by hand")
        shard = of_log(await self.state(), 2)
        source = shard.leader_store
        state = await self.state()
        zone = next(one.labels["zone"] for one in state.stores if one.store_id == source)
        taken = {one.store_id for one in shard.replicas}
        target = next(one for one in self.stores_in(state, zone) if one not in taken)
        wait = ("--wait", f"{STEP_TIMEOUT_S:.0f}")
        await self.ctl("shard", "move", "2", source, target, *wait)
        # Only a pin keeps it there: leaders are balanced.
        await self.ctl("shard", "pin", "2", target, "--for", "600", "--reason", "it is near")
        await self.until("the moved replica leads", lambda now: led_by(now, 2, target))

    async def replica_counts(self) -> None:
        """The busy log gets more replicas and fewer."""
        phase = self.begin("replica counts of a busy log")
        busy = self.size.counts
        for count in busy:
            began_s = time.monotonic()
            await self.ctl("shard", "set", "1", "--replicas", f"{count}")
            await self.until(f"log 1 has {count} replicas", functools.partial(has, 1, count))
            phase.note += f"{count}: {time.monotonic() - began_s:.1f} s "

    async def deletion(self) -> None:
        """All logs have grown large, evenly mixed in every segment; half of them are deleted, and
        their space is free again.

        What is left of the others between the bytes of deleted logs is copied first. Two fifths may
        stay: copies leave the end of each segment unused, an eighth of one of this size, a segment
        or two of each store are not worth emptying, and HAKeeper's own log grows meanwhile.
        """
        phase = self.begin("the logs grow large, half of them are deleted")
        logs = list(range(1, self.size.logs + 1))
        doomed = logs[len(logs) // 2 :]
        before = used(await self.state())
        for _ in range(self.size.large_appends):
            await asyncio.gather(*(self.load.append_large(log, LARGE_BYTES) for log in logs))
        room = len(self.cluster.stores) * SEGMENT_BYTES
        grown = before + 3 * self.size.large_appends * LARGE_BYTES * len(logs) - room
        state = await self.until("they have grown", lambda now: less_than(now, grown))
        full = used(state)
        began_s = time.monotonic()
        await asyncio.gather(*(self.delete(log) for log in doomed))
        self.deleted.update(doomed)
        await self.until("they are gone", lambda now: without(now, doomed))
        goal = full - (full - before) // 2 * 3 // 5
        state = await self.until("their space is free", lambda now: more_than(now, goal))
        phase.note = " -> ".join(f"{size / 2**20:.0f} MiB" for size in (before, full, used(state)))
        phase.note += f", free {time.monotonic() - began_s:.1f} s after the first deletion"

    async def delete(self, log: int) -> None:
        """Delete a log, as soon as few enough others are being deleted."""
        async with self.deleting:
            await self.ctl("shard", "delete", f"{log}", "--name", f"log-{log}")

    async def read_back(self) -> None:
        """Everything that was acked is there, once and in order."""
        for log in sorted(self.load.logs.keys() - self.deleted):
            wrong = await self.load.check(log)
            if wrong:
                raise LifeFailed("; ".join(wrong[:5]))

    # --- what it uses -----------------------------------------------------------------------------

    def check(self) -> None:
        """After every step: no append has failed, and no process has ended by itself."""
        if self.load.failed:
            raise LifeFailed(f"appends failed: {'; '.join(self.load.failed[:5])}")
        self.check_processes()

    def check_processes(self) -> None:
        """No process has ended by itself."""
        gone = [store for store, pid in self.cluster.pids().items() if pid is None]
        if gone and not self.machines.locked():
            raise LifeFailed(f"ended by themselves: {', '.join(gone)}")

    async def kill_hakeeper_leader(self) -> None:
        """SIGKILL for the store that leads shard 0 while a step is under way; it comes back."""
        await asyncio.sleep(KILL_AFTER_S)
        await self.may_kill.wait()
        async with self.machines:
            leader = ""
            while leader not in self.cluster.stores:
                await asyncio.sleep(POLL_S)
                with contextlib.suppress(LogServiceError):
                    leader = of_log(await self.state(), 0).leader_store
            await asyncio.to_thread(self.cluster.kill, leader)
            await asyncio.to_thread(self.cluster.start, leader)
            self.kills += 1

    async def join(self, zones: list[str]) -> None:
        """New stores come up together, one in each of these zones; each may have a replica of shard
        0.
        """
        async with self.machines:
            stores = [await asyncio.to_thread(self.cluster.add, None, zone=zone) for zone in zones]
        for store in stores:
            await asyncio.to_thread(self.cluster.admit, store)
        for store in stores:
            await self.until(f"{store} has joined", functools.partial(joined, store))

    def begin(self, name: str) -> Phase:
        """A new phase, and say so."""
        self.tell(name)
        return self.load.begin(name)

    async def ctl(self, *arguments: str) -> None:
        """`logctl`, as a person runs it. Raises LifeFailed when it fails."""
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("logctl")),
            *("--endpoints", ",".join(self.cluster.endpoints())),
            *self.credentials(),
            *("--timeout", "30", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode != 0:
            raise LifeFailed(f"logctl {' '.join(arguments)}: {errors.decode().strip()}")

    def credentials(self) -> list[str]:
        """What `logctl` presents and trusts, in a cluster with TLS."""
        if not self.cluster.tls:
            return []
        ca, certificate, key = map(str, self.cluster.client_files(ADMIN))
        return ["--tls-ca", ca, "--tls-cert", certificate, "--tls-key", key]

    async def state(self) -> State:
        """What HAKeeper knows."""
        return await self.client.hakeeper.cluster_state(timeout=30.0)

    @staticmethod
    def stores_in(state: State, zone: str) -> list[str]:
        return [one.store_id for one in living(state) if one.labels.get("zone") == zone]

    async def until(self, what: str, holds: Callable[[State], str]) -> State:
        """Wait until `holds` says nothing more is missing."""
        began_s = time.monotonic()
        missing, last = "HAKeeper did not answer", ""
        while time.monotonic() - began_s < STEP_TIMEOUT_S:
            self.check_processes()
            try:
                state = await self.state()
                missing = holds(state)
            except LogServiceError as error:
                missing = str(error)
            else:
                if not missing:
                    last = f", at last for: {last}" if last else ""
                    self.tell(f"  {what}: {time.monotonic() - began_s:.1f} s{last}")
                    return state
            last = missing
            await asyncio.sleep(POLL_S)
        raise LifeFailed(f"{what}: not after {STEP_TIMEOUT_S:.0f} s: {missing}")


def living(state: State) -> list[hakeeper_pb2.StoreInfo]:
    """The stores that are heard from."""
    return [store for store in state.stores if not store.expired]


def draining(stores: list[str], state: State) -> str:
    """Which of these stores no drain was accepted for."""
    others = {one.store_id for one in state.stores if one.mode != "draining"}
    waits = sorted(others & set(stores))
    return f"{' and '.join(waits)} not yet" if waits else ""


def silent(state: State, store: str) -> str:
    """What keeps a store from counting as gone."""
    return f"{store} is heard" if store in {one.store_id for one in living(state)} else ""


def joined(store: str, state: State) -> str:
    """What keeps a store from being one of the cluster's."""
    return "" if store in {one.store_id for one in living(state)} else f"{store} is not there"


def balanced(state: State) -> str:
    """What keeps the stores of each zone from having about equal shares.

    A zone with fewer stores has more on each: of three voters one is in every zone.
    """
    for zone in ZONES:
        shares = [one.replicas for one in living(state) if one.labels.get("zone") == zone]
        if max(shares) - min(shares) > max(2, min(shares) // 10 + 1):
            return f"zone {zone} has shares {shares}"
    return whole(state)


def of_log(state: State, log: int) -> hakeeper_pb2.ShardInfo:
    """What HAKeeper knows of one log."""
    return next(shard for shard in state.shards if shard.shard_id == log)


def led_by(state: State, log: int, store: str) -> str:
    """What keeps a store from leading a log."""
    leader = of_log(state, log).leader_store
    return "" if leader == store else f"{leader or 'nobody'} leads"


def has(log: int, count: int, state: State) -> str:
    """What keeps a log from having so many voters."""
    voters = sum(one.role == "voter" for one in of_log(state, log).replicas)
    return f"{voters} voters" if voters != count else whole(state)


def without(state: State, logs: list[int]) -> str:
    """Which of these logs is still there."""
    left = sorted({shard.shard_id for shard in state.shards} & set(logs))
    return f"logs {left[:5]}" if left else ""


def less_than(state: State, size: int) -> str:
    """What is missing to so many bytes on disks."""
    return f"{used(state)} of {size} bytes are taken" if used(state) < size else ""


def more_than(state: State, size: int) -> str:
    """What is too much for so many bytes on disks."""
    return f"{used(state)} bytes are taken, more than {size}" if used(state) > size else ""


def used(state: State) -> int:
    """What log storage takes on all stores, in bytes."""
    return sum(store.disk_used_bytes for store in state.stores)


def spread(state: State) -> str:
    """What keeps a log from being spread: a zone that holds a majority of it."""
    zones = {store.store_id: store.labels.get("zone", "") for store in state.stores}
    for shard in state.shards:
        voters = [zones[one.store_id] for one in shard.replicas if one.role == "voter"]
        for zone in set(voters):
            if len(voters) > 1 and voters.count(zone) > (len(voters) - 1) // 2:
                return f"shard {shard.shard_id}: {voters.count(zone)} voters in {zone}"
    return whole(state)
