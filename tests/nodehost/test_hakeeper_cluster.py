"""HAKeeper on real NodeHosts: bootstrap, shards, a store lost for good, full restarts. Names G8.

Real log storage on real files, a network in memory, times a tenth of the usual ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from logservice_wire.errors import LogServiceError, NotLeader

from logservice import bounds
from logservice.hakeeper.answers.views import ClusterView
from logservice.hakeeper.commands import proposals
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.nodehost.agent.bootstrap import BootstrapOutcome, InitialMember
from logservice.nodehost.agent.hakeeper_client import HAKeeperClient
from logservice.nodehost.agent.hakeeper_ticks import FirstConfiguration
from logservice.nodehost.agent.heartbeats import StoreDescription
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.transport.memory import MemoryNetwork
from logservice.raft.messages import AppendEntries, Message
from logservice.rsm.log_rsm import LogRsm
from logservice.state_machine import StateMachine
from tests.nodehost.assembled import CLUSTER
from tests.nodehost.cluster import Store, request

TICK_S = 0.02
BEAT_S = 0.1
STORE_TIMEOUT_S = 1.0


def machine(shard: ShardId) -> StateMachine:
    return HAKeeperRsm() if shard == HAKEEPER_SHARD else LogRsm()


class FixedStore(Store):
    """A store that listens on the same address in every life."""

    async def up(self, machines: Callable[[ShardId], StateMachine] = machine) -> NodeHost:
        self.address = f"memory:{self.number}"
        return await super().up(machines)


class Member:
    """A store with HAKeeper's shell around its NodeHost."""

    def __init__(self, store: Store, first: tuple[InitialMember, ...], shards: int) -> None:
        self.store = store
        self.first = first
        self.shards = shards
        self.client: HAKeeperClient | None = None
        self.boot: asyncio.Task[BootstrapOutcome] | None = None
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def up(self) -> bool:
        return self.client is not None

    async def start(self) -> None:
        store = self.store
        store.more = {
            "members": self.first,
            "first": FirstConfiguration(CLUSTER, self.shards, 3, STORE_TIMEOUT_S),
            "heartbeat_interval_s": BEAT_S,
            "hakeeper_tick_s": TICK_S,
        }
        host = await store.up()
        parts = store.parts
        assert parts is not None
        host.requests.directory = parts.book
        self.client = parts.client
        address = host.transport.address
        parts.background(lambda: StoreDescription("", address, f"{store.store_id}:client", {}))
        assert parts.heartbeats is not None
        loop = asyncio.get_running_loop()
        self.boot = loop.create_task(parts.bootstrapper.run(20.0))
        self.tasks = [
            loop.create_task(parts.heartbeats.run()),
            loop.create_task(parts.shell.run()),
        ]

    async def stop(self) -> None:
        self.client = None
        tasks = [*self.tasks, *([self.boot] if self.boot is not None else [])]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            assert not isinstance(result, BaseException) or isinstance(
                result, asyncio.CancelledError | LogServiceError
            ), result
        await self.store.down()
        assert not self.store.fatal, self.store.fatal


class Cluster:
    def __init__(self, directory: Path, stores: int, *, shards: int = 1) -> None:
        self.network = MemoryNetwork(through_codec=True)
        self.directory = directory
        self.shards = shards
        self.first = tuple(
            InitialMember(StoreId(f"store-{number}"), f"memory:{number}") for number in (1, 2, 3)
        )
        self.members: dict[int, Member] = {}
        for number in range(1, stores + 1):
            self.add(number)

    def add(self, number: int, directory: str = "") -> Member:
        path = self.directory / (directory or f"store-{number}")
        # Another directory is another process: with the same boot id it would be taken for the
        # earlier one.
        store = FixedStore(number, path, self.network, seed=8 if directory else 7)
        self.members[number] = Member(store, self.first, self.shards)
        return self.members[number]

    async def start(self, *numbers: int) -> None:
        for number in numbers or tuple(self.members):
            await self.members[number].start()

    async def stop(self, *numbers: int) -> None:
        for number in numbers or tuple(self.members):
            if self.members[number].up:
                await self.members[number].stop()

    def client(self) -> HAKeeperClient:
        found = [member.client for member in self.members.values() if member.client is not None]
        return found[-1]

    async def admit(self, number: int) -> None:
        """Let HAKeeper have a replica on store `number`."""
        admit = proposals.AdmitStore(StoreId(f"store-{number}"), hakeeper=True)
        for member in self.members.values():
            if member.client is not None:
                with contextlib.suppress(NotLeader):
                    await member.client.administer(admit, 30.0)
                    return
        raise AssertionError("HAKeeper leads nowhere")

    async def create_shard(self) -> None:
        """Create a shard on the store where HAKeeper's leader is."""
        for member in self.members.values():
            if member.client is not None:
                with contextlib.suppress(NotLeader):
                    await member.client.create_shard(ShardId(0), "", 3, 30.0)
                    return
        raise AssertionError("HAKeeper leads nowhere")

    async def until(self, good: object, timeout_s: float = 60.0) -> ClusterView:
        """Wait until `good(view)`; if that does not come, the last view fails the test."""
        assert callable(good)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        view: ClusterView | None = None
        while loop.time() < deadline_s:
            try:
                view = await self.client().cluster(2.0)
            except LogServiceError:
                continue
            if good(view):
                return view
            await asyncio.sleep(0.05)
        raise AssertionError(f"it did not come true in time: {view}")

    async def append(self, shard: ShardId) -> int:
        """Append one record through a store that has the shard."""
        last: LogServiceError | None = None
        for _ in range(50):
            for member in self.members.values():
                host = member.store.host
                if host is None or host.replicas.info(shard) is None:
                    continue
                try:
                    return (await host.append(shard, request(), 2.0)).lsn
                except LogServiceError as error:
                    last = error
            await asyncio.sleep(0.05)
        raise AssertionError(f"nobody took the record: {last}")


