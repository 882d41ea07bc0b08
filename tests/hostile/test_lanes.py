"""Streams of many shards in hostile hands: lanes by the thousand, a client that never reads, and a
stranger. A legal client appends all the while, and what the store holds does not grow with it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from logservice_wire.block import encode_block
from logservice_wire.v1 import log_pb2, log_pb2_grpc

from logservice.bounds import SHARDS_MESSAGE_OPENS_MAX
from logservice.cli.processes.local_cluster import LocalCluster
from tests.hostile.victim import LegalClient, Peak, attacked, resident_mib
from tests.papers import CLIENT, uri
from tests.server.secured import CLIENTS

pytestmark = [pytest.mark.processes, pytest.mark.long]

Message = log_pb2.AppendShardsRequest
ATTACK_S = 6.0
STREAMS = 8
LANES = 10_000
HEAVY_LANES = 400
HEAVY_BYTES = 1 << 20
LANES_MIB_MAX = 160
"""What attackers with 4096 streams or lanes between them may cost, the allocator's rest included:
acks of 64 blocks for each are 92 MiB."""


def channel_to(cluster: LocalCluster) -> grpc.aio.Channel:
    ca, certificate, key = (path.read_bytes() for path in cluster.client_files())
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(cluster.endpoints()[0], credentials, options)


async def many_lanes(log: Any, sent: Counter[str]) -> None:
    """Open lanes as fast as they are taken, and never read."""
    call = log.AppendShards()
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for first in range(1, LANES, SHARDS_MESSAGE_OPENS_MAX):
            opens = [
                Message.Open(lane=number, shard_id=1, session_id=1, session_nonce=bytes(16))
                for number in range(first, first + SHARDS_MESSAGE_OPENS_MAX)
            ]
            await call.write(Message(opens=opens))
            sent["lanes"] += len(opens)
    call.cancel()


async def deaf(log: Any, sessions: list[Any], sent: Counter[str]) -> None:
    """Append on more and more lanes and never read. It is paced, because what is tried is what the
    store keeps, not how many blocks it can take.
    """
    call = log.AppendShards()
    block = encode_block([bytes(100)], 1)
    lane = 0
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            opens, blocks = [], []
            for session in sessions:
                lane += 1
                opens.append(
                    Message.Open(
                        lane=lane,
                        shard_id=1,
                        session_id=session.session_id,
                        session_nonce=session.nonce,
                    )
                )
                blocks += [
                    Message.Block(lane=lane, sequence=number, block=block) for number in range(1, 9)
                ]
            await call.write(Message(opens=opens, blocks=blocks))
            sent["deaf"] += len(blocks)
            await asyncio.sleep(0.1)


async def attack(cluster: LocalCluster, kind: str) -> int:
    """Run the attack on several streams at once for a while; returns what was sent."""
    sent: Counter[str] = Counter()
    async with channel_to(cluster) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        sessions = [await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1)) for _ in range(4)]

        async def again() -> None:
            while True:
                await (many_lanes(log, sent) if kind == "lanes" else deaf(log, sessions, sent))

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ATTACK_S):
                await asyncio.gather(*(again() for _ in range(STREAMS)))
    return sent[kind]


@pytest.mark.parametrize("kind", ["lanes", "deaf"])
async def test_lanes_by_the_thousand_and_a_client_that_never_reads(
    tmp_path: Path, kind: str
) -> None:
    with attacked(tmp_path / "cluster") as cluster:
        pid = next(iter(cluster.pids().values()))
        assert pid is not None
        before, peaks, sent = resident_mib(pid), [], []
        with LegalClient(cluster) as client:
            for _ in range(3):
                with Peak(pid) as peak:
                    sent.append(await attack(cluster, kind))
                peaks.append(round(peak.mib))
        print(f"{kind}: {before:.0f} MiB before, peaks {peaks}, sent {sent}")
        client.seen.check(least=10)
        assert all(one > 1000 for one in sent)
        assert max(peaks) - before < LANES_MIB_MAX


async def opened_heavily(cluster: LocalCluster) -> AsyncIterator[None]:
    """Open lanes, each by a message that is full of blocks of a lane that has ended, which the
    store drops; yields when the last one has appended.
    """
    dropped = Message.Block(lane=1, sequence=1, block=bytes(HEAVY_BYTES))
    async with channel_to(cluster) as channel:
        log: Any = log_pb2_grpc.LogStub(channel)
        session = await log.OpenSession(log_pb2.OpenSessionRequest(shard_id=1))
        call = log.AppendShards()
        for lane in range(1, HEAVY_LANES + 1):
            opened = Message.Open(
                lane=lane,
                shard_id=1,
                session_id=session.session_id,
                session_nonce=session.nonce,
            )
            closes = [Message.Close(lane=1)]
            await call.write(Message(opens=[opened], blocks=[dropped] * (lane > 1), closes=closes))
        last = Message.Block(lane=HEAVY_LANES, sequence=1, block=encode_block([b"x"], 1))
        await call.write(Message(blocks=[last]))
        while not any(lane.acks for lane in (await call.read()).lanes):
            pass
        yield
        call.cancel()


async def test_inv_lanes_3_a_lane_does_not_hold_the_message_that_opened_it(tmp_path: Path) -> None:
    """Otherwise an identity with all its lanes holds dozens of GiB."""
    with attacked(tmp_path / "cluster", stores=1) as cluster, LegalClient(cluster) as client:
        pid = next(iter(cluster.pids().values()))
        assert pid is not None
        before = resident_mib(pid)
        async for _ in opened_heavily(cluster):
            grown = resident_mib(pid) - before
        print(f"{before:.0f} MiB before, {grown:.0f} more with {HEAVY_LANES} lanes")
        assert grown < LANES_MIB_MAX < HEAVY_LANES * HEAVY_BYTES >> 20
    client.seen.check()


async def test_a_stranger_opens_no_lane(tmp_path: Path) -> None:
    """Nor does a bearer of a certificate of another authority: TLS is before the first message."""
    with attacked(tmp_path / "cluster", stores=1) as cluster:
        ca = cluster.client_files()[0].read_bytes()
        opened = Message.Open(lane=1, shard_id=1, session_id=1, session_nonce=bytes(16))

        async def attempt(credentials: grpc.ChannelCredentials) -> grpc.StatusCode:
            async with grpc.aio.secure_channel(cluster.endpoints()[0], credentials) as channel:
                call: Any = log_pb2_grpc.LogStub(channel)
                stream = call.AppendShards(timeout=30)
                try:
                    await stream.write(Message(opens=[opened]))
                    await stream.read()
                except grpc.aio.AioRpcError as error:
                    return error.code()
                return grpc.StatusCode.OK

        other = CLIENTS.issue(uri("client", "admin"), hosts=(), purposes=CLIENT)
        shown = [
            grpc.ssl_channel_credentials(ca),
            grpc.ssl_channel_credentials(ca, other.key, other.certificate),
        ]
        for credentials in shown:
            code = await attempt(credentials)
            assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
