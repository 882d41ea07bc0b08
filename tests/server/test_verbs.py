"""Verbs over the wire: four real stores in this process, and the client that users have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from logservice_client.client import LogClient
from logservice_wire.errors import InvalidArgument, VerbRefused
from logservice_wire.v1 import hakeeper_pb2

from logservice import bounds
from logservice.cli.processes.local_cluster import free_ports
from logservice.server.store import Store
from tests.server.test_administration import configured

pytestmark = pytest.mark.asyncio(loop_scope="module")

State = hakeeper_pb2.ClusterState


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LogClient]:
    directory, ports = tmp_path_factory.mktemp("stores"), free_ports(8)
    made = [Store(configured(directory, number, ports)) for number in (1, 2, 3, 4)]
    await asyncio.gather(*(store.start() for store in made))
    async with LogClient([store.client_address for store in made]) as connected:
        await until(connected, lambda state: state.state == "running")
        await connected.hakeeper.admit_store("s4", hakeeper=True, timeout=30)
        yield connected
    await asyncio.gather(*(store.stop() for store in made))


async def until(client: LogClient, condition: Callable[[State], bool]) -> State:
    async with asyncio.timeout(60):
        while True:
            state = await client.hakeeper.cluster_state(timeout=30)
            if condition(state):
                return state
            await asyncio.sleep(0.05)


def store_of(state: State, name: str) -> hakeeper_pb2.StoreInfo:
    return next(store for store in state.stores if store.store_id == name)


def homes(state: State, shard: int) -> set[str]:
    [found] = [one for one in state.shards if one.shard_id == shard]
    return {replica.store_id for replica in found.replicas if replica.role == "voter"}


def leader(state: State, shard: int) -> str:
    return next(one.leader_store for one in state.shards if one.shard_id == shard)


async def test_a_replica_moves_and_its_wish_tells_how_it_went(client: LogClient) -> None:
    state = await until(client, lambda state: len(homes(state, 1)) == 3 and bool(leader(state, 1)))
    source = leader(state, 1)
    [target] = {store.store_id for store in state.stores} - homes(state, 1)
    found = await client.hakeeper.check_impact([source], timeout=30)
    assert found.leaders >= 1
    wish_id = await client.hakeeper.move_replica(
        1, from_store=source, to_store=target, reason="by hand", timeout=30
    )
    state = await until(client, lambda state: any(one.result for one in state.wishes))
    [wish] = state.wishes
    assert (wish.wish_id, wish.errand, wish.result) == (wish_id, "move", "done")
    assert (wish.from_store, wish.to_store, wish.reason) == (source, target, "by hand")
    assert target in homes(state, 1)
    assert source not in homes(state, 1)
    assert not await client.hakeeper.move_replica(1, from_store=source, to_store=target, timeout=30)
    await client.hakeeper.cancel_wish(wish_id, timeout=30)


async def test_a_leader_is_pinned_and_let_go(client: LogClient) -> None:
    state = await until(client, lambda state: bool(leader(state, 1)))
    [other, *_] = sorted(homes(state, 1) - {leader(state, 1)})
    await client.hakeeper.set_leader(1, 600, store_id=other, reason="near", timeout=30)
    state = await until(client, lambda state: leader(state, 1) == other)
    [shard] = [one for one in state.shards if one.shard_id == 1]
    assert shard.leader_wish_store == other
    assert 0 < shard.leader_wish_ticks <= 600 * 50, "a tick is 20 ms here"
    await client.hakeeper.set_leader(1, 0, timeout=30)
    await until(client, lambda state: not any(one.leader_wish_ticks for one in state.shards))


async def test_settings_are_shown_and_changed(client: LogClient) -> None:
    await client.hakeeper.change_settings(store_timeout_s=42, joining="by-verb", timeout=30)
    state = await until(client, lambda state: state.settings.store_timeout_ms == 42_000)
    assert state.settings.joining == "by-verb"
    assert state.settings.default_replicas == 3
    await client.hakeeper.change_settings(store_timeout_s=300, joining="automatic", timeout=30)


async def test_the_limits_of_reads_are_changed_and_a_client_that_names_none_keeps_them(
    client: LogClient,
) -> None:
    rate = bounds.CATCH_UP_BYTES_PER_S_MIN
    change = client.hakeeper.change_settings
    await change(tail_read_bytes_per_s=2 * rate, catch_up_read_bytes_per_s=rate, timeout=30)
    await change(replace_stuck="on", timeout=30)
    state = await until(client, lambda state: state.settings.replace_stuck == "on")
    assert state.settings.tail_read_bytes_per_s == 2 * rate
    assert state.settings.catch_up_read_bytes_per_s == rate
    with pytest.raises(InvalidArgument) as refused:
        await change(tail_read_bytes_per_s=rate, catch_up_read_bytes_per_s=rate - 1, timeout=30)
    assert refused.value.metadata["field"] == "catch_up_read_bytes_per_s"
    state = await client.hakeeper.cluster_state(timeout=30)
    assert state.settings.tail_read_bytes_per_s == 2 * rate, "all of it, or nothing"
    await change(tail_read_bytes_per_s=0, catch_up_read_bytes_per_s=0, timeout=30)
    state = await client.hakeeper.cluster_state(timeout=30)
    assert state.settings.tail_read_bytes_per_s == state.settings.catch_up_read_bytes_per_s == 0


async def test_balancing_is_planned_begun_stopped_and_switched_off(client: LogClient) -> None:
    plan = await client.hakeeper.balance_plan(timeout=30)
    assert not plan.more
    assert all(one.from_store != one.to_store and one.why for one in plan.moves)
    await client.hakeeper.rebalance(replicas=True, leaders=True, timeout=30)
    async with asyncio.timeout(60):
        while plan.replicas_wished or plan.moves or plan.hand_overs or plan.waits:
            plan = await client.hakeeper.balance_plan(timeout=30)
            await asyncio.sleep(0.05)
    await client.hakeeper.rebalance(replicas=True, leaders=True, stop=True, timeout=30)
    await client.hakeeper.change_settings(replica_balance="off", leader_balance="off", timeout=30)
    state = await until(client, lambda state: state.settings.replica_balance == "off")
    assert state.settings.leader_balance == "off"
    with pytest.raises(VerbRefused) as refused:
        await client.hakeeper.rebalance(leaders=True, timeout=30)
    assert refused.value.metadata["why"] == "the setting leader_balance is off"
    with pytest.raises(InvalidArgument):
        await client.hakeeper.rebalance(timeout=30)
    with pytest.raises(InvalidArgument):
        await client.hakeeper.change_settings(leader_balance="often", timeout=30)


async def test_what_is_wrong_has_a_typed_error(client: LogClient) -> None:
    with pytest.raises(InvalidArgument, match="'closed' is none of open, read-only, draining"):
        await client.hakeeper.set_store_mode("s1", "closed", timeout=30)
    with pytest.raises(InvalidArgument, match="there are s1, s2, s"):
        await client.hakeeper.set_store_mode("s9", "draining", timeout=30)
    with pytest.raises(InvalidArgument):
        await client.hakeeper.cancel_operator(1 << 40, timeout=30)
    with pytest.raises(InvalidArgument, match="'sleeping' is none of created, "):
        await client.hakeeper.set_phase("sleeping", timeout=30)
    with pytest.raises(InvalidArgument):
        await client.hakeeper.check_impact([""], timeout=30)
    with pytest.raises(InvalidArgument):
        await client.hakeeper.move_replica(99, from_store="s1", to_store="s2", timeout=30)
    assert await client.hakeeper.set_phase("created", timeout=30) == "running"


async def test_repairs_are_off_for_a_time(client: LogClient) -> None:
    await client.hakeeper.set_repair(60, store_id="s2", reason="a new board", timeout=30)
    await client.hakeeper.set_repair(60, reason="a move", timeout=30)
    state = await until(client, lambda state: len(state.flags) == 2)
    assert state.repair_off_ticks > 0
    assert store_of(state, "s2").repair_off_reason == "a new board"
    await client.hakeeper.set_repair(0, store_id="s2", timeout=30)
    await client.hakeeper.set_repair(0, timeout=30)
    await until(client, lambda state: not state.flags)


async def test_a_store_is_drained_and_forgotten(client: LogClient) -> None:
    with pytest.raises(VerbRefused) as refused:
        await client.hakeeper.forget_store("s3", timeout=30)
    assert refused.value.metadata["forcible"] == "false"
    await client.hakeeper.set_store_mode("s3", "draining", reason="sold", timeout=30)
    state = await until(client, lambda state: store_of(state, "s3").empty)
    assert store_of(state, "s3").mode == "draining"
    assert all("s3" not in homes(state, shard.shard_id) for shard in state.shards)
    with pytest.raises(VerbRefused) as refused:
        await client.hakeeper.set_store_mode("s4", "draining", timeout=30)
    assert refused.value.metadata["forcible"] == "true"
    await client.hakeeper.forget_store("s3", timeout=30)
    state = await until(client, lambda state: len(state.stores) == 3)
    [gone] = state.gone_stores
    assert (gone.store_id, gone.lost) == ("s3", False)