def whole(view: ClusterView, shards: int, *, without: str = "") -> bool:
    """Every shard has three running voters and a leader, and no repair is under way."""
    return (
        view.phase == "running"
        and len(view.shards) == shards
        and not view.operators
        and all(
            len(shard.replicas) == 3
            and all(replica.health == "alive" for replica in shard.replicas)
            and all(replica.role == "voter" for replica in shard.replicas)
            and without not in [replica.store_id for replica in shard.replicas]
            and shard.leader_address
            for shard in view.shards
        )
    )


@pytest.fixture
async def cluster(tmp_path: Path):  # type: ignore[no-untyped-def]
    made: list[Cluster] = []

    def make(stores: int, **options: int) -> Cluster:
        made.append(Cluster(tmp_path, stores, **options))
        return made[0]

    yield make
    for one in made:
        await one.stop()


async def test_a_cluster_comes_up_makes_shards_and_replaces_a_lost_store(cluster) -> None:  # type: ignore[no-untyped-def]
    here = cluster(3)
    await here.start()
    view = await here.until(lambda view: whole(view, 2))
    assert [member.boot.result() for member in here.members.values()] == [
        BootstrapOutcome.STARTED
    ] * 3
    assert view.flags == ()
    for _ in range(8):
        await here.create_shard()
    await here.until(lambda view: whole(view, 10))
    assert [await here.append(ShardId(number)) for number in range(1, 10)] == [1] * 9
    await here.admit(4)
    await here.stop(2)
    here.add(4)
    await here.start(4)
    view = await here.until(lambda view: whole(view, 10, without="store-2"))
    assert [await here.append(ShardId(number)) for number in range(1, 10)] == [2] * 9
    epochs = [shard.membership_epoch for shard in view.shards]
    assert all(epoch > 1 for epoch in epochs)
    # The lost store comes back: its replicas are removed, nothing else happens.
    await here.start(2)
    host = here.members[2].store.host
    assert host is not None
    await here.until(lambda view: not host.directories.replicas() and whole(view, 10))


async def test_hakeeper_is_found_again_after_everything_was_down(cluster) -> None:  # type: ignore[no-untyped-def]
    """Only one of the seeds still runs HAKeeper, and all addresses but the seeds' are new."""
    here = cluster(5)
    await here.start()
    await here.until(lambda view: whole(view, 2) and len(view.stores) == 5)
    for spare in (4, 5):
        await here.admit(spare)
    await here.stop(1)
    await here.until(lambda view: whole(view, 2, without="store-1"))
    await here.stop(2)
    await here.until(
        lambda view: whole(view, 2, without="store-1") and whole(view, 2, without="store-2"), 30.0
    )
    await here.stop()
    await here.start(3, 4, 5)
    view = await here.until(lambda view: whole(view, 2))
    assert {one.store_id for one in view.shards[0].replicas} == {"store-3", "store-4", "store-5"}
    assert await here.append(ShardId(1)) == 1


async def test_an_emptied_store_does_not_vote_and_is_replaced_in_its_own_place(cluster) -> None:  # type: ignore[no-untyped-def]
    here = cluster(3)
    await here.start()
    await here.until(lambda view: whole(view, 2))
    assert await here.append(ShardId(1)) == 1
    await here.stop(3)
    old = here.members[3].store.incarnation
    here.add(3, "store-3-emptied")
    await here.start(3)
    view = await here.until(lambda view: whole(view, 2) and _moved(view, old))
    boot = here.members[3].boot
    assert boot is not None
    assert boot.result() is BootstrapOutcome.REFUSED
    assert view.flags == ()
    assert await here.append(ShardId(1)) == 2


def _moved(view: ClusterView, old: int) -> bool:
    found = [
        replica.incarnation
        for shard in view.shards
        for replica in shard.replicas
        if replica.store_id == "store-3"
    ]
    return len(found) == len(view.shards) and old not in found


async def test_a_replica_that_is_served_nothing_is_flagged_until_it_is(
    cluster,  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INV-HK-STANDSTILL with real reports; its times are a thirtieth of the usual ones.

    The replica's store answers and the replica hears its leader, but what the leader appends does
    not come through.
    """
    monkeypatch.setattr(bounds, "HAKEEPER_STANDSTILL_TICKS", 20)
    monkeypatch.setattr(bounds, "HAKEEPER_IDLE_CHECK_TICKS", 10)
    here = cluster(3)
    await here.start()
    view = await here.until(lambda view: whole(view, 2))
    replicas = [replica for replica in view.shards[1].replicas if not replica.leader]
    victim = replicas[0]

    def lost(_: StoreId, receiver: StoreId, shard: ShardId, message: Message) -> bool:
        return shard == 1 and receiver == victim.store_id and isinstance(message, AppendEntries)

    here.network.drop = lost
    assert await here.append(ShardId(1)) == 1
    words = f"shard 1: replica {victim.replica_id} on {victim.store_id} does not catch up"
    view = await here.until(lambda view: any(flag.startswith(words) for flag in view.flags))
    assert whole(view, 2)  # every replica is alive, and none is replaced
    here.network.drop = None
    await here.until(lambda view: whole(view, 2) and not view.flags)
    assert await here.append(ShardId(1)) == 2
