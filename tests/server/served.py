"""Stores in this process behind real gRPC: real NodeHosts, log storage and state machines; memory
for disks and peers, so that a shard is up in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any

import grpc
import grpc.aio
from logservice_wire.block import encode_block
from logservice_wire.errors import LogServiceError, NotReady
from logservice_wire.status import STATUS_DETAILS_KEY, from_status_details
from logservice_wire.v1 import admin_pb2_grpc, log_pb2, log_pb2_grpc

from logservice.bounds import LOGDB_ENTRY_CACHE_BYTES, LOGDB_SEGMENT_BYTES_MIN
from logservice.config import LimitsSection
from logservice.ids import ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.options import LogDbOptions
from logservice.membership import Member, Membership
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.disks.executor import InlineExecutor
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.memory import MemoryNetwork, MemoryTransport
from logservice.nodehost.truncation.worker import TruncationWorker
from logservice.owner import ANONYMOUS
from logservice.rsm.log_rsm import LogRsm
from logservice.server.edge.answers import AnswerBudget
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.channel_options import SERVER_OPTIONS
from logservice.server.edge.gate import Gate
from logservice.server.edge.guard import GuardedServer
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.services.admin_service import AdminService
from logservice.server.services.context import StoreContext
from logservice.server.services.log_service import LogService
from logservice.versions import NEWEST
from tests.nodehost.assembled import assemble

LIMITS = LimitsSection()
OPTIONS = NodeHostOptions(tick_ms=10, heartbeat_ticks=2, election_ticks=10)


def block(*records: bytes, timestamp_us: int = 1) -> bytes:
    return encode_block(records or (b"x",), timestamp_us)


def typed(error: grpc.aio.AioRpcError) -> LogServiceError:
    """The LogServiceError that the status carries; fails the test when there is none."""
    details: Any = dict(error.trailing_metadata() or ())
    found = from_status_details(details[STATUS_DETAILS_KEY])
    assert found is not None
    assert error.code().name == found.status
    return found


@dataclass(slots=True)
class ServedStore:
    """One store: host, gRPC server and stubs."""

    host: NodeHost
    server: grpc.aio.Server
    channel: grpc.aio.Channel
    address: str
    context: StoreContext
    workers: Sequence[TruncationWorker]
    log: Any = field(init=False)
    admin: Any = field(init=False)

    def __post_init__(self) -> None:
        self.log = log_pb2_grpc.LogStub(self.channel)
        self.admin = admin_pb2_grpc.AdminStub(self.channel)

    @property
    def answers(self) -> AnswerBudget:
        """What waits for the clients of this store."""
        return self.context.answers


class Served:
    """`async with Served(3) as served`: `served.stores`, and `served.new_shard()`."""

    def __init__(
        self,
        count: int,
        limits: LimitsSection = LIMITS,
        cluster_version: int = NEWEST,
        entry_cache_bytes: int = LOGDB_ENTRY_CACHE_BYTES,
        directories: Sequence[str] = ("/data",),
        disk: Callable[[str], DiskSeams] | None = None,
    ) -> None:
        """`disk`: of a data directory of each store; without it, its files are in memory."""
        self._count = count
        self._directories = directories
        self._disk = disk or (lambda _: memory_disk())
        self._entry_cache_bytes = entry_cache_bytes
        self._limits = limits
        self._cluster_version = cluster_version
        self._next_shard = 1
        self.stores: list[ServedStore] = []
        self.fatal: list[BaseException] = []
        self.caller = ANONYMOUS
        """Whose calls all of these are: no certificates here."""
        self.log_service: Callable[[StoreContext], LogService] = LogService
        """Of stores that begin to listen."""

    async def __aenter__(self) -> Served:
        network = MemoryNetwork()
        for number in range(1, self._count + 1):
            self.stores.append(await self._start(number, network))
        for one in self.stores:
            for other in self.stores:
                if one is not other:
                    one.host.transport.set_address(
                        other.host.identity.store_id, other.host.transport.address
                    )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for store in self.stores:
            await store.channel.close(None)
            await store.server.stop(0)
            await store.host.stop()
        assert self.fatal == []

    async def _start(self, number: int, network: MemoryNetwork) -> ServedStore:
        # An incarnation for each data directory, then the id of its process.
        directories = len(self._directories)
        incarnations = (1000 * place + 101 + 2 * number for place in range(directories))
        drawn = iter((*incarnations, 7000 + number))
        parts = assemble(
            StoreId(f"s{number}"),
            self._directories,
            lambda identity: MemoryTransport(identity, network),
            cluster_id=ClusterId("c"),
            options=OPTIONS,
            on_fatal=self.fatal.append,
            disk=self._disk,
            logdb=LogDbOptions(
                segment_bytes=LOGDB_SEGMENT_BYTES_MIN,
                ballast_bytes=0,
                entry_cache_bytes=self._entry_cache_bytes,
            ),
            draw_id=lambda: next(drawn),
            state_machines=lambda _: LogRsm(),
        )
        host = parts.host
        host.cluster_version.learn(self._cluster_version)
        host.cluster_version.settled = True
        await host.start()
        context = StoreContext(
            host,
            self._limits,
            lambda store: f"client-of-{store}",
            lambda: self.caller,
            AnswerBudget(self._limits.answer_bytes_max, self._limits.identity_answer_bytes_max),
        )
        server, address = await self._listen(context, parts.workers, "127.0.0.1:0")
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
        channel = grpc.aio.insecure_channel(address, options)
        return ServedStore(host, server, channel, address, context, parts.workers)

    async def _listen(
        self, context: StoreContext, workers: Sequence[TruncationWorker], address: str
    ) -> tuple[grpc.aio.Server, str]:
        server = grpc.aio.server(options=SERVER_OPTIONS)
        # Without identities the gate lets everybody in, and nothing is asked of the list.
        gate = Gate(SimpleNamespace(list=None, too_old=False), None, None)  # type: ignore[arg-type]
        guarded = GuardedServer(server, gate, Auditor(None), budget=context.answers)
        log_pb2_grpc.add_LogServicer_to_server(self.log_service(context), guarded)
        admin_pb2_grpc.add_AdminServicer_to_server(
            AdminService(context, StoreStatus, no_report, workers), guarded
        )
        port = server.add_insecure_port(address)
        await server.start()
        return server, f"127.0.0.1:{port}"

    async def listen_again(self, store: ServedStore) -> None:
        """Cut every connection of a store, and serve at its address with what is `log_service`
        now.
        """
        await store.server.stop(0)
        store.server, _ = await self._listen(store.context, store.workers, store.address)

    async def new_shard(self, directory: int = 0) -> int:
        """A shard with a replica on every store, in that data directory; returns once it has a
        leader that decides.
        """
        shard = self._next_shard
        self._next_shard += 1
        members = tuple(
            Member(
                ReplicaId(number),
                store.host.identity.store_id,
                store.host.identity.incarnations[directory],
            )
            for number, store in enumerate(self.stores, 1)
        )
        membership = Membership(
            voters=tuple(member.replica_id for member in members), members=members
        )
        for member, store in zip(members, self.stores, strict=True):
            await store.host.replicas.start(
                ShardId(shard),
                member.replica_id,
                membership,
                join=False,
                incarnation=member.incarnation,
            )
        for store in self.stores:
            await store.log.Connect(log_pb2.ConnectRequest(shard_id=shard))
        return shard

    def leader(self, shard: int) -> ServedStore:
        for store in self.stores:
            replica = store.host.replicas.running.get(ShardId(shard))
            if replica is not None and replica.leader_store == replica.store_id:
                return store
        raise NotReady("no leader")

    def followers(self, shard: int) -> list[ServedStore]:
        leader = self.leader(shard)
        return [store for store in self.stores if store is not leader]


def memory_disk() -> DiskSeams:
    """Files in memory, and no thread."""
    inline = [InlineExecutor() for _ in range(4)]
    return DiskSeams(MemoryVfs(), MemoryKvEngine(), *inline)


async def no_report() -> ClusterReport:
    raise NotReady("there is no HAKeeper here")
