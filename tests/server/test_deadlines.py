"""A typed answer comes before the client's own deadline: NOT_READY where nothing was proposed, an
unknown outcome where something was, never a bare DEADLINE_EXCEEDED."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_wire.errors import LogServiceError, Outcome, Reason
from logservice_wire.v1 import log_pb2

from logservice import bounds
from logservice.ids import NO_REPLICA, ShardId
from logservice.server.edge.call import timeout_s
from tests.server.served import LIMITS, Served, block, typed
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 3.0
log = log_pb2
CALLS: dict[str, Any] = {
    "Connect": log.ConnectRequest(shard_id=1),
    "OpenSession": log.OpenSessionRequest(shard_id=1),
    "Append": log.AppendRequest(shard_id=1, block=block()),
    "Read": log.ReadRequest(shard_id=1, lsn=1),
    "LsnAtTime": log.LsnAtTimeRequest(shard_id=1, append_time_us=1),
    "Digest": log.DigestRequest(shard_id=1, from_lsn=1, to_lsn=2),
    "Truncate": log.TruncateRequest(shard_id=1, lsn=1),
    "GetShardStatus": log.GetShardStatusRequest(shard_id=1),
    "AcquireWriter": log.AcquireWriterRequest(shard_id=1, holder="w"),
    "ReleaseWriter": log.ReleaseWriterRequest(shard_id=1, epoch=1),
    "SetHold": log.SetHoldRequest(shard_id=1, name="h", lsn=1),
    "RenewHold": log.RenewHoldRequest(shard_id=1, name="h"),
    "ListSessions": log.ListSessionsRequest(shard_id=1),
    "ForgetSession": log.ForgetSessionRequest(shard_id=1, session_id=1),
    "ReleaseHold": log.ReleaseHoldRequest(shard_id=1, name="h"),
    "BeginRestore": log.BeginRestoreRequest(
        shard_id=1,
        lineage=log.Lineage(number=1, id=b"1" * 16),
        base_lsn=1,
        end_lsn=2,
        next_timestamp=1,
        digest=b"d" * 32,
    ),
    "RestoreBlocks": log.RestoreBlocksRequest(
        shard_id=1, lineage=b"1" * 16, first_lsn=1, blocks=[log.RestoredBlock(block=block())]
    ),
    "FinishRestore": log.FinishRestoreRequest(shard_id=1, lineage=b"1" * 16),
    "CloseShard": log.CloseShardRequest(shard_id=1),
    "AllocateTimestamps": log.AllocateTimestampsRequest(shard_id=1, count=1),
}


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> None:
    """The margin is half of the deadline. Server and client share one loop here, and on a busy
    machine it stands still for longer than the margin that real ones have.
    """
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_S", DEADLINE_S / 2)
    monkeypatch.setattr(bounds, "DEADLINE_MARGIN_SHARE", 0.5)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def leaderless() -> AsyncIterator[Any]:
    """The one store of three that is left, without a leader."""
    async with Served(3) as served:
        shard = await served.new_shard()
        left = served.followers(shard)[0]
        for store in served.stores:
            if store is not left:
                await store.host.stop()
        replica = left.host.replicas.running[ShardId(shard)]
        await eventually(lambda: replica.raft.leader == NO_REPLICA)
        yield left.log


async def ended(call: Any) -> LogServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return typed(caught.value)


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize("name", sorted(CALLS))
async def test_without_a_leader_not_ready_comes_first(leaderless: Any, name: str) -> None:
    error = await ended(getattr(leaderless, name)(CALLS[name], timeout=DEADLINE_S))
    assert error.reason in (Reason.NOT_READY, Reason.NOT_LEADER)
    assert error.outcome is Outcome.NOT_APPLIED


@pytest.mark.usefixtures("half")
async def test_a_follower_without_a_leader_is_told(leaderless: Any) -> None:
    stream = leaderless.Follow(log.FollowRequest(shard_id=1, lsn=1), timeout=DEADLINE_S)
    assert (await ended(stream.read())).reason is Reason.NOT_READY


@pytest.mark.usefixtures("half")
async def test_what_was_proposed_is_unknown_and_typed() -> None:
    async with Served(3) as served:
        shard = await served.new_shard()
        leader = served.leader(shard)
        for store in served.followers(shard):
            await store.host.stop()
        request = log.AppendRequest(shard_id=shard, block=block())
        error = await ended(leader.log.Append(request, timeout=DEADLINE_S))
        assert error.outcome is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("remaining", "limit"),
    [
        (None, bounds.RPC_TIMEOUT_DEFAULT_S),
        (10.0, 10.0 - bounds.DEADLINE_MARGIN_S),
        (0.5, 0.5 * (1 - bounds.DEADLINE_MARGIN_SHARE)),
        (1e9, bounds.RPC_TIMEOUT_MAX_S),
    ],
)
async def test_the_margin(remaining: float | None, limit: float) -> None:
    class Context:
        @staticmethod
        def time_remaining() -> float | None:
            return remaining

    assert timeout_s(Context(), LIMITS) == limit  # type: ignore[arg-type]
