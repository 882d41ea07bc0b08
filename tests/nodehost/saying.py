"""A taken-over store: it sends a real NodeHost any message in the name of any store."""

from __future__ import annotations

from logservice.ids import ReplicaId
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.raft.messages import Message
from tests.nodehost.cluster import SHARD, Cluster


def identity(cluster: Cluster, number: int) -> PeerIdentity:
    """The identity of a store that runs."""
    return cluster.host(number).identity


def say(cluster: Cluster, sender: int, message: Message) -> None:
    """A message of store `sender` arrives where the replica `message.to` runs."""
    host = cluster.host(int(message.to))
    host.on_messages(identity(cluster, sender), [(SHARD, message)])


def others(cluster: Cluster, number: int) -> list[int]:
    """The stores of the shard's other two replicas."""
    return [one for one in (1, 2, 3) if one != number]


def replica(number: int) -> ReplicaId:
    """Replica ids are store numbers in `Cluster`."""
    return ReplicaId(number)
