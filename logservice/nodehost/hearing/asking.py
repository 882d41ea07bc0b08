"""Asking: which replica here is asked by a member, and whether the peer may ask for that member.

Theory of operation. The rule of a question (`peers.question`, MEMBER) lets in every store with some
member of the shard. A question of one replica to another one names both, and those names are the
asker's word. So whoever answers one calls `asked_of` first.

INV-HEAR-5: a question of a replica is answered only by the replica that it names, and only when a
known membership binds the asking replica to the peer that sent it, in a data directory that the
peer states. That is what Raft's messages are heard by, too (INV-HEAR-1).

To be heard is not to be believed. What is told, and what follows from a question, is bounded by who
answers it: `vouching`, `routing.successors`, `integrity.comparison_answers`.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from logservice_wire.errors import PermissionDenied, ShardNotFound

from logservice.ids import ReplicaId, ShardId
from logservice.nodehost.hearing.hearing import Hearing
from logservice.nodehost.transport.seam import PeerIdentity


class Asked(Protocol):
    """A question of `asker`, a replica of the shard, to `replica`, another one."""

    @property
    def shard(self) -> int: ...

    @property
    def replica(self) -> int: ...

    @property
    def asker(self) -> int: ...


class Answering(Protocol):
    """What is needed of a replica here (`replica.Replica`)."""

    @property
    def shard(self) -> ShardId: ...

    @property
    def replica_id(self) -> ReplicaId: ...

    @property
    def hearing(self) -> Hearing: ...


R = TypeVar("R", bound=Answering)


def asked_of(here: R | None, peer: PeerIdentity, asked: Asked) -> R:
    """The replica that is asked, which is `here`: the one of the shard on this store, None without
    one.

    Raises ShardNotFound when it is another one, and PermissionDenied when the peer does not speak
    for the asker, or the asker is no member.
    """
    if here is None or (here.shard, here.replica_id) != (asked.shard, asked.replica):
        raise ShardNotFound(
            f"replica {asked.replica} does not run here", shard=ShardId(asked.shard)
        )
    member = here.hearing.members.get(ReplicaId(asked.asker))
    if member is None or not peer.may_speak_for(member):
        raise PermissionDenied("the asker is no member, or elsewhere")
    return here
