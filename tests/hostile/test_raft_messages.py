"""Raft messages from a store with a certificate, a stranger's or a member's, to a real cluster.

The attacker has its own sockets and its own codec: each message is a fixed head and the fields of
its kind. For some seconds it sends every store everything four times a second: snapshots whose
header contradicts their contents, the highest terms that there are, campaigns and hand-overs that
nobody asked for, leaders that nobody elected. Before stores refused them, the first snapshot ended
every store, and each of the other messages stopped the shard's service for as long as it came.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logservice.cli.certificates.authority import Authority
from logservice.cli.processes.local_cluster import LocalCluster
from logservice.logdb.io.data_directory import read_identity
from logservice.logdb.io.posix_vfs import PosixVfs
from tests.hostile.rogue_peer import MESSAGES, RoguePeer, context_of
from tests.hostile.victim import LegalClient, attacked
from tests.papers import Papers
from tests.waiting import eventually

pytestmark = [pytest.mark.processes, pytest.mark.long]

APPEND, ANSWER, VOTE, VOTE_ANSWER, BEAT, BEAT_ANSWER, SNAPSHOT, HURRY, TRANSFER = range(1, 10)
QUIESCE = 15
LAST_TERM = 2**62 - 1
SECONDS = 4.0
EVERY_S = 0.25
LEAST = 10
SHARDS = {0: (1, 2, 3), 1: tuple(range(1024, 1030))}
"""Replica ids by shard: those that shard 0 has, and all that shard 1 may have."""


def message(
    kind: int, flags: int, shard: int, to: int, sender: int, term: int, *more: int
) -> bytes:
    head = struct.pack("<BBHIQQQQ", kind, flags, 0, 0, shard, to, sender, term)
    return head + struct.pack(f"<{len(more)}Q", *more)


def snapshot(shard: int, to: int, sender: int, term: int) -> bytes:
    """A snapshot of an empty state that claims half a million applied entries; its checksums are
    good.
    """
    voters = SHARDS[shard][:3]
    membership = struct.pack("<BBQ7I", 1, 0, 5, 3, 0, 0, 0, 0, 0, 0) + struct.pack("<3Q", *voters)
    head = struct.pack("<IHHQQQII", 0x4C53534E, 1, 0, 500_000, term, 77, len(membership), 0)
    body = head + struct.pack("<I", zlib.crc32(membership, zlib.crc32(head))) + membership
    return struct.pack("<BBHIQQQQ", SNAPSHOT, 0, 0, len(body), shard, to, sender, term) + body


def everything(shard: int, to: int, sender: int) -> Iterator[bytes]:
    for term in (1, 2, 3, 4, 1000, LAST_TERM):
        yield snapshot(shard, to, sender, term)
        yield message(APPEND, 0, shard, to, sender, term, 1, 1, 5)
        yield message(BEAT, 0, shard, to, sender, term, 1)
        yield message(QUIESCE, 0, shard, to, sender, term, 5)
        yield message(HURRY, 0, shard, to, sender, term)
        yield message(TRANSFER, 0, shard, to, sender, term)
        yield message(VOTE, 4, shard, to, sender, term, 2**61, term)
        yield message(VOTE, 0, shard, to, sender, term, 2**61, term)
        yield message(VOTE_ANSWER, 1, shard, to, sender, term)
        yield message(ANSWER, 0, shard, to, sender, term, 1, 0, 0, 2**40)
        yield message(BEAT_ANSWER, 0, shard, to, sender, term, 2**40)


def papers_of(cluster: LocalCluster, store: str) -> tuple[Papers, bytes]:
    """The papers of a store of the cluster, or of a new one that its authority knows."""
    certificates = cluster.directory / "certs"
    folder = certificates / "stores" / store
    if not folder.exists():
        Authority.open(certificates).issue_store(store, ["localhost", "127.0.0.1"])
    read = lambda name: (folder / name).read_bytes()  # noqa: E731
    return Papers(read("peer-plane.pem"), read("peer-plane.key")), read("peer-ca.pem")


async def attack(cluster: LocalCluster, store: str, incarnations: tuple[int, ...]) -> int:
    papers, trusted = papers_of(cluster, store)
    context = context_of(papers, trusted)
    sent = 0
    end_s = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < end_s:
        for name, place in cluster.stores.items():
            if name == store:
                continue
            peer = await RoguePeer.connect(
                place.peer,
                context,
                cluster=cluster.cluster_id,
                store=store,
                incarnations=incarnations,
                boot=sent,
            )
            for shard, replicas in SHARDS.items():
                batches = [
                    one
                    for to in replicas
                    for sender in (*replicas, 99)
                    if to != sender
                    for one in everything(shard, to, sender)
                ]
                peer.send(MESSAGES, b"".join(batches))
                sent += len(batches)
            await peer.ask("no such method", b"")
            await peer.close()
        await asyncio.sleep(EVERY_S)
    return sent


@pytest.mark.parametrize("who", ["stranger", "store-3"])
def test_everything_that_a_peer_can_say_leaves_a_legal_client_alone(
    tmp_path: Path, who: str
) -> None:
    with attacked(tmp_path / "cluster") as cluster:
        incarnations: tuple[int, ...] = (77,)
        if who in cluster.stores:
            data = cluster.directory / who / "data"
            incarnations = (read_identity(PosixVfs(), str(data)).incarnation,)
        with LegalClient(cluster) as client:
            sent = asyncio.run(attack(cluster, who, incarnations))
            # On a machine without a spare core the attack took most of the time that passed.
            asyncio.run(
                eventually(
                    lambda: len(client.seen.latencies) > LEAST or bool(client.seen.failures), 30.0
                )
            )
        seen = client.seen
        print(f"{who}: {sent} messages; stall {seen.stall_s:.2f} s; {len(seen.latencies)} acked")
        assert sent > 1000
        if who == "stranger":
            seen.check(least=LEAST)
        else:
            # An honest member may have a higher term, so its first message costs an election.
            assert seen.failures == []
            assert len(seen.latencies) > LEAST
