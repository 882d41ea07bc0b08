"""Holds with a time to live over real gRPC: the old cluster, the status, renewal, expiry."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logservice_client import LogClient
from logservice_wire.errors import HoldLost, InvalidArgument, NotReady, Reason
from logservice_wire.v1 import log_pb2

from logservice.bounds import HOLD_TTL_S_MAX, HOLD_TTL_S_MIN
from logservice.ids import ShardId
from logservice.rsm.state import LogState
from logservice.versions import KnownVersion
from tests.server.served import Served, ServedStore, block
from tests.server.test_closing import refusal
from tests.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> int:
    number = await served.new_shard()
    request = log_pb2.AppendRequest(shard_id=number, block=block(*[b"r"] * 9))
    await served.leader(number).log.Append(request)
    return number


async def hold(store: ServedStore, shard: int, *, stale: bool = False) -> log_pb2.Hold | None:
    request = log_pb2.GetShardStatusRequest(shard_id=shard, stale=stale)
    holds = (await store.log.GetShardStatus(request)).holds
    return holds[0] if holds else None


def state(store: ServedStore, shard: int) -> LogState:
    rsm = store.host.replicas.running[ShardId(shard)].log_rsm
    assert rsm is not None
    return rsm.state


async def test_a_hold_with_a_time_to_live_is_shown_renewed_and_expires(
    served: Served, shard: int
) -> None:
    leader = served.leader(shard)
    await leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=4, ttl_s=60))
    await leader.log.Truncate(log_pb2.TruncateRequest(shard_id=shard, lsn=8))
    found = await hold(leader, shard)
    assert found is not None
    revision = state(leader, shard).holds["h"].revision
    assert (found.lsn, found.ttl_s, found.revision) == (4, 60, revision)
    assert found.HasField("expires_in_s")
    assert 0 <= found.age_s < 30 < found.expires_in_s <= 60
    for store in served.followers(shard):
        followers = await hold(store, shard)
        assert followers is not None
        assert (followers.revision, followers.ttl_s) == (found.revision, 60)
        assert not followers.HasField("expires_in_s"), "only the leader's store counts"
    leader.host.hold_expiry.now_s += 40
    answer = await leader.log.RenewHold(log_pb2.RenewHoldRequest(shard_id=shard, name="h"))
    assert answer.lsn == 4
    renewed = await hold(leader, shard)
    assert renewed is not None
    assert renewed.revision > found.revision
    assert renewed.age_s < 30 < renewed.expires_in_s
    leader.host.hold_expiry.now_s += 60
    for store in served.stores:
        await eventually(lambda store=store: not state(store, shard).holds)
    request = log_pb2.GetShardStatusRequest(shard_id=shard)
    assert (await leader.log.GetShardStatus(request)).truncated_lsn == 8
    error = await refusal(leader.log.RenewHold(log_pb2.RenewHoldRequest(shard_id=shard, name="h")))
    assert isinstance(error, HoldLost)
    assert (error.metadata["name"], error.number("first_lsn")) == ("h", 9)


async def test_a_hold_without_one_has_an_age_and_no_end(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    await leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=4))
    leader.host.hold_expiry.now_s += 100_000
    found = await hold(leader, shard)
    assert found is not None
    assert (found.ttl_s, found.HasField("expires_in_s")) == (0, False)
    assert found.revision > 0


@pytest.mark.parametrize("ttl_s", [1, HOLD_TTL_S_MIN - 1, HOLD_TTL_S_MAX + 1, 2**32 - 1])
async def test_a_time_to_live_out_of_its_bounds_is_refused_before_it_is_proposed(
    served: Served, shard: int, ttl_s: int
) -> None:
    leader = served.leader(shard)
    before = leader.host.replicas.running[shard].raft.last_index  # type: ignore[index]
    request = log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=4, ttl_s=ttl_s)
    error = await refusal(leader.log.SetHold(request))
    assert isinstance(error, InvalidArgument)
    assert error.metadata["field"] == "ttl_s"
    assert leader.host.replicas.running[shard].raft.last_index == before  # type: ignore[index]


async def test_at_cluster_version_1_a_hold_is_set_in_the_old_form_and_no_other(
    served: Served, shard: int
) -> None:
    """What a 0.1.0 replica would refuse is not proposed below version 2."""
    leader = served.leader(shard)
    known = leader.host.cluster_version
    leader.host.cluster_version = KnownVersion(settled=True)
    try:
        for call in (
            leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=4, ttl_s=60)),
            leader.log.RenewHold(log_pb2.RenewHoldRequest(shard_id=shard, name="h")),
        ):
            error = await refusal(call)
            assert isinstance(error, NotReady)
            assert (error.metadata["cluster_version"], error.metadata["needed"]) == ("1", "2")
        await leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, name="h", lsn=4))
    finally:
        leader.host.cluster_version = known
    found = await hold(leader, shard)
    assert found is not None
    assert (found.lsn, found.revision, found.ttl_s) == (4, 0, 0)
    answer = await leader.log.RenewHold(log_pb2.RenewHoldRequest(shard_id=shard, name="h"))
    assert answer.lsn == 4
    found = await hold(leader, shard)
    assert found is not None
    assert found.revision > 0


async def test_the_client_holds_a_log_while_a_block_runs(served: Served, shard: int) -> None:
    leader = served.leader(shard)
    async with LogClient([leader.address]) as client:
        log = client.shard(shard)
        async with log.hold("job", 4, ttl=HOLD_TTL_S_MIN) as held:
            assert await log.truncate(8) == 3
            await held.move(6)
            assert (await log.status()).truncated_lsn == 5
            held.check()
        assert (await log.status()).truncated_lsn == 8
        with pytest.raises(HoldLost):
            await log.renew_hold("job")


async def test_a_client_whose_hold_was_released_by_force_is_told(
    served: Served, shard: int
) -> None:
    leader = served.leader(shard)
    async with LogClient([leader.address]) as client:
        log = client.shard(shard)
        with pytest.raises(HoldLost) as lost:
            async with log.hold("job", 4, ttl=HOLD_TTL_S_MIN) as held:
                await log.truncate(8)
                await log.release_hold("job", override=True)
                await eventually(lambda: held._lost is not None)
        assert lost.value.reason is Reason.HOLD_LOST
        assert lost.value.number("first_lsn") == 9
