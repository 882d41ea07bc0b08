"""A cluster of real NodeHosts in one process: real log storage on real files, a network in
memory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logservice_wire.block import Block, encode_block

from logservice import bounds
from logservice.ids import (
    NO_SESSION,
    Incarnation,
    Lsn,
    ReplicaId,
    SessionId,
    ShardId,
    StoreId,
)
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.replica.replica import Replica
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.rsm.append_request import AppendRequest
from logservice.rsm.log_rsm import LogRsm
from logservice.state_machine import StateMachine
from tests.nodehost.assembled import SEGMENT_BYTES, assemble
from tests.nodehost.fake_host import Everybody
from tests.owners import CLAIM

SHARD = ShardId(1)


def log_machine(shard: ShardId) -> StateMachine:
    return LogRsm()


class Store:
    """One store: `directory` survives a crash; `up` makes everything else."""

    def __init__(self, number: int, directory: Path, network: MemoryNetwork, seed: int) -> None:
        self.number = number
        self.store_id = StoreId(f"store-{number}")
        self.incarnation = Incarnation(0)
        self.directory = directory
        self.network = network
        self.random = random.Random(seed * 100 + number)
        self.host: NodeHost | None = None
        self.parts: StoreParts | None = None
        self.address = ""
        self.sealed_at_bytes = SEGMENT_BYTES
        self.options: LogDbOptions | None = None
        """Of log storage, in place of `sealed_at_bytes`."""
        self.more: dict[str, Any] = {}
        """The other arguments of `assemble`."""
        self.fatal: list[BaseException] = []
        self.inline_max_s = 1.0
        self.vfs: Vfs = PosixVfs()
        self.quiesce_ticks = 0
        self.version = 1
        """The cluster version that it knows of from its start on."""
        self.election_ticks = 20
        self.apply_stuck_s = bounds.APPLY_STUCK_S
        self.catch_up: dict[str, int] = {}
        """The options of `replica.catch_up`."""

    async def up(self, machines: Callable[[ShardId], StateMachine] = log_machine) -> NodeHost:
        self.parts = assemble(
            self.store_id,
            [self.directory],
            lambda identity: MemoryTransport(identity, self.network, self.address),
            options=NodeHostOptions(
                tick_ms=10,
                election_ticks=self.election_ticks,
                quiesce_ticks=self.quiesce_ticks,
                fsync_inline_max_s=self.inline_max_s,
                apply_stuck_s=self.apply_stuck_s,
                **self.catch_up,  # type: ignore[arg-type]
            ),
            on_fatal=self.fatal.append,
            rng=self.random,
            disk=lambda _: DiskSeams.on_files(self.vfs),
            logdb=self.options or LogDbOptions(segment_bytes=self.sealed_at_bytes, ballast_bytes=0),
            state_machines=machines,
            **self.more,
        )
        self.incarnation = self.parts.host.identity.incarnations[0]
        self.host = self.parts.host
        self.host.requests.directory = Everybody()
        self.host.cluster_version.learn(self.version)
        await self.host.start()
        return self.host

    @property
    def logdb(self) -> LogDb:
        """The log storage of its first data directory."""
        assert self.parts is not None
        return self.parts.directories[0].logdb

    async def down(self) -> None:
        """Stop without telling anybody: for the log this is a crash."""
        assert self.parts is not None
        await self.parts.stop()
        self.parts.close()
        self.parts = self.host = None


class Cluster:
    """Stores 1..n; shard 1 on the first three."""

    def __init__(
        self, directory: Path, stores: int = 3, seed: int = 1, *, quiesce_ticks: int = 0
    ) -> None:
        self.network = MemoryNetwork(through_codec=True)
        self.stores = {
            number: Store(number, directory / f"store-{number}", self.network, seed)
            for number in range(1, stores + 1)
        }
        for store in self.stores.values():
            store.quiesce_ticks = quiesce_ticks

    def membership(self, voters: tuple[int, ...] = (1, 2, 3)) -> Membership:
        return Membership(
            voters=tuple(ReplicaId(number) for number in voters),
            members=tuple(
                Member(
                    ReplicaId(number), self.stores[number].store_id, self.stores[number].incarnation
                )
                for number in voters
            ),
        )

    async def up(self, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        for store in self.stores.values():
            await store.up()
        self.introduce()
        for number in voters:
            await self.host(number).replicas.start(
                SHARD, ReplicaId(number), self.membership(voters), join=False
            )

    def introduce(self) -> None:
        """Tell all stores each other's addresses."""
        for store in self.stores.values():
            for other in self.stores.values():
                if store.host is not None and other.host is not None:
                    store.host.transport.set_address(other.store_id, other.host.transport.address)

    async def down(self) -> None:
        for store in self.stores.values():
            if store.host is not None:
                await store.down()
            assert not store.fatal, store.fatal

    def replica(self, number: int) -> Replica:
        """The replica of the shard that runs on a store."""
        return self.host(number).replicas.running[SHARD]

    def host(self, number: int) -> NodeHost:
        host = self.stores[number].host
        assert host is not None
        return host

    async def leader(self, shard: ShardId = SHARD, timeout_s: float = 60.0) -> int:
        """The number of the leader's store, once the leader has applied its first entry."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < deadline:
            for number, store in self.stores.items():
                if store.host is None:
                    continue
                info = store.host.replicas.info(shard)
                if info is not None and store.host.replicas.running[shard].ready_to_lead:
                    return number
            await asyncio.sleep(0.01)
        infos = [store.host and store.host.replicas.infos() for store in self.stores.values()]
        raise AssertionError(f"no leader: {infos}")


def request(
    records: int = 1,
    block: bytes = b"x",
    *,
    session: int = 0,
    sequence: int = 0,
    epoch: int = 0,
    expected: int = 0,
) -> AppendRequest:
    """An append of a real block: `block` is its first record, the others are empty."""
    return AppendRequest(
        session=SessionId(session) if session else NO_SESSION,
        sequence=sequence,
        writer_epoch=epoch,
        expected_lsn=Lsn(expected),
        record_count=records,
        block=encode_block([block, *[b""] * (records - 1)], 0),
        claim=CLAIM,
    )


def said(block: bytes) -> bytes:
    """The first record of a block."""
    return Block.parse(block).record(0)
