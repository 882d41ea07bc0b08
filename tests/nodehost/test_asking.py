"""Questions of one replica to another: who is answered, in the same words for each (INV-HEAR-5)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from logservice_wire.errors import LogServiceError, PermissionDenied, ShardNotFound

from logservice.ids import Incarnation, ReplicaId
from logservice.nodehost.hearing.vouching import ANNOUNCE, VOUCH
from logservice.nodehost.hearing.vouching import Asked as Claim
from logservice.nodehost.integrity.digests import DIGEST, FINDING, DigestWanted, Finding
from logservice.nodehost.peers.question import Question
from logservice.nodehost.routing.successors import APPLIES, Asked
from logservice.nodehost.transport.seam import PeerIdentity
from tests.nodehost.cluster import SHARD
from tests.nodehost.compared import Compared, compared

QUESTIONS: dict[str, tuple[Question[Any, Any], Callable[[int, int, int], Any]]] = {
    "vouch": (VOUCH, lambda shard, replica, asker: Claim(shard, replica, asker, 1, 2)),
    "announce": (ANNOUNCE, lambda shard, replica, asker: Claim(shard, replica, asker, 1, 2)),
    "applies": (APPLIES, Asked),
    "digest": (DIGEST, lambda shard, replica, asker: DigestWanted(shard, replica, asker, 2, 4)),
    "finding": (
        FINDING,
        lambda shard, replica, asker: Finding(shard, replica, asker, 2, 4, False, [(1, b"a" * 16)]),
    ),
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Compared]:
    async with compared(tmp_path) as cluster:
        await cluster.fill(5)
        yield cluster


@pytest.mark.parametrize("name", QUESTIONS)
async def test_only_the_one_that_is_meant_answers_and_a_member_only(
    cluster: Compared, name: str
) -> None:
    question, made = QUESTIONS[name]
    host, two, three = cluster.host(1), cluster.host(2).identity, cluster.host(3).identity

    async def refused(peer: PeerIdentity, shard: int, replica: int, asker: int) -> LogServiceError:
        body = question.encode(made(shard, replica, asker))
        with pytest.raises(LogServiceError) as found:
            await host.on_request(peer, question.method, body)
        return found.value

    # Another replica than the one that runs here, and another log, of which none does.
    assert type(await refused(two, SHARD, 3, 2)) is ShardNotFound
    assert type(await refused(two, 99, 1, 2)) in (ShardNotFound, PermissionDenied)
    # In the name of another member, of nobody, and from a data directory that has no member.
    for peer, asker in (
        (three, 2),
        (two, 3),
        (two, 1),
        (two, 9),
        (two, 0),
        (replace(two, incarnations=(Incarnation(9),)), 2),
    ):
        error = await refused(peer, SHARD, 1, asker)
        assert type(error) is PermissionDenied, (peer, asker)
    # The asker itself is heard, whatever it is told.
    said = ""
    try:
        await host.on_request(two, question.method, question.encode(made(SHARD, 1, 2)))
    except LogServiceError as error:
        said = error.message
    assert "the asker" not in said


async def test_one_that_halted_answers_in_its_own_name_only(cluster: Compared) -> None:
    """What it had is said to whoever has to judge, and not as that of the one in its place."""
    number = await cluster.follower()
    cluster.forge(number, 3)
    await cluster.compare()
    host = cluster.host(number)
    assert SHARD in host.halts.all()
    (had,) = cluster.comparers[number]._answers._halted.values()
    low, high = had.low, had.high
    asker = next(one for one in cluster.stores if one != number)
    peer, other = cluster.host(asker).identity, ReplicaId(7)

    async def ask(replica: int, asking: int) -> object:
        body = DIGEST.encode(DigestWanted(SHARD, replica, asking, low, high))
        return await host.on_request(peer, DIGEST.method, body)

    assert await ask(number, asker)
    with pytest.raises(LogServiceError):
        await ask(other, asker)
    with pytest.raises(PermissionDenied):
        await ask(number, number)
