"""Administration through a store that does not lead: the client follows to the one that does.

Three real stores in this process, real connections, the client that users have. Only the store of
HAKeeper's leader administers, because it authenticated the caller; the others say where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio
from logservice_client.client import LogClient
from logservice_wire.errors import (
    HoldRefused,
    InvalidArgument,
    LogServiceError,
    Reason,
    ShardNotFound,
)
from logservice_wire.v1 import hakeeper_pb2, hakeeper_pb2_grpc

from logservice import config
from logservice.cli.processes.local_cluster import free_ports
from logservice.ids import HAKEEPER_SHARD
from logservice.nodehost.node_host import NodeHost
from logservice.raft.ready import Role
from logservice.server.store import Store
from logservice.versions import NEWEST
from tests.server.served import typed

pytestmark = pytest.mark.asyncio(loop_scope="module")

NUMBERS = (1, 2, 3)
IDENTITY = "spiffe://logservice.internal/cluster/c/client/app"


def configured(directory: Path, number: int, ports: list[int]) -> config.StoreConfig:
    members = ", ".join(
        f'{{ store_id = "s{one}", peer_address = "127.0.0.1:{ports[2 * one - 1]}" }}'
        for one in NUMBERS
    )
    return config.parse(
        f"""
        [store]
        store_id = "s{number}"
        cluster_id = "c"
        data_directories = ["{directory / str(number)}"]
        [listen]
        insecure_plaintext = true
        client = "127.0.0.1:{ports[2 * number - 2]}"
        peer = "127.0.0.1:{ports[2 * number - 1]}"
        [bootstrap]
        hakeeper_members = [{members}]
        [raft]
        tick_ms = 20
        [hakeeper]
        tick_ms = 20
        heartbeat_interval_s = 0.2
        [storage]
        segment_bytes = 1048576
        ballast_bytes = 0
        """
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Store]]:
    directory, ports = tmp_path_factory.mktemp("stores"), free_ports(6)
    made = [Store(configured(directory, number, ports)) for number in NUMBERS]
    await asyncio.gather(*(store.start() for store in made))
    async with LogClient([store.client_address for store in made]) as client:
        async with asyncio.timeout(60):
            while (await client.hakeeper.cluster_state(timeout=30)).state != "running":  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
    yield made
    await asyncio.gather(*(store.stop() for store in made))


def host_of(store: Store) -> NodeHost:
    assert store._parts is not None
    return store._parts.host


def leads(store: Store) -> bool:
    info = host_of(store).replicas.info(HAKEEPER_SHARD)
    return info is not None and info.role is Role.LEADER


async def leader_and_others(stores: list[Store]) -> tuple[Store, list[Store]]:
    """Return as soon as all know who leads."""
    async with asyncio.timeout(30):
        while True:
            leading = [store for store in stores if leads(store)]
            known = {host_of(one).replicas.running[HAKEEPER_SHARD].info().leader for one in stores}
            if len(leading) == 1 and len(known) == 1:
                return leading[0], [one for one in stores if one is not leading[0]]
            await asyncio.sleep(0.02)


async def test_who_does_not_lead_says_who_does_and_changes_nothing(stores: list[Store]) -> None:
    leader, others = await leader_and_others(stores)
    for store in others:
        async with grpc.aio.insecure_channel(
            store.client_address, [("grpc.enable_http_proxy", 0)]
        ) as channel:
            stub: Any = hakeeper_pb2_grpc.HAKeeperStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.CreateShard(hakeeper_pb2.CreateShardRequest(name="nobodys"))
        error = typed(caught.value)
        assert error.reason is Reason.NOT_LEADER
        assert error.metadata["address"] == leader.client_address
    async with LogClient(leader.client_address) as client:
        state = await client.hakeeper.cluster_state(timeout=30)
    assert "nobodys" not in {shard.name for shard in state.shards}


async def test_a_client_that_knows_only_another_store_administers(stores: list[Store]) -> None:
    leader, others = await leader_and_others(stores)
    for number, store in enumerate(others):
        async with LogClient(store.client_address) as client:
            shard = await client.hakeeper.create_shard(name=f"made-{number}", timeout=30)
            assert shard > 0
            await client.hakeeper.admit_store("s9", timeout=30)
            await client.hakeeper.set_joining("automatic", timeout=30)
            before = await client.hakeeper.change_access(
                IDENTITY, "cluster", grant=["read"], timeout=30
            )
            after = await client.hakeeper.change_access(
                IDENTITY, "cluster", revoke=["read"], timeout=30
            )
            assert after == before + 1
            # The client keeps what it has found: the next call goes there first.
            assert client._caller.router.candidates(None)[0] == leader.client_address


async def test_what_a_service_replays_holds_its_log_until_the_service_forgets_it(
    stores: list[Store],
) -> None:
    """From the client's helper through HAKeeper to the log and back."""

    async def ignore(_: hakeeper_pb2.ServiceCommand) -> None:
        raise AssertionError("nobody sends commands")

    async with LogClient([store.client_address for store in stores]) as client:
        shard_id = await client.hakeeper.create_shard(name="replayed", timeout=30)
        shard = client.shard(shard_id)
        service = client.hakeeper.service("tn-1", "tn", ignore)
        service._interval_s = 0.05
        running = asyncio.create_task(service.run())
        await shard.append([b"r"] * 9, timeout=30)
        service.replayed(shard_id, 4)
        assert await service.held(shard_id, timeout=30) == 5
        assert await shard.truncate(8, timeout=30) == 4
        service.replayed(shard_id, 6)
        async with asyncio.timeout(30):
            while (await shard.status(timeout=30)).truncated_lsn != 6:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
        service.replayed(shard_id, 2)
        with pytest.raises(HoldRefused) as refused:
            await service.held(shard_id, timeout=30)
        assert int(refused.value.metadata["first_lsn"]) in (5, 7)  # as the last report had it
        service.forget(shard_id)
        async with asyncio.timeout(30):
            while (await shard.status(timeout=30)).truncated_lsn != 8:  # noqa: ASYNC110 - only asking tells
                await asyncio.sleep(0.05)
        service.replayed(999, 1)
        with pytest.raises(ShardNotFound):
            await service.held(999, timeout=30)
        running.cancel()


