"""Monitor: what a store shows of itself, put together, started and stopped with the store.

The admin port is bound and answers before recovery begins, so that a supervisor sees that a store
that starts slowly is alive (``/healthz``) and not ready (``/readyz``). The port is the last part to
stop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from logservice_wire.errors import NotReady

from logservice import bounds
from logservice.config import Address, StoreConfig
from logservice.events import Event, emit
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.transport.link.stats import TransportStats
from logservice.server.edge.call_book import CallBook
from logservice.server.monitor.cluster.console import Console
from logservice.server.monitor.cluster.report import ClusterReporter
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.own.claims import LocalClaims
from logservice.server.monitor.own.event_ring import EventRing
from logservice.server.monitor.own.history import History
from logservice.server.monitor.own.loop_turns import LoopTurns
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.shard_inside import ShardsInside, Standing
from logservice.server.monitor.own.watch import Watch
from logservice.server.monitor.port.board import Board
from logservice.server.reload.reloads import InEffect
from logservice.server.tls.admin_tls import AdminTls
from logservice.server.tls.store_tls import StoreTls

logger = logging.getLogger(__name__)


class Monitor:
    """One per store process, made while the loop runs. `start`, `attach` and `stop` follow."""

    def __init__(
        self,
        config: StoreConfig,
        rpc_errors: Callable[[], Mapping[str, int]],
        turns: LoopTurns,
        in_effect: Callable[[], InEffect] = lambda: InEffect("", 0),
        tls: AdminTls | None = None,
    ) -> None:
        """Bind the admin port; `tls` None: plain HTTP. Raises OSError when it is in use."""
        from logservice.server.monitor.port.app import AdminApp
        from logservice.server.monitor.port.caller import Callers
        from logservice.server.monitor.port.guarded_pages import GuardedPages
        from logservice.server.monitor.port.metrics import Metrics
        from logservice.server.monitor.port.server import AdminServer

        self._cluster: ClusterReporter | None = None
        self._plain = tls is None
        self._events = EventRing(bounds.EVENTS_KEPT)
        self.reporter = StatusReporter(config, self._events, rpc_errors, turns=turns)
        self._history = History(config.store.store_id)
        self.reporter.in_effect = in_effect
        self._board = Board(self.reporter.status)
        listen = Address.parse(config.admin.listen, "admin.listen")
        self.callers = Callers(self._board, required=config.admin.authentication == "required")
        self.guarded = GuardedPages(self._board, self.callers)
        app = AdminApp(
            self._board,
            Metrics(self._board).text,
            loopback_only=listen.loopback,
            callers=self.callers,
            guarded=self.guarded,
        )
        self._server = AdminServer(listen, app, tls.context if tls is not None else None)
        self.answers = self._server.answers
        """What its clients have not read yet."""
        self.reporter.admin_tls = tls
        self.reporter.admin_address = config.admin.advertise or self._server.address

    def start(self) -> None:
        """Begin to answer. Until `attach` everything but /healthz says that the store starts."""
        logging.getLogger("logservice").addHandler(self._events)
        self._server.start()
        scheme = "http" if self._plain else "https"
        emit(logger, Event.ADMIN_STARTED, address=f"{scheme}://{self.reporter.admin_address}")

    def attach(
        self,
        parts: StoreParts,
        transport_stats: Callable[[], TransportStats],
        tls: StoreTls | None,
        alarms: Callable[[], Sequence[str]],
        call_lines: Callable[[], Mapping[str, float]] = dict,
        memory: Callable[[], Mapping[str, int]] = dict,
        calls: CallBook | None = None,
        tokens: Callable[[], Mapping[str, float]] = dict,
        connections: Callable[[], Mapping[str, int]] = dict,
        standing: Standing = lambda _: None,
        visit_age_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Use the store's parts: log storage is open, and other stores may ask from now on."""
        self.reporter.attach(
            parts,
            transport_stats,
            tls,
            alarms,
            call_lines,
            memory,
            calls,
            tokens,
            connections,
            visit_age_s,
        )
        self._cluster = ClusterReporter(parts, self.reporter)
        shards = ShardsInside(parts, self.reporter, self._history, standing)
        console = Console(parts, self._cluster, self._history, LocalClaims(parts), shards)
        self._board.started(self.report, console)

    async def report(self, made_now: bool = False) -> ClusterReport:
        """See `ClusterReporter.report`. Raises NotReady before log storage is open."""
        if self._cluster is None:
            raise NotReady("the store is starting")
        return await self._cluster.report(made_now=made_now)

    def serving(self, client_address: str, peer_address: str) -> Callable[[], Awaitable[None]]:
        """Note that the store serves. Returns what has to run beside it until it is cancelled."""
        self.reporter.client_address = client_address
        self.reporter.peer_address = peer_address
        self.reporter.set_phase("serving")
        return Watch(self.reporter, self._history.look).run

    def stopping(self) -> None:
        """Note that the store stops; it is not ready from now on."""
        self.reporter.set_phase("stopping")

    def stop(self) -> None:
        """Close the admin port. No other call may follow."""
        logging.getLogger("logservice").removeHandler(self._events)
        self._server.stop()
