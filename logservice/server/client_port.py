"""ClientPort: the port that clients call, with everything between a socket and a service.

Theory of operation. This file alone puts the edge together: certificates (`tls`), connections,
gate, guard, lines of calls and answers (`edge`), the audit log (`audit`), and behind them the three
services and gRPC's health service (`services`).

Where tokens are configured there are two ports, one that asks for certificates and one that does
not; whose call it is decides the gate alone, not the port. Anybody can connect to the second one.
So it is a server of gRPC's own, with its own half of the connections and calls: what strangers do
there takes nothing of clients with certificates. And a call there is refused by its headers, before
its request is awaited.

The port is bound early, because a store's heartbeats carry its address; it answers only after
`start`. It stops in two steps: `leave` tells health checks that the store wants no new work, and
`stop` ends the calls that are under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from logservice_wire.v1 import admin_pb2_grpc, hakeeper_pb2_grpc, log_pb2_grpc

from logservice.config import Address, StoreConfig, tokens_address
from logservice.identity import Identity, IdentityKind
from logservice.ids import ShardId
from logservice.nodehost.assembly.directory_changes import DirectoryChanges
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.server.audit.log import AuditLog, audit_log_of
from logservice.server.edge import acceptor, wake_ups
from logservice.server.edge.answers import AnswerBudget
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.call_book import CallBook
from logservice.server.edge.call_lines import CallLines
from logservice.server.edge.channel_options import server_options
from logservice.server.edge.connections import ConnectionLimits, Connections
from logservice.server.edge.gate import NOTHING_REVOKED, Gate, Identities, calling
from logservice.server.edge.guard import GuardedServer
from logservice.server.edge.identity_book import IdentityBook
from logservice.server.edge.identity_limits import ConfiguredLimits, IdentityLimits
from logservice.server.edge.quota import QuotaLimits
from logservice.server.log_level import LogLevel
from logservice.server.measuring import Measuring
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.status import StoreStatus
from logservice.server.reload.reloads import Reloads
from logservice.server.services.admin_service import AdminService
from logservice.server.services.browsing import Browsing
from logservice.server.services.context import StoreContext
from logservice.server.services.hakeeper_service import HAKeeperService
from logservice.server.services.log_service import LogService
from logservice.server.tls.store_tls import StoreTls
from logservice.server.tokens.token_check import Tokens
from logservice.trace import Tracing

_CALLS_GRACE_S: Final = 1.0
"""How long a stop waits for calls under way."""


class ClientPort:
    """`bind`, `register`, `start`; then `leave` and `stop`."""

    def __init__(
        self,
        config: StoreConfig,
        connections_max: int,
        tls: StoreTls | None,
        tracing: Tracing,
        reloads: Reloads | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        """`connections_max`: what this process's descriptors allow. `tls` None: plaintext.
        `reloads`: what an administrator may ask for. `tokens` None: every client needs a
        certificate.
        """
        self._config = config
        self._tokens = tokens
        self._clients = min(connections_max, config.limits.connections_max)
        self._tls = tls
        self._tracing = tracing
        self._reloads = reloads
        self._context: StoreContext | None = None
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in stubs
        self._server: grpc.aio.Server | None = None
        self._token_server: grpc.aio.Server | None = None
        self._connections: Connections | None = None
        self.lines = CallLines()
        self.seen = IdentityBook()
        self.calls = CallBook()
        limits = config.limits
        self.answers = AnswerBudget(limits.answer_bytes_max, limits.identity_answer_bytes_max)
        self._log_level = LogLevel(config.logging.level)
        self.limits: IdentityLimits | None = None
        self.gate: Gate | None = None
        self.audit: AuditLog | None = None
        """None in plaintext."""
        self.browsing: Browsing | None = None
        """What the admin port shows to who may read; None before `register`."""

    def bind(self) -> str:
        """Take the port and begin to watch its connections; returns the address that clients use.

        Raises OSError.
        """
        listen = Address.parse(self._config.listen.client, "listen.client")
        server = self._server = self._new_server()
        wake_ups.warn(asyncio.get_running_loop())
        try:
            port = (
                server.add_secure_port(str(listen), self._tls.server_credentials())
                if self._tls is not None
                else server.add_insecure_port(str(listen))
            )
        except RuntimeError as error:
            raise OSError(f"cannot listen for clients on {listen}: {error}") from error
        ports = [port]
        if self._tokens is not None:
            self._token_server = self._new_server()
            ports.append(self._bind_for_tokens(self._token_server))
        self._connections = Connections(self._connection_limits(), *ports)
        self._connections.start()
        return self._config.listen.advertise_client or str(Address(listen.host, port))

    def _new_server(self) -> grpc.aio.Server:
        share = 1 if self._tokens is None else 2
        return acceptor.server_of(
            server_options(self._config, max(1, self._clients // share)),
            max(1, self._config.limits.concurrent_rpcs_max // share),
        )

    def _bind_for_tokens(self, server: grpc.aio.Server) -> int:
        """The port on which no certificate is asked for: gRPC asks all clients of a port, or
        none.
        """
        assert self._tls is not None  # `config.check`: there are no tokens without TLS
        address = tokens_address(self._config, self._config.listen.client)
        try:
            return server.add_secure_port(address, self._tls.server_credentials(asking=False))
        except RuntimeError as error:
            raise OSError(f"cannot listen for clients with tokens on {address}: {error}") from error

    def register(
        self,
        parts: StoreParts,
        status: Callable[[], StoreStatus],
        report: Callable[[bool], Awaitable[ClusterReport]],
        changes: DirectoryChanges,
        measuring: Measuring,
    ) -> None:
        """Put the services of `parts` behind the guard. The other four: see `AdminService`.

        Raises OSError when the audit log cannot be opened.
        """
        assert self._server is not None  # bound before
        limits = self._config.limits
        self.limits = IdentityLimits(self._configured_limits(), parts.host.quotas)
        self.gate = self._gate_of(parts, self.limits)
        self.limits.follow(self._take_limits)
        if self._config.tls.enabled:
            self.audit = audit_log_of(self._config, parts.directories[0].data.path)
            parts.host.requests.audit = self.audit
        budget = self.answers
        context = self._context = StoreContext(
            parts.host, limits, parts.book.client_address, calling.get, budget
        )
        log = LogService(context)
        hakeeper = HAKeeperService(
            parts.client,
            parts.lookups,
            lambda: context.limits,
            parts.access,
            context.caller,
            parts.settings.hakeeper_tick_s,
            lambda: self._config.security.admins,
            self.limits,
            self._clients_begin(),
        )
        admin = AdminService(
            context,
            status,
            report,
            parts.workers,
            self._log_level,
            self.seen,
            self._reloads,
            changes,
            measuring,
        )
        auditor = Auditor(self.audit, self.seen)
        self.browsing = Browsing(context, self.gate, auditor, parts.directory, self.seen)
        for served in (self._server, self._token_server):
            if served is None:
                continue
            server = GuardedServer(
                served,
                self.gate,
                auditor,
                self._tracing,
                self._connections,
                budget,
                self.lines,
                self.calls,
                self.seen,
                self._config.tokens.port_offset if served is self._token_server else 0,
            )
            log_pb2_grpc.add_LogServicer_to_server(log, server)
            hakeeper_pb2_grpc.add_HAKeeperServicer_to_server(hakeeper, server)
            admin_pb2_grpc.add_AdminServicer_to_server(admin, server)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    def _take_limits(self) -> None:
        """What identities may use has changed."""
        assert self.limits is not None
        assert self.gate is not None
        assert self._connections is not None
        self.gate.take_limits()
        self._connections.limit(self.limits.connections_of, self.limits.address_connections)

    def configure(self, config: StoreConfig) -> None:
        """Another configuration while the port serves; see `server.reload.effects` for what may be
        different in it. Nothing is done before `register`.
        """
        self._config = config
        self._log_level.configure(config.logging.level)
        if self._context is not None:
            self._context.limits = config.limits
        if self.audit is not None:
            self.audit.data = config.audit.data
        if self.gate is None or self.limits is None or self._connections is None:
            return
        self.gate.configure(frozenset(config.security.admins))
        self.limits.configure(self._configured_limits())
        self._connections.change(self._connection_limits())
        self._take_limits()

    async def start(self) -> None:
        """Answer calls."""
        assert self._server is not None  # bound before
        await self._server.start()
        if self._token_server is not None:
            await self._token_server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def leave(self) -> None:
        """Tell health checks that this store wants no new work."""
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """End every call: those that wait for their turn at once, those under way after a moment of
        grace.
        """
        self.lines.close()
        self._log_level.close()
        servers = [one for one in (self._server, self._token_server) if one is not None]
        await asyncio.gather(*(one.stop(_CALLS_GRACE_S) for one in servers))
        if self._connections is not None:
            self._connections.stop()

    def connections(self) -> dict[str, int]:
        """The connections of clients, as of the last look; nothing before the port is bound."""
        if self._connections is None:
            return {}
        counts = self._connections.counts
        return {"open": counts.open, "half_open": counts.half_open}

    @property
    def undelivered_bytes(self) -> int:
        """Bytes of requests that are not whole, as of the last look."""
        return self._connections.counts.waiting_bytes if self._connections is not None else 0

    @property
    def undelivered_cut(self) -> int:
        """Connections that were cut for such bytes."""
        return self._connections.counts.undelivered_cut if self._connections is not None else 0

    def alarms(self) -> list[str]:
        """What a person must look at."""
        return self.audit.alarms() if self.audit is not None else []

    def _connection_limits(self) -> ConnectionLimits:
        limits, clients = self._config.limits, self._clients
        identity, undelivered = limits.identity_connections_max, limits.undelivered_bytes_max
        undelivered_of_identity = limits.identity_undelivered_bytes_max
        if self._tls is None:
            # In plaintext everybody is the same identity, which may use the whole budget.
            identity, undelivered_of_identity = clients, undelivered
        return ConnectionLimits.of(
            clients,
            identity,
            limits.address_connections_max,
            undelivered_of_identity,
            undelivered,
        )

    def _configured_limits(self) -> ConfiguredLimits:
        limits = self._config.limits
        return ConfiguredLimits(
            QuotaLimits(
                limits.identity_rpcs_max,
                limits.identity_streams_max,
                limits.identity_requests_per_s,
                limits.identity_bytes_per_s,
            ),
            limits.identity_connections_max,
            limits.address_connections_max,
            self._clients,
            one_identity=self._tls is None,
            admins=frozenset(self._config.security.admins),
        )

    def _clients_begin(self) -> str:
        """How the identity of every client begins; "" in plaintext."""
        tls = self._config.tls
        if not tls.enabled:
            return ""
        cluster = self._config.store.cluster_id
        return Identity(tls.trust_domain, cluster, IdentityKind.CLIENT, "").uri

    def _gate_of(self, parts: StoreParts, limits: IdentityLimits) -> Gate:
        tls, used = self._config.tls, self._tls

        async def name_of(shard: ShardId) -> str | None:
            return await parts.lookups.name_of(shard, parts.access.list.version)

        identities = Identities(
            tls.trust_domain,
            self._config.store.cluster_id,
            frozenset(self._config.security.admins),
            used.client_revocations if used is not None else lambda: NOTHING_REVOKED,
            used.client_authorities if used is not None else None,
            self._tokens,
        )
        return Gate(
            parts.access,
            identities if tls.enabled else None,
            name_of,
            limits.of,
            parts.host.clock,
        )
