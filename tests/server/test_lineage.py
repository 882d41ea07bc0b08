"""Lineages over real gRPC: who names another one is refused by every store, and nothing is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import InvalidArgument, LineageChanged, LogServiceError, Outcome, Reason
from logservice_wire.v1 import log_pb2

from logservice.entry import EntryKind
from logservice.envelope import NO_PROPOSAL, encode_command
from logservice.ids import ShardId
from logservice.lineage import NO_LINEAGE
from logservice.raft.leading.proposing import Proposal
from logservice.rsm import commands
from tests.owners import APP
from tests.server.served import Served, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE = b"1" * 16


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    return await served.new_shard()


async def append(served: Served, shard: int, *records: bytes, lineage: bytes = b"") -> int:
    request = log_pb2.AppendRequest(shard_id=shard, block=block(*records), lineage=lineage)
    found: log_pb2.AppendResponse = await served.leader(shard).log.Append(request)
    return found.lsn


async def fork(served: Served, shard: int, lineage: bytes = ONE) -> None:
    """Put the entry into the log as a recovery does: past the edge and past admission."""
    replica = served.leader(shard).host.replicas.running[ShardId(shard)]
    known = replica.lineage
    command = commands.BeginLineage(APP, known.number + 1, lineage, known.id)
    payload = encode_command(NO_PROPOSAL, commands.encode(command))
    assert replica.raft.propose([Proposal(EntryKind.COMMAND, 0, payload)]) is not None
    replica.activate()
    await eventually(
        lambda: all(
            store.host.replicas.running[ShardId(shard)].lineage.id == lineage
            for store in served.stores
        )
    )


async def refusal(call: grpc.aio.UnaryUnaryCall) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return typed(caught.value)


async def test_a_log_that_was_never_continued_shows_none(served: Served, shard: int) -> None:
    await append(served, shard, b"a", lineage=NO_LINEAGE)
    for store in served.stores:
        request = log_pb2.ReadRequest(shard_id=shard, lsn=1, lineage=NO_LINEAGE)
        found = await store.log.Read(request)
        assert not found.position.HasField("lineage")


async def test_no_client_and_no_store_can_propose_a_fork(served: Served, shard: int) -> None:
    data = commands.encode(commands.BeginLineage(APP, 1, ONE, NO_LINEAGE))
    with pytest.raises(InvalidArgument):
        await served.leader(shard).host.propose(ShardId(shard), data, 10.0)


CALLS: dict[str, Callable[[int, bytes], Any]] = {
    "OpenSession": lambda shard, named: log_pb2.OpenSessionRequest(shard_id=shard, lineage=named),
    "Append": lambda shard, named: log_pb2.AppendRequest(
        shard_id=shard, block=block(b"late"), lineage=named
    ),
    "Read": lambda shard, named: log_pb2.ReadRequest(shard_id=shard, lsn=1, lineage=named),
    "Truncate": lambda shard, named: log_pb2.TruncateRequest(shard_id=shard, lsn=1, lineage=named),
    "AcquireWriter": lambda shard, named: log_pb2.AcquireWriterRequest(
        shard_id=shard, holder="db", lineage=named
    ),
    "SetHold": lambda shard, named: log_pb2.SetHoldRequest(
        shard_id=shard, name="h", lsn=1, lineage=named
    ),
}


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_another_lineage_is_refused_by_every_store(
    served: Served, shard: int, name: str
) -> None:
    await append(served, shard, b"a", b"b")
    await fork(served, shard)
    for store in served.stores:
        for named in (NO_LINEAGE, b"x" * 16):
            error = await refusal(getattr(store.log, name)(CALLS[name](shard, named)))
            assert error.reason is Reason.LINEAGE_CHANGED
            assert (error.outcome, error.retryable) == (Outcome.NOT_APPLIED, False)
            assert error.metadata == {
                "expected": named.hex(),
                "actual": ONE.hex(),
                "number": "1",
                "fork_lsn": "2",
            }
        bad = await refusal(getattr(store.log, name)(CALLS[name](shard, b"short")))
        assert (bad.reason, bad.metadata["field"]) == (Reason.INVALID_ARGUMENT, "lineage")
    status = await served.leader(shard).log.GetShardStatus(
        log_pb2.GetShardStatusRequest(shard_id=shard)
    )
    assert (status.position.applied_lsn, status.sessions, len(status.holds)) == (2, 0, 0)
    assert (status.truncated_lsn, status.writer_epoch) == (0, 0)
    assert status.position.lineage == log_pb2.Lineage(number=1, id=ONE, fork_lsn=2)
    found = await getattr(served.leader(shard).log, name)(CALLS[name](shard, ONE))
    assert found.position.lineage == log_pb2.Lineage(number=1, id=ONE, fork_lsn=2)


async def test_streams_are_refused_too(served: Served, shard: int) -> None:
    await append(served, shard, b"a", b"b")
    opened = await served.leader(shard).log.OpenSession(
        log_pb2.OpenSessionRequest(shard_id=shard, lineage=NO_LINEAGE)
    )
    await fork(served, shard)
    for store in served.stores:
        call = store.log.AppendStream()
        await call.write(
            log_pb2.AppendStreamRequest(
                open=log_pb2.AppendStreamRequest.Open(
                    shard_id=shard,
                    session_id=opened.session_id,
                    session_nonce=opened.nonce,
                    lineage=NO_LINEAGE,
                ),
                blocks=[log_pb2.AppendStreamRequest.Block(sequence=1, block=block(b"late"))],
            )
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert typed(caught.value).reason is Reason.LINEAGE_CHANGED
        follow = store.log.Follow(
            log_pb2.FollowRequest(shard_id=shard, lsn=1, until_tail=True, lineage=NO_LINEAGE)
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await follow.read()
        assert typed(caught.value).reason is Reason.LINEAGE_CHANGED
    assert await append(served, shard, b"c", lineage=ONE) == 3


async def test_inv_lineage_5_a_replica_that_is_behind_asks_first(
    served: Served, shard: int
) -> None:
    """It has not applied the fork: it must neither let the old lineage through nor refuse the new
    one.
    """
    await append(served, shard, b"a")
    follower = served.followers(shard)[0]
    replica = follower.host.replicas.running[ShardId(shard)]
    assert replica.log_rsm is not None
    await fork(served, shard)
    present = replica.log_rsm.state.lineage
    behind = commands.BeginLineage(APP, 1, ONE, NO_LINEAGE)
    assert behind.lineage == present.id

    asked = 0
    ask = follower.host.read_index

    async def catch_up(*arguments: Any) -> Any:
        nonlocal asked
        asked += 1
        replica.log_rsm.state.lineage = present  # type: ignore[union-attr]
        return await ask(*arguments)

    follower.host.read_index = catch_up  # type: ignore[method-assign]
    try:
        for named, allowed in ((NO_LINEAGE, False), (ONE, True)):
            for stale in (False, True):
                if stale and not allowed:
                    continue  # what is applied here is what a stale reader asked for
                replica.log_rsm.state.lineage = type(present)()
                request = log_pb2.ReadRequest(shard_id=shard, lsn=1, stale=stale, lineage=named)
                if allowed:
                    await follower.log.Read(request)
                else:
                    error = await refusal(follower.log.Read(request))
                    assert error.reason is Reason.LINEAGE_CHANGED
            replica.log_rsm.state.lineage = type(present)()
            request = log_pb2.AppendRequest(shard_id=shard, block=block(b"z"), lineage=named)
            if allowed:
                await follower.log.Append(request)
            else:
                assert (await refusal(follower.log.Append(request))).reason is (
                    Reason.LINEAGE_CHANGED
                )
        assert asked == 5
    finally:
        del follower.host.read_index
        replica.log_rsm.state.lineage = present


async def test_the_client_is_told_and_goes_on_when_it_says_so(served: Served, shard: int) -> None:
    async with LogClient([store.address for store in served.stores]) as client:
        log = client.shard(shard)
        await log.acquire_writer("db")
        assert [await log.append(b"%d" % number) for number in range(3)] == [1, 2, 3]
        assert log.lineage is not None
        assert log.lineage.number == 0
        await fork(served, shard)
        # Its stream is still open, as none is after a real recovery: the fork drops the session.
        with pytest.raises(LogServiceError):
            await log.append(b"lost?")
        with pytest.raises(LineageChanged) as told:
            await asyncio.wait_for(log.append(b"next"), 20)
        assert told.value.number("fork_lsn") == 3
        for call in (log.read(1), log.truncate(1), log.status(), log.append([b"a", b"b"])):
            with pytest.raises(LineageChanged):
                await call
        with pytest.raises(LineageChanged):
            async for _ in log.follow(1):
                pass
        accepted = log.accept_lineage()
        assert accepted is not None
        assert (accepted.number, accepted.id, accepted.fork_lsn) == (1, ONE, 3)
        assert log.writer_epoch == 0
        epoch = (await log.status()).writer_epoch
        await log.acquire_writer("db", expected_epoch=epoch)
        assert await log.append(b"again") >= 4
        assert (await log.read(1)).records()[:3] == [b"0", b"1", b"2"]
