"""Store: the parts of a store process, put together, started and stopped in order.

Start: certificates -> data directory (identity, lock) -> log storage (recovery) -> client port ->
NodeHost with the peer port and every replica found -> HAKeeper's part -> truncation worker -> gRPC.
What can be refused is refused before anything is served: certificates that do not fit, a foreign or
copied directory, a port in use. The client port is bound early, because heartbeats say where it is,
but answers only at the end.

Stop: not ready any more -> no new work -> leaderships handed away, so that the cluster does not
have to wait for an election -> calls under way finish -> NodeHost -> log storage.

INV-STORE-1: a failure of a background part that is no operating error ends the process (`crash`): a
store that looks alive but no longer beats or truncates is worse than one that is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from logservice_wire.errors import LogServiceError
from logservice_wire.v1 import admin_pb2_grpc, hakeeper_pb2_grpc, log_pb2_grpc

from logservice import bounds
from logservice.clock import SystemClock
from logservice.config import Address, StoreConfig
from logservice.hakeeper.proposals import Joining
from logservice.ids import ClusterId, ReplicaId, ShardId, StoreId
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.options import LogDbOptions
from logservice.nodehost.agent.bootstrap import InitialMember
from logservice.nodehost.agent.hakeeper_shell import FirstConfiguration
from logservice.nodehost.agent.heartbeats import StoreDescription
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams, StoreSettings
from logservice.nodehost.info import ReplicaInfo
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.options import NodeHostOptions
from logservice.nodehost.threads.executor import ThreadExecutor
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.raft.ready import Role
from logservice.server import descriptors
from logservice.server.crash import crash
from logservice.server.errors import refused
from logservice.server.guard.answers import AnswerBudget
from logservice.server.guard.connections import ConnectionLimits, Connections
from logservice.server.guard.guard import Auditor, GuardedServer
from logservice.server.limits import server_options
from logservice.server.monitor.monitor import Monitor
from logservice.server.schedule import TruncationSchedule
from logservice.server.security.audit import AuditLog
from logservice.server.security.gate import NOTHING_REVOKED, Gate, Identities, calling
from logservice.server.security.quota import QuotaLimits
from logservice.server.security.tls import StoreTls
from logservice.server.services.admin_service import AdminService
from logservice.server.services.context import StoreContext
from logservice.server.services.hakeeper_service import HAKeeperService
from logservice.server.services.log_service import LogService
from logservice.server.telemetry import OpenTelemetry, tracing_of
from logservice.trace import Tracing

_HAND_OVER_S: Final = 3.0
"""For handing leaderships away at a stop; what did not work by then is left to an election."""

_CALLS_GRACE_S: Final = 1.0
"""For calls under way at a stop."""

logger = logging.getLogger(__name__)


class Store:
    """One store process's parts. `start` once, then `stop` once, also after a failed start."""

    def __init__(self, config: StoreConfig, tracing: Tracing | None = None) -> None:
        """Nothing is opened before `start`. `tracing` None: as the configuration says."""
        self._config = config
        self._tracing = tracing_of(config) if tracing is None else tracing
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in stubs
        self._tasks: list[asyncio.Task[None]] = []
        self._parts: StoreParts | None = None
        self._schedules: list[TruncationSchedule] = []
        self._tls: StoreTls | None = None
        self._renewals: set[asyncio.Task[None]] = set()
        self._monitor: Monitor | None = None
        self._transport: TcpTransport | None = None
        self._shares: descriptors.Shares | None = None
        self._connections: Connections | None = None
        self.gate: Gate | None = None
        self.audit: AuditLog | None = None
        self.client_address = ""
        self.peer_address = ""

    @property
    def admin_address(self) -> str:
        """Where operators reach the admin port; empty before `start`."""
        return self._monitor.reporter.admin_address if self._monitor is not None else ""

    async def start(self) -> None:
        """Start and serve.

        Raises InvalidArgument, WrongCluster (data directory), OSError (ports), NotReady (too few
        descriptors).
        """
        directories = len(self._config.store.data_directories)
        self._shares = descriptors.share(descriptors.limit(), directories)
        if self._config.tls.enabled:
            self._tls = StoreTls(self._config, self._renew_peer_tls)
        monitor = self._monitor = Monitor(self._config, lambda: refused)
        monitor.start()
        parts = self._parts = StoreParts(_settings(self._config), self._seams())
        assert self._transport is not None  # made with the parts
        transport = self._transport
        monitor.attach(parts, transport.stats, self._tls, self.alarms)
        self._bind_client_port()
        await parts.start()
        self.peer_address = self._config.listen.advertise_peer or parts.host.transport.address
        interval_s = self._config.truncation.interval_s
        # One for each data directory: a stuck disk must not keep the others from being freed.
        self._schedules = [
            TruncationSchedule(worker, interval_s, crash) for worker in parts.workers
        ]
        for schedule in self._schedules:
            schedule.start()
        self._serve(parts, monitor)
        assert self._server is not None
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)
        description = StoreDescription(
            self._config.store.host_label, self.peer_address, self.client_address, {}
        )
        for work in parts.background(lambda: description):
            self._background(work)
        self._background(monitor.serving(self.client_address, self.peer_address))
        if self._tls is not None:
            self._background(self._tls.run)

    def alarms(self) -> list[str]:
        """What a person must look at; for health and logs. Empty when all is well."""
        return [
            *(self._tls.alarms() if self._tls is not None else ()),
            *(self._transport.alarms() if self._transport is not None else ()),
            *(self.audit.alarms() if self.audit is not None else ()),
            *(self._shares.alarms() if self._shares is not None else ()),
        ]

    async def stop(self) -> None:
        """Stop gracefully; see the module's text."""
        await self._health.enter_graceful_shutdown()
        if self._monitor is not None:
            self._monitor.stopping()
        await asyncio.gather(*(schedule.stop() for schedule in self._schedules))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._parts is not None:
            await self._hand_over(self._parts.host)
        if self._server is not None:
            await self._server.stop(_CALLS_GRACE_S)
        if self._connections is not None:
            self._connections.stop()
        if self._parts is not None:
            await self._parts.stop()
            self._parts.close()
        if self.audit is not None:
            self.audit.close()
        if isinstance(self._tracing, OpenTelemetry):
            await asyncio.to_thread(self._tracing.close)
        if self._monitor is not None:
            self._monitor.stop()

    # --- parts ------------------------------------------------------------------------------------

    def _seams(self) -> StoreSeams:
        vfs = PosixVfs(bounds.DISK_SPARE_DESCRIPTORS)
        return StoreSeams(
            disk=lambda path: DiskSeams(
                vfs,
                LevelDbEngine(vfs),
                ThreadExecutor("fsync"),
                ThreadExecutor("reads"),
                ThreadExecutor("exports"),
                ThreadExecutor("removals"),
            ),
            clock=SystemClock(),
            make_transport=self._make_transport,
            draw_id=lambda: secrets.randbits(63),
            rng=random.Random(),
            on_fatal=crash,
            tracing=self._tracing,
        )

    def _make_transport(self, identity: PeerIdentity) -> Transport:
        listen = Address.parse(self._config.listen.peer, "listen.peer")
        advertised = self._config.listen.advertise_peer
        self._transport = TcpTransport(
            identity,
            listen.host,
            listen.port,
            advertise_host=(
                Address.parse(advertised, "listen.advertise_peer").host if advertised else None
            ),
            tls=self._tls,
        )
        return self._transport

    def _renew_peer_tls(self) -> None:
        if self._parts is None:
            return
        transport = self._parts.host.transport
        assert isinstance(transport, TcpTransport)
        task = asyncio.get_running_loop().create_task(transport.renew_tls())
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    def _bind_client_port(self) -> None:
        listen = Address.parse(self._config.listen.client, "listen.client")
        assert self._shares is not None  # made at the start
        limits = self._config.limits
        clients = min(self._shares.clients, limits.connections_max)
        self._server = grpc.aio.server(
            options=server_options(self._config, clients),
            maximum_concurrent_rpcs=limits.concurrent_rpcs_max,
        )
        try:
            port = (
                self._server.add_secure_port(str(listen), self._tls.server_credentials())
                if self._tls is not None
                else self._server.add_insecure_port(str(listen))
            )
        except RuntimeError as error:
            raise OSError(f"cannot listen for clients on {listen}: {error}") from error
        bound = str(Address(listen.host, port))
        self.client_address = self._config.listen.advertise_client or bound
        # In plaintext everybody is the same identity.
        identity, undelivered = limits.identity_connections_max, limits.undelivered_bytes_max
        undelivered_of_identity = limits.identity_undelivered_bytes_max
        if self._tls is None:
            identity, undelivered_of_identity = clients, undelivered
        self._connections = Connections(
            port,
            ConnectionLimits.of(
                clients, identity, limits.address_connections_max,
                undelivered_of_identity, undelivered,
            ),
        )  # fmt: skip
        self._connections.start()

    def _serve(self, parts: StoreParts, monitor: Monitor) -> None:
        assert self._server is not None
        limits = self._config.limits
        self.gate = _gate(self._config, parts, self._tls)
        if self._config.tls.enabled:
            self.audit = _audit(self._config, parts.directories[0].data.path)
            parts.host.requests.audit = self.audit
        budget = AnswerBudget(limits.answer_bytes_max, limits.identity_answer_bytes_max)
        server = GuardedServer(
            self._server, self.gate, Auditor(self.audit), self._tracing, self._connections, budget
        )
        context = StoreContext(parts.host, limits, parts.book.client_address, calling.get, budget)
        log_pb2_grpc.add_LogServicer_to_server(LogService(context), server)
        hakeeper_pb2_grpc.add_HAKeeperServicer_to_server(
            HAKeeperService(parts.client, limits, parts.access, context.caller), server
        )
        admin = AdminService(context, monitor.reporter.status, monitor.report)
        admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

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


