"""Store: the parts of a store process, put together, started and stopped in order.

Start: data directory (identity, lock) -> log storage (recovery) -> client port -> NodeHost with the
peer port and every replica found -> HAKeeper's part -> truncation worker -> gRPC. What can be
refused is refused before anything is served: a foreign or copied directory, a port in use. The
client port is bound early, because heartbeats say where it is, but answers only at the end.

Stop: not ready any more -> no new work -> leaderships handed away, so that the cluster does not
have to wait for an election -> calls under way finish -> NodeHost -> log storage.

INV-STORE-1: a failure of a background part that is no operating error ends the process (`crash`): a
store that looks alive but no longer beats or truncates is worse than one that is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from logservice_wire.errors import LogServiceError, NotReady
from logservice_wire.v1 import admin_pb2_grpc, hakeeper_pb2_grpc, log_pb2_grpc

from logservice.clock import SystemClock
from logservice.config import Address, StoreConfig
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import HAKEEPER_SHARD, ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.data_directory import DataDirectory
from logservice.logdb.leveldb_kv import LevelDbEngine
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.posix_vfs import PosixVfs
from logservice.nodehost.address_book import AddressBook
from logservice.nodehost.bootstrap import Bootstrapper, InitialMember
from logservice.nodehost.executor import ThreadExecutor
from logservice.nodehost.exports import ExportedSnapshots
from logservice.nodehost.hakeeper_client import HAKeeperClient
from logservice.nodehost.hakeeper_shell import FirstConfiguration, HAKeeperShell
from logservice.nodehost.heartbeats import DiskUse, HeartbeatSender, StoreDescription
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.log_meter import LogDbMeter
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.transport.seam import PeerIdentity
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.nodehost.truncation import TruncationWorker
from logservice.raft.ready import Role
from logservice.rsm.log_rsm import LogRsm
from logservice.server.admin_service import AdminService
from logservice.server.context import StoreContext
from logservice.server.crash import crash
from logservice.server.hakeeper_service import HAKeeperService
from logservice.server.limits import SERVER_OPTIONS
from logservice.server.log_service import LogService
from logservice.server.schedule import TruncationSchedule
from logservice.state_machine import StateMachine

_HAND_OVER_S: Final = 3.0
"""For handing leaderships away at a stop; what did not work by then is left to an election."""

_CALLS_GRACE_S: Final = 1.0
"""For calls under way at a stop."""

_BOOTSTRAP_ROUND_S: Final = 10.0
"""How often a first start that waits for other members says so."""

logger = logging.getLogger(__name__)


class Store:
    """One store process's parts. `start` once, then `stop` once, also after a failed start."""

    def __init__(self, config: StoreConfig) -> None:
        """Nothing is opened before `start`."""
        self._config = config
        self._vfs = PosixVfs()
        self._clock = SystemClock()
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in stubs
        self._tasks: list[asyncio.Task[None]] = []
        self._closers: list[Callable[[], None]] = []
        self._host: NodeHost | None = None
        self._schedule: TruncationSchedule | None = None
        self.client_address = ""
        self.peer_address = ""

    async def start(self) -> None:
        """Start and serve.

        Raises InvalidArgument, WrongCluster (data directory), OSError (ports).
        """
        config = self._config
        directory, logdb = self._open_storage()
        exports, meter = self._open_exports(logdb)
        self._bind_client_port()
        host = self._host = self._make_host(directory, logdb, exports)
        book, members = self._open_address_book()
        client = HAKeeperClient(host, book)
        client.serve()
        bootstrapper = Bootstrapper(host, book, members)
        bootstrapper.serve()
        await host.start()
        self.peer_address = config.listen.advertise_peer or host.transport.address

        export_executor = ThreadExecutor("exports")
        self._closers.append(export_executor.shutdown)
        worker = TruncationWorker(host, exports, meter, host.collect_garbage, export_executor)
        self._schedule = TruncationSchedule(worker, config.truncation.interval_s, crash)
        self._schedule.start()
        self._serve(host, client, book, worker, exports)
        assert self._server is not None
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        self._run_hakeeper(host, client, book, bootstrapper, logdb)

    async def stop(self) -> None:
        """Stop gracefully; see the module's text."""
        await self._health.enter_graceful_shutdown()
        if self._schedule is not None:
            await self._schedule.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._host is not None:
            await self._hand_over(self._host)
        if self._server is not None:
            await self._server.stop(_CALLS_GRACE_S)
        if self._host is not None:
            await self._host.stop()
        for close in reversed(self._closers):
            close()

    # --- parts ------------------------------------------------------------------------------------

    def _open_storage(self) -> tuple[DataDirectory, LogDb]:
        store, storage = self._config.store, self._config.storage
        directory = DataDirectory.open(
            store.data_dir,
            vfs=self._vfs,
            cluster_id=ClusterId(store.cluster_id),
            store_id=StoreId(store.store_id),
        )
        self._closers.append(directory.close)
        logdb = LogDb.open(
            store.data_dir,
            identity=directory,
            vfs=self._vfs,
            kv=LevelDbEngine(self._vfs),
            options=LogDbOptions(
                segment_bytes=storage.segment_bytes, ballast_bytes=storage.ballast_bytes
            ),
        )
        self._closers.append(logdb.close)
        logger.info("log storage is open: %s", logdb.recovery_report)
        return directory, logdb

    def _open_exports(self, logdb: LogDb) -> tuple[ExportedSnapshots, LogDbMeter]:
        meter = LogDbMeter(logdb)
        exports = ExportedSnapshots(
            self._vfs,
            os.path.join(self._config.store.data_dir, "exports"),
            meter,
            count_max=self._config.truncation.exports_max,
        )
        return exports, meter

    def _bind_client_port(self) -> None:
        listen = Address.parse(self._config.listen.client, "listen.client")
        self._server = grpc.aio.server(
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=self._config.limits.concurrent_rpcs_max,
        )
        try:
            port = self._server.add_insecure_port(str(listen))
        except RuntimeError as error:
            raise OSError(f"cannot listen for clients on {listen}: {error}") from error
        bound = str(Address(listen.host, port))
        self.client_address = self._config.listen.advertise_client or bound

    def _make_host(
        self, directory: DataDirectory, logdb: LogDb, exports: ExportedSnapshots
    ) -> NodeHost:
        config = self._config
        identity = PeerIdentity(
            directory.cluster_id, directory.store_id, directory.incarnation, secrets.randbits(63)
        )
        listen = Address.parse(config.listen.peer, "listen.peer")
        advertised = config.listen.advertise_peer
        fsync_executor = ThreadExecutor("fsync")
        self._closers.append(fsync_executor.shutdown)
        return NodeHost(
            NodeHostOptions(
                tick_ms=config.raft.tick_ms,
                heartbeat_ticks=config.raft.heartbeat_ticks,
                election_ticks=config.raft.election_ticks,
            ),
            identity=identity,
            logdb=logdb,
            transport=TcpTransport(
                identity,
                listen.host,
                listen.port,
                advertise_host=(
                    Address.parse(advertised, "listen.advertise_peer").host if advertised else None
                ),
            ),
            executor=fsync_executor,
            state_machines=_state_machine,
            clock=self._clock,
            on_fatal=crash,
            newest_export=exports.newest,
            drop_exports=exports.remove_replica,
        )

    def _open_address_book(self) -> tuple[AddressBook, list[InitialMember]]:
        members = [
            InitialMember(StoreId(member.store_id), member.peer_address)
            for member in self._config.bootstrap.hakeeper_members
        ]
        seeds = {member.store_id: member.peer_address for member in members}
        path = os.path.join(self._config.store.data_dir, "ADDRESSES")
        return AddressBook(self._vfs, path, seeds), members

    def _serve(
        self,
        host: NodeHost,
        client: HAKeeperClient,
        book: AddressBook,
        worker: TruncationWorker,
        exports: ExportedSnapshots,
    ) -> None:
        server, limits = self._server, self._config.limits
        context = StoreContext(host, limits, book.client_address)
        log_pb2_grpc.add_LogServicer_to_server(LogService(context), server)
        hakeeper_pb2_grpc.add_HAKeeperServicer_to_server(HAKeeperService(client, limits), server)
        admin = AdminService(context, lambda: worker.counts, exports.count)
        admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    def _run_hakeeper(
        self,
        host: NodeHost,
        client: HAKeeperClient,
        book: AddressBook,
        bootstrapper: Bootstrapper,
        logdb: LogDb,
    ) -> None:
        config = self._config

        def disk_use() -> DiskUse:
            stats = logdb.stats()
            return DiskUse(stats.segment_bytes, stats.free_bytes)

        description = StoreDescription(
            config.store.host_label, self.peer_address, self.client_address, {}
        )
        first = FirstConfiguration(
            ClusterId(config.store.cluster_id),
            config.bootstrap.log_shards,
            config.bootstrap.replicas,
            config.hakeeper.store_timeout_s,
        )
        shell = HAKeeperShell(host, first, config.hakeeper.tick_ms / 1000)
        heartbeats = HeartbeatSender(
            host, client, book, lambda: description, disk_use, config.hakeeper.heartbeat_interval_s
        )
        self._background(shell.run)
        self._background(heartbeats.run)
        self._background(lambda: _bootstrap(bootstrapper))

    def _background(self, work: Callable[[], Awaitable[None]]) -> None:
        """INV-STORE-1."""

        async def guarded() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - reported, and the process ends
                crash(error)

        self._tasks.append(asyncio.create_task(guarded()))

    # --- stopping ---------------------------------------------------------------------------------

    async def _hand_over(self, host: NodeHost) -> None:
        async def one(info: ReplicaInfo, target: ReplicaId) -> None:
            with contextlib.suppress(LogServiceError):
                await host.transfer_leadership(info.shard, target, _HAND_OVER_S)

        leading = [info for info in host.replica_infos() if info.role is Role.LEADER]
        moves = [(info, target) for info in leading if (target := _successor(info)) is not None]
        await asyncio.gather(*(one(info, target) for info, target in moves))


async def _bootstrap(bootstrapper: Bootstrapper) -> None:
    """Take part in the cluster's first start, however long the other members take."""
    while True:
        try:
            outcome = await bootstrapper.run(_BOOTSTRAP_ROUND_S)
        except NotReady as error:
            logger.warning("the first start waits: %s", error.message)
            continue
        logger.info("first start: %s", outcome.value)
        return


def _state_machine(shard: ShardId) -> StateMachine:
    return HAKeeperRsm() if shard == HAKEEPER_SHARD else LogRsm()


def _successor(info: ReplicaInfo) -> ReplicaId | None:
    """The voter that is active and furthest along; None when there is none."""
    match = dict(info.match)
    candidates = [
        replica
        for replica in info.membership.voters
        if replica != info.replica and replica in info.recently_active
    ]
    return max(candidates, key=lambda replica: match.get(replica, 0), default=None)
