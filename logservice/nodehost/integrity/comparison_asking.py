"""Comparison, asking: one member's digest, fetched over this store's own connection.

Used by the leader's store, which compares, and by whoever is told of a difference and asks again
(INV-COMPARE-1): nobody believes what a third one says about somebody's digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from logservice_wire.errors import InvalidArgument, LogServiceError, NotReady

from logservice import bounds
from logservice.ids import Index, ReplicaId
from logservice.nodehost.integrity.comparison_wire import DIGEST, Answer, Ask, decode_answer, encode
from logservice.nodehost.integrity.divergence import holders
from logservice.nodehost.replica import Replica


class NoAnswer(Exception):
    """What a store answered is no digest of what it was asked for."""


class AskingHost(Protocol):
    """What is needed of a NodeHost."""

    async def peer_request(self, target: str, method: str, body: bytes, timeout_s: float) -> bytes:
        """Ask another store."""
        ...


def other_holders(replica: Replica) -> list[ReplicaId]:
    """The other members that have the entries."""
    return [one for one in holders(replica.raft.membership) if one != replica.replica_id]


async def ask_digest(
    host: AskingHost, replica: Replica, other: ReplicaId, low: Index, high: Index
) -> Answer:
    """The answer of another member. Raises NoAnswer for one that is none, and the error of the
    store.
    """
    store = replica.store_of(other)
    if store is None:
        raise NotReady(f"nobody knows where replica {other} is")
    ask = Ask(replica.shard, other, replica.replica_id, low, high)
    data = await host.peer_request(store, DIGEST, encode(ask), bounds.COMPARE_REQUEST_TIMEOUT_S)
    try:
        answer = decode_answer(data, low, high)
    except InvalidArgument as error:
        raise NoAnswer(error.message) from error
    if answer.applied > replica.raft.commit:
        raise NoAnswer("it applied what is not committed")
    return answer


async def ask_others(
    host: AskingHost, replica: Replica, low: Index, high: Index
) -> Mapping[ReplicaId, bytes]:
    """The digests of all other members that have one."""

    async def one(other: ReplicaId) -> bytes:
        try:
            return (await ask_digest(host, replica, other, low, high)).digest
        except (LogServiceError, NoAnswer):
            return b""

    others = other_holders(replica)
    found = await asyncio.gather(*(one(other) for other in others))
    return {other: digest for other, digest in zip(others, found, strict=True) if digest}