def _audit(config: StoreConfig, data_directory: str) -> AuditLog:
    """Opened, in the first data directory that works unless told otherwise; raises OSError."""
    section = config.audit
    log = AuditLog(
        Path(section.directory or data_directory) / ("" if section.directory else "audit"),
        config.store.store_id,
        data=section.data,
        file_bytes_max=section.file_bytes_max,
        files_max=section.files_max,
        identity_bytes_per_s=section.identity_bytes_per_s,
    )
    log.open()
    return log


def _gate(config: StoreConfig, parts: StoreParts, used: StoreTls | None) -> Gate:
    limits, tls = config.limits, config.tls

    async def name_of(shard: ShardId) -> str | None:
        view = await parts.client.shard(shard, bounds.HAKEEPER_ATTEMPT_TIMEOUT_S, stale=True)
        return view.name if view is not None else None

    identities = Identities(
        tls.trust_domain,
        config.store.cluster_id,
        frozenset(config.security.admins),
        used.client_revocations if used is not None else lambda: NOTHING_REVOKED,
        used.client_authorities if used is not None else None,
    )
    return Gate(
        parts.access,
        identities if tls.enabled else None,
        name_of,
        QuotaLimits(
            limits.identity_rpcs_max,
            limits.identity_streams_max,
            limits.identity_requests_per_s,
            limits.identity_bytes_per_s,
        ),
    )


