"""etcd as a peer: puts through grpc.aio at the leader, as our own appends go through it.

Every caller writes keys of its own, round and round. A put adds one to the store's revision, and a
linearizable read at a member that does not lead shows that a majority has them all.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

from bench.load.channels import connected_channels
from bench.load.closed_loop import Request, Sample, measure
from bench.peers import getting
from bench.peers.etcd import members, wire
from bench.peers.peer import Lost, Peer, Workload

MODULE: Final = Path(__file__).parent
KEYS: Final = 10_000
"""Of one caller."""
READ_KEYS: Final = 1000
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class EtcdPeer:
    """A running cluster as a peer."""

    cluster: members.Etcd
    acks: str = "fdatasync on a majority"

    @property
    def name(self) -> str:
        return f"etcd {self.cluster.version}"

    def takes(self, workload: Workload) -> bool:
        return workload.shards == 1

    async def sample(self, workload: Workload, *, warmup_s: float, seconds: float) -> Sample:
        leader = await members.find_leader(self.cluster.endpoints)
        follower = next(one for one in self.cluster.endpoints if one != leader)
        before = await _revision(follower)
        counted = itertools.count()
        async with self.callers(workload, counted) as callers:
            sample = await measure(callers, warmup_s=warmup_s, seconds=seconds)
        acked, added = next(counted), await _revision(follower) - before
        if added != acked:
            raise Lost(f"{acked} puts were acked, the revision went on by {added}")
        return sample

    @asynccontextmanager
    async def callers(
        self, workload: Workload, counted: itertools.count[int] | None = None
    ) -> AsyncIterator[list[Request]]:
        """The puts of a workload, one of each caller; `counted` counts those that were acked."""
        count = counted or itertools.count()
        leader = await members.find_leader(self.cluster.endpoints)
        async with connected_channels(leader, workload.connections) as some:
            yield [
                _put(some[number % len(some)], number, workload.size, count)
                for number in range(workload.callers)
            ]

    @asynccontextmanager
    async def readers(self, workload: Workload) -> AsyncIterator[list[Request]]:
        """Linearizable reads of single keys, all of them written before."""
        leader = await members.find_leader(self.cluster.endpoints)
        async with connected_channels(leader, workload.connections) as some:
            put, get = (wire.call(some[0], path) for path in (wire.PUT, wire.RANGE))
            keys = [b"read/%d" % number for number in range(READ_KEYS)]
            for key in keys:
                await put(wire.put_request(key, bytes(workload.size)), timeout=TIMEOUT_S)
            following = itertools.cycle(keys)

            async def read() -> int:
                answer = await get(wire.range_request(next(following)), timeout=TIMEOUT_S)
                if len(answer) < workload.size:
                    raise Lost("a key that was written is not there")
                return 1

            yield [read] * workload.callers


@contextmanager
def debian(directory: Path) -> Iterator[Peer]:
    """The etcd of Debian's package, or the one in PATH."""
    binary = getting.from_debian("etcd-server", "etcd")
    with members.running(binary, directory) as cluster:
        yield EtcdPeer(cluster)


@contextmanager
def current(directory: Path) -> Iterator[Peer]:
    """The etcd that go.mod pins."""
    binary = getting.built_with_go(MODULE, "go.etcd.io/etcd/server/v3", "etcd")
    with members.running(binary, directory) as cluster:
        yield EtcdPeer(cluster)


def _put(
    channel: grpc.aio.Channel, number: int, size: int, counted: itertools.count[int]
) -> Request:
    put = wire.call(channel, wire.PUT)
    value = bytes(size)
    keys = itertools.cycle(b"%d/%d" % (number, key) for key in range(KEYS))

    async def request() -> int:
        await put(wire.put_request(next(keys), value), timeout=TIMEOUT_S)
        next(counted)
        return 1

    return request


async def _revision(endpoint: str) -> int:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        answer = await wire.call(channel, wire.RANGE)(wire.range_request(b"0"), timeout=TIMEOUT_S)
        return wire.revision(answer)
