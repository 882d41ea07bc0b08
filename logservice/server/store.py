"""Store: the parts of a store process, put together, started and stopped in order.

Start: certificates -> keys of storage -> data directory (identity, lock) -> log storage (recovery)
-> client port -> NodeHost with the peer port and every replica found -> HAKeeper's part ->
truncation worker -> gRPC.
What can be refused is refused before anything is served: certificates that do not fit, a foreign or
copied directory, a port in use. The client port is bound early, because heartbeats say where it is,
but answers only at the end.

Stop: readiness is withdrawn -> new work is refused -> leaderships are handed away, so that the
cluster does not have to wait for an election -> calls under way finish -> NodeHost -> log storage.

INV-STORE-1: when a background part fails with anything but an operating error, the process ends
(`crash`): a store that looks alive but sends no heartbeats or truncates nothing is worse than one
that is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from logservice_wire.errors import LogServiceError

from logservice import bounds
from logservice.background import begin_task
from logservice.clock import SystemClock
from logservice.config import Address, StoreConfig
from logservice.ids import HAKEEPER_SHARD, NO_REPLICA, ReplicaId, ShardId
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.nodehost.agent.heartbeats import StoreDescription
from logservice.nodehost.assembly.directory_changes import DirectoryChanges
from logservice.nodehost.assembly.store_directory import DiskSeams
from logservice.nodehost.assembly.store_parts import StoreParts, StoreSeams
from logservice.nodehost.node_host import NodeHost
from logservice.nodehost.transport.seam import PeerIdentity, Transport
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.raft.ready import Role
from logservice.sealing_keys import keys_source
from logservice.server import descriptors, machine
from logservice.server.archiver_process import ArchiverProcess, archiver_command
from logservice.server.client_port import ClientPort
from logservice.server.crash import crash
from logservice.server.directory_company import DirectoryCompany
from logservice.server.edge.call import refused
from logservice.server.edge.gate import Gate
from logservice.server.measuring import Measuring
from logservice.server.memory_figures import MemoryFigures
from logservice.server.monitor.monitor import Monitor
from logservice.server.monitor.own.loop_turns import LoopTurns
from logservice.server.reload.reloads import Reloads
from logservice.server.services import truncation_standing
from logservice.server.settings import settings_of
from logservice.server.storage_keys import StorageKeys
from logservice.server.takers import take
from logservice.server.telemetry import OpenTelemetry, tracing_of
from logservice.server.tls.admin_tls import AdminTls
from logservice.server.tls.store_tls import StoreTls
from logservice.server.tokens.issuer_keys import IssuerKeys
from logservice.server.tokens.token_check import Tokens
from logservice.trace import Tracing

_HAND_OVER_S: Final = 3.0
"""How long a stop takes to hand leaderships away; what is left by then needs an election."""

_RENEW_AGAIN_S: Final = 1.0
"""After a renewal for which there was no descriptor."""

logger = logging.getLogger(__name__)


async def _renewed(transport: TcpTransport) -> None:
    """Have the peer port show the certificates that there are now. For want of a descriptor that
    may have to wait; the old ones stay meanwhile.
    """
    while True:
        try:
            await transport.renew_tls()
        except OSError as error:
            logger.warning("the peer port shows its old certificate: %s", error)
            await asyncio.sleep(_RENEW_AGAIN_S)
        else:
            return


class Store:
    """One store process's parts. `start` once, then `stop` once, also after a failed start."""

    def __init__(
        self,
        config: StoreConfig,
        tracing: Tracing | None = None,
        turns: LoopTurns | None = None,
        read: Callable[[], StoreConfig] | None = None,
    ) -> None:
        """Nothing is opened before `start`. With `tracing` None the configuration decides. `turns`:
        of the loop it will run on; with None nobody counts them. `read` reads the file that
        `config` is from; None: there is none, and `config` is all there is.
        """
        self.reloads = Reloads(config, read)
        """Asks for another configuration; what is asked for before `start` has ended waits."""
        self._config = config
        self._read = read or (lambda: config)
        self._turns = turns or LoopTurns()
        self._tracing = tracing_of(config) if tracing is None else tracing
        self._tasks: list[asyncio.Task[None]] = []
        self._parts: StoreParts | None = None
        self._company: DirectoryCompany | None = None
        self._changes: DirectoryChanges | None = None
        self._tls: StoreTls | None = None
        self._keys: StorageKeys | None = None
        self._token_keys: IssuerKeys | None = None
        self._admin_tls: AdminTls | None = None
        self._renewals: set[asyncio.Task[None]] = set()
        self._monitor: Monitor | None = None
        self._transport: TcpTransport | None = None
        self._shares: descriptors.Shares | None = None
        self._memory: MemoryFigures | None = None
        self._client_port: ClientPort | None = None
        self._archiver: ArchiverProcess | None = None
        self.client_address = ""
        self.peer_address = ""

    @property
    def gate(self) -> Gate | None:
        """Who decides about calls; None before `start`."""
        return self._client_port.gate if self._client_port is not None else None

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
        self._read_certificates()
        tokens = await self._follow_tokens()
        port = self._client_port = ClientPort(
            self._config, self._shares.clients, self._tls, self._tracing, self.reloads, tokens
        )
        monitor = self._monitor = self._admin_port(port)
        monitor.start()
        storage = self._config.storage
        if (read := keys_source(storage.keys_file, storage.keys_command, "storage.")) is not None:
            self._keys = StorageKeys(read, self._config.storage.keys_interval_s)
        keys = await self._keys.first() if self._keys is not None else None
        parts = self._parts = StoreParts(settings_of(self._config, keys), self._seams())
        assert self._transport is not None  # made with the parts
        transport = self._transport
        memory = self._memory = MemoryFigures(self._config, parts, transport, port, monitor.answers)
        monitor.attach(
            parts,
            transport.stats,
            self._tls,
            self.alarms,
            port.lines.figures,
            memory.figures,
            port.calls,
            tokens.figures if tokens is not None else dict,
            port.connections,
            lambda shard: truncation_standing.of(parts.host, parts.workers, shard),
            lambda: self._company.visit_age_s if self._company is not None else 0.0,
        )
        self.client_address = port.bind()
        await parts.start()
        self.peer_address = self._config.listen.advertise_peer or parts.host.transport.address
        company = self._company = DirectoryCompany(
            self._config.truncation.interval_s, crash, self._background, parts.host.clock
        )
        for worker in parts.workers:
            company.schedule(worker)
        self._changes = DirectoryChanges(
            parts, company, self._configured, self._kept, self._crowded
        )
        measuring = Measuring(
            parts, machine.about_disk, machine.about_machine, machine.forget_pages
        )
        port.register(parts, monitor.reporter.status, monitor.report, self._changes, measuring)
        await port.start()
        for work in parts.background(self._description):
            self._background(work)
        self._background(monitor.serving(self.client_address, self.peer_address))
        self._follow_files(parts)
        if file := self._config.archive.config:
            self._archiver = ArchiverProcess(archiver_command(file), self._leads_hakeeper)
            self._background(self._archiver.run)
        self.reloads.attach(
            lambda config: take(config, port, parts, company, self._tls, self._keys),
            lambda: [one.data.path for one in parts.directories],
        )
        self._background(self.reloads.run)

    def _admin_port(self, port: ClientPort) -> Monitor:
        """Raises OSError when the port is in use."""
        monitor = Monitor(
            self._config,
            lambda: refused,
            self._turns,
            lambda: self.reloads.in_effect,
            self._admin_tls,
        )
        monitor.callers.attach(lambda: port.gate, lambda: port.audit, port.seen)
        monitor.guarded.attach(lambda: port.browsing)
        return monitor

    def _read_certificates(self) -> None:
        """Raises TlsRefused."""
        if self._config.tls.enabled:
            self._tls = StoreTls(self._config, self._renew_peer_tls)
        if self._config.admin.tls:
            assert self._tls is not None  # `config.check`
            self._admin_tls = AdminTls(self._config, self._tls)

    def _follow_files(self, parts: StoreParts) -> None:
        """Certificates and keys are taken up as they change."""
        if self._tls is not None:
            self._background(self._tls.run)
        if self._admin_tls is not None:
            self._background(self._admin_tls.run)
        if self._token_keys is not None:
            self._background(self._token_keys.run)
        if self._keys is not None:
            self._keys.attach(parts)
            self._background(self._keys.run)

    async def _follow_tokens(self) -> Tokens | None:
        """What checks bearer tokens; None when none are configured. Raises ConfigError."""
        section = self._config.tokens
        if not section.enabled:
            return None
        keys = self._token_keys = IssuerKeys(section)
        await keys.first()
        return Tokens(section, self._config.tls.trust_domain, self._config.store.cluster_id, keys)

    def alarms(self) -> list[str]:
        """What a person must look at; for health and logs. Empty when all is well."""
        return [
            *(self._tls.alarms() if self._tls is not None else ()),
            *(self._admin_tls.alarms() if self._admin_tls is not None else ()),
            *(self._keys.alarms() if self._keys is not None else ()),
            *(self._token_keys.alarms() if self._token_keys is not None else ()),
            *(self._transport.alarms() if self._transport is not None else ()),
            *(self._client_port.alarms() if self._client_port is not None else ()),
            *(self._shares.alarms() if self._shares is not None else ()),
            *(self._parts.host.clocks.alarms() if self._parts is not None else ()),
            *(self._archiver.alarms() if self._archiver is not None else ()),
            *(self._memory.alarms() if self._memory is not None else ()),
            *(self._company.alarms() if self._company is not None else ()),
        ]

    async def stop(self) -> None:
        """Stop gracefully; see the module's text."""
        if self._client_port is not None:
            await self._client_port.leave()
        if self._monitor is not None:
            self._monitor.stopping()
        if self._changes is not None:
            await self._changes.stop()
        if self._company is not None:
            await self._company.stop()
        running = [*self._tasks, *self._renewals]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._parts is not None:
            await self._hand_over(self._parts.host)
        if self._client_port is not None:
            await self._client_port.stop()
        if self._parts is not None:
            await self._parts.stop()
            self._parts.close()
        if self._client_port is not None and self._client_port.audit is not None:
            self._client_port.audit.close()
        if isinstance(self._tracing, OpenTelemetry):
            await asyncio.to_thread(self._tracing.close)
        if self._monitor is not None:
            self._monitor.stop()

    def _description(self) -> StoreDescription:
        section = self.reloads.config.store
        return StoreDescription(
            section.host_label, self.peer_address, self.client_address, section.labels
        )

    def _leads_hakeeper(self) -> bool:
        assert self._parts is not None  # asked after the start
        running = self._parts.host.replicas.running
        return HAKEEPER_SHARD in running and running[HAKEEPER_SHARD].raft.role is Role.LEADER

    def _configured(self) -> list[str]:
        """What the configuration file names as data directories now. Raises InvalidArgument."""
        return [os.path.abspath(path) for path in self._read().store.data_directories]

    def _crowded(self, directories: int) -> str:
        """Why the process cannot have so many data directories: its descriptors were divided at the
        start, and what clients may have is not taken from them.
        """
        assert self._shares is not None  # asked after the start
        wanted = descriptors.share(self._shares.limit, directories)
        if wanted.clients >= self._shares.clients:
            return ""
        return (
            f"the limit of open files is {self._shares.limit}, which leaves no room for another"
            " data directory: raise it (LimitNOFILE), or restart the store"
        )

    def _kept(self, path: str) -> str:
        """Why a data directory stays although it is empty."""
        assert self._client_port is not None  # asked after the start
        audit = self._client_port.audit
        if audit is not None and os.path.commonpath([audit.directory, path]) == path:
            return f"the audit log is in {path}: set audit.directory, and restart the store first"
        return ""

    # --- parts ------------------------------------------------------------------------------------

    def _seams(self) -> StoreSeams:
        vfs = PosixVfs(bounds.DISK_SPARE_DESCRIPTORS)
        return StoreSeams(
            disk=lambda _: DiskSeams.on_files(vfs),
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
            queue_bytes_max=self._config.limits.peer_queue_bytes_max,
            request_bytes_max=self._config.limits.peer_request_bytes_max,
        )
        return self._transport

    def _renew_peer_tls(self) -> None:
        if self._parts is None:
            return
        transport = self._parts.host.transport
        assert isinstance(transport, TcpTransport)
        self._renewals.add(begin_task(_renewed(transport), self._renewals.discard))

    def _background(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, and end the process when it fails, as INV-STORE-1 says."""

        async def guarded() -> None:
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - reported, and the process ends
                crash(error)

        self._tasks.append(begin_task(guarded()))

    # --- stopping ---------------------------------------------------------------------------------

    async def _hand_over(self, host: NodeHost) -> None:
        async def one(shard: ShardId, successor: ReplicaId) -> None:
            with contextlib.suppress(LogServiceError):
                await host.router.transfer_leadership(shard, successor, _HAND_OVER_S)

        led = [info.shard for info in host.replicas.infos() if info.role is Role.LEADER]
        moves = [(shard, host.replicas.running[shard].raft.successor) for shard in led]
        await asyncio.gather(*(one(*move) for move in moves if move[1] != NO_REPLICA))
