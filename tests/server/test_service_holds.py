"""A store carries out what HAKeeper wants held for services, in the logs that it leads."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logservice_wire.errors import Reason
from logservice_wire.v1 import log_pb2

from logservice.hakeeper.commands.replies import HoldOrder
from logservice.ids import Lsn, ShardId
from logservice.nodehost.agent.service_holds import carry_out
from tests.server.served import Served, ServedStore, block
from tests.server.test_closing import refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME = "service:7:tn-1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with Served(3) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def shard(served: Served) -> ShardId:
    number = await served.new_shard()
    request = log_pb2.AppendRequest(shard_id=number, block=block(*[b"r"] * 9))
    await served.leader(number).log.Append(request)
    return ShardId(number)


async def holds(store: ServedStore, shard: int) -> dict[str, tuple[int, str]]:
    status = await store.log.GetShardStatus(log_pb2.GetShardStatusRequest(shard_id=shard))
    return {hold.name: (hold.lsn, hold.owner) for hold in status.holds}


async def test_a_hold_is_set_moved_reported_and_released(served: Served, shard: ShardId) -> None:
    leader = served.leader(shard)
    await carry_out(leader.host, HoldOrder(shard, NAME, Lsn(3), "tn"))
    assert await holds(leader, shard) == {NAME: (3, "tn")}
    info = leader.host.replicas.info(shard)
    assert info is not None
    assert info.service_holds == ((NAME, 3),)
    truncate = log_pb2.TruncateRequest(shard_id=shard, lsn=8)
    assert (await leader.log.Truncate(truncate)).truncated_lsn == 2
    info = leader.host.replicas.info(shard)
    assert info is not None
    assert (info.truncated_lsn, info.requested_lsn) == (2, 8)
    await carry_out(leader.host, HoldOrder(shard, NAME, Lsn(6), "tn"))
    # A hold cannot be lower than what is left: the store knows that best.
    await carry_out(leader.host, HoldOrder(shard, "service:9:cn", Lsn(1), "cn"))
    assert await holds(leader, shard) == {NAME: (6, "tn"), "service:9:cn": (6, "cn")}
    for name in (NAME, "service:9:cn"):
        await carry_out(leader.host, HoldOrder(shard, name))
    assert await holds(leader, shard) == {}
    assert all(
        info is not None and info.service_holds == ()
        for info in (store.host.replicas.info(shard) for store in served.stores)
    )


async def test_what_is_so_already_is_not_proposed_again(served: Served, shard: ShardId) -> None:
    leader = served.leader(shard)
    order = HoldOrder(shard, NAME, Lsn(3), "tn")
    await carry_out(leader.host, order)
    before = leader.host.replicas.info(shard)
    await carry_out(leader.host, order)
    await carry_out(leader.host, HoldOrder(shard, "service:8:gone"))
    after = leader.host.replicas.info(shard)
    assert before is not None
    assert after is not None
    assert before.last_index == after.last_index


async def test_others_than_the_leader_change_nothing(
    served: Served, shard: ShardId, caplog: pytest.LogCaptureFixture
) -> None:
    leader = served.leader(shard)
    for store in served.stores:
        if store is not leader:
            await carry_out(store.host, HoldOrder(shard, NAME, Lsn(3), "tn"))
    await carry_out(leader.host, HoldOrder(ShardId(999), NAME, Lsn(3), "tn"))
    # The order of a store that lies cannot touch the holds of others.
    await leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, lsn=4, name="backup"))
    await carry_out(leader.host, HoldOrder(shard, "backup"))
    await carry_out(leader.host, HoldOrder(shard, "backup", Lsn(9), "tn"))
    assert await holds(leader, shard) == {"backup": (4, "anonymous")}
    with caplog.at_level(logging.WARNING):
        await carry_out(leader.host, HoldOrder(shard, NAME, Lsn(3), ""))
    assert "service:7:tn-1 of a service is not set" in caplog.text


async def test_names_of_service_holds_are_hakeepers_from_version_2_on(
    served: Served, shard: ShardId
) -> None:
    leader = served.leader(shard)
    asked = log_pb2.SetHoldRequest(shard_id=shard, lsn=4, name=NAME)
    error = await refusal(leader.log.SetHold(asked))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_ARGUMENT, "name")


async def test_at_version_1_they_are_like_any_other() -> None:
    async with Served(1, cluster_version=1) as old:
        shard = await old.new_shard()
        leader = old.leader(shard)
        await leader.log.SetHold(log_pb2.SetHoldRequest(shard_id=shard, lsn=1, name=NAME))
        assert await holds(leader, shard) == {NAME: (1, "anonymous")}
