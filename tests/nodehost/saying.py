"""A taken-over store sends a real NodeHost any message in any store's name; a client appends."""

from __future__ import annotations

import asyncio

from logservice_wire.errors import LogServiceError

from logservice.ids import ReplicaId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import Message
from tests.nodehost.cluster import SHARD, Cluster, request


def identity(cluster: Cluster, number: int) -> PeerIdentity:
    """The identity of a store that runs."""
    return cluster.host(number).identity


def say(cluster: Cluster, sender: int, message: Message) -> None:
    """Deliver a message of store `sender` where the replica `message.to` runs."""
    host = cluster.host(int(message.to))
    host.on_messages(identity(cluster, sender), [(SHARD, message)])


def others(cluster: Cluster, number: int) -> list[int]:
    """The stores of the shard's other two replicas."""
    return [one for one in (1, 2, 3) if one != number]


def replica(number: int) -> ReplicaId:
    """Replica ids are store numbers in `Cluster`."""
    return ReplicaId(number)


async def append(cluster: Cluster, block: bytes = b"x", timeout_s: float = 60.0) -> None:
    """Append through whichever store leads, until it is acked."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                leader = cluster.host(await cluster.leader())
                await leader.append(SHARD, request(block=block), 10.0)
                return
            except LogServiceError:
                await asyncio.sleep(0.01)