async def test_a_service_is_told_to_drain_and_says_when_it_has(stores: list[Store]) -> None:
    async def ignore(_: hakeeper_pb2.ServiceCommand) -> None:
        raise AssertionError("nobody sends commands")

    async with LogClient([store.client_address for store in stores]) as client:
        service = client.hakeeper.service("cn-1", "cn", ignore)
        service._interval_s = 0.05
        running = asyncio.create_task(service.run())

        async def learns(state: str) -> None:
            async with asyncio.timeout(30):
                while service.work_state != state:
                    await service._answered.wait()

        await learns("working")
        await client.hakeeper.set_service_state("cn-1", "draining", timeout=30)
        await learns("draining")
        service.drained()
        await learns("drained")
        services = (await client.hakeeper.cluster_state(timeout=30)).services
        (shown,) = [one for one in services if one.service_id == "cn-1"]
        assert shown.work_state == "drained"
        await client.hakeeper.set_service_state("cn-1", "working", timeout=30)
        await learns("working")
        for unknown in ("drained", "asleep"):
            with pytest.raises(InvalidArgument) as refused:
                await client.hakeeper.set_service_state("cn-1", unknown, timeout=30)
            assert refused.value.metadata["field"] == "work_state"
        running.cancel()


async def test_the_cluster_version_is_raised_by_one_and_only_when_all_stores_know_it(
    stores: list[Store],
) -> None:
    """These stores were born together, at the highest version that they know."""
    _, others = await leader_and_others(stores)
    async with LogClient(others[0].client_address) as client:
        state = await client.hakeeper.cluster_state(timeout=30)
        assert (state.cluster_version, state.next_version) == (NEWEST, 0)
        assert {one.highest_version for one in state.stores} == {NEWEST}
        assert await client.hakeeper.raise_cluster_version(NEWEST, timeout=30) == NEWEST
        with pytest.raises(LogServiceError) as caught:
            await client.hakeeper.raise_cluster_version(NEWEST + 1, timeout=30)
        assert caught.value.reason is Reason.VERB_REFUSED
        assert caught.value.metadata["stores"] == ",".join(sorted(map(store_id, stores)))
        with pytest.raises(LogServiceError) as caught:
            await client.hakeeper.raise_cluster_version(NEWEST + 2, timeout=30)
        assert caught.value.reason is Reason.INVALID_ARGUMENT
        while {one.used_version for one in state.stores} != {NEWEST}:
            await asyncio.sleep(0.05)
            state = await client.hakeeper.cluster_state(timeout=30)
        assert state.cluster_version == NEWEST


def store_id(store: Store) -> str:
    return host_of(store).identity.store_id


async def test_a_refusal_of_the_leader_reaches_the_client(stores: list[Store]) -> None:
    _, others = await leader_and_others(stores)
    async with LogClient(others[0].client_address) as client:
        with pytest.raises(LogServiceError) as caught:
            await client.hakeeper.create_shard(replicas=9, timeout=30)
    assert caught.value.reason is Reason.NOT_ENOUGH_STORES


async def test_the_client_follows_when_the_leader_changes(stores: list[Store]) -> None:
    """The client's hint is old then, and the store that it names does not lead any more."""
    leader, others = await leader_and_others(stores)
    async with LogClient(others[0].client_address) as client:
        await client.hakeeper.set_joining("automatic", timeout=30)
        target = host_of(others[1]).replicas.running[HAKEEPER_SHARD].info().replica
        await host_of(leader).router.transfer_leadership(HAKEEPER_SHARD, target, 10.0)
        await client.hakeeper.set_joining("automatic", timeout=30)
        after, _ = await leader_and_others(stores)
        assert after is not leader
        await client.hakeeper.set_joining("automatic", timeout=30)
        assert client._caller.router.candidates(None)[0] == after.client_address


async def test_the_client_follows_when_the_leader_is_gone(stores: list[Store]) -> None:
    """Nobody answers at the address that the client was given; the other stores elect a leader and
    name it.
    """
    leader, others = await leader_and_others(stores)
    async with LogClient(others[0].client_address) as client:
        await client.hakeeper.set_joining("automatic", timeout=30)
        stores.remove(leader)
        await leader.stop()
        await client.hakeeper.set_joining("automatic", timeout=30)
        after, _ = await leader_and_others(stores)
        assert after in others