def _settings(config: StoreConfig) -> StoreSettings:
    return StoreSettings(
        cluster_id=ClusterId(config.store.cluster_id),
        store_id=StoreId(config.store.store_id),
        data_directories=config.store.data_directories,
        members=[
            InitialMember(StoreId(member.store_id), member.peer_address)
            for member in config.bootstrap.hakeeper_members
        ],
        first=FirstConfiguration(
            ClusterId(config.store.cluster_id),
            config.bootstrap.log_shards,
            config.bootstrap.replicas,
            config.hakeeper.store_timeout_s,
            Joining(config.hakeeper.joining),
        ),
        options=NodeHostOptions(
            tick_ms=config.raft.tick_ms,
            heartbeat_ticks=config.raft.heartbeat_ticks,
            election_ticks=config.raft.election_ticks,
            quiesce_ticks=config.raft.quiesce_ticks,
            lease_read=config.raft.lease_read,
        ),
        logdb=LogDbOptions(
            segment_bytes=config.storage.segment_bytes,
            ballast_bytes=config.storage.ballast_bytes,
            reserve_bytes=config.storage.reserve_bytes,
        ),
        exports_max=config.truncation.exports_max,
        scrub_interval_s=config.storage.scrub_interval_s,
        scrub_bytes_per_s=config.storage.scrub_bytes_per_s,
        compare_interval_s=config.storage.compare_interval_s,
        hakeeper_tick_s=config.hakeeper.tick_ms / 1000,
        heartbeat_interval_s=config.hakeeper.heartbeat_interval_s,
    )


def _successor(info: ReplicaInfo) -> ReplicaId | None:
    """The voter that is active and furthest along; None when there is none."""
    match = dict(info.match)
    candidates = [
        replica
        for replica in info.membership.voters
        if replica != info.replica and replica in info.recently_active
    ]
    return max(candidates, key=lambda replica: match.get(replica, 0), default=None)
