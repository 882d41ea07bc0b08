"""memory_figures: how much of each part of the store's memory budget is in use, and who pays.

Theory of operation. A part that is full makes somebody pay: a call is refused, a connection is cut,
messages are sent again (`memory_budget.PARTS` says who). Each part counts how often. That is what a
person has to know, and not how full it is at a moment: one holder gets half of a shared part at
most, and a peak that lasts for milliseconds is in no sample. So a part is named in an alarm while
somebody had to pay within the last MEMORY_FULL_TELL_S, as the looks at the status see it, the
farthest of which are five seconds apart (`monitor.own.watch`). The caches have no such count:
nobody pays for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from logservice import bounds
from logservice.config import StoreConfig, memory_limits
from logservice.memory_budget import ANSWER_COPIES, FULL_ALARM, PARTS
from logservice.memory_part import MemoryPart
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.server.client_port import ClientPort
from logservice.server.monitor.port.waiting_answers import WaitingAnswers

_MIB = 1 << 20


class MemoryFigures:
    """One per store, made with its parts."""

    def __init__(
        self,
        config: StoreConfig,
        parts: StoreParts,
        transport: TcpTransport,
        port: ClientPort,
        admin: WaitingAnswers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nobody has paid yet."""
        self._config = config
        self._parts = parts
        self._transport = transport
        self._port = port
        self._admin = admin
        self._clock = clock
        self._paid: dict[str, int] = {}
        self._paid_s: dict[str, float] = {}

    def figures(self) -> dict[str, int]:
        """``part/used`` and ``part/limit`` of every part, ``part/refused`` of those for which
        somebody pays.
        """
        limits = memory_limits(self._config, len(self._parts.host.directories))
        used = {
            "answers": self._port.answers.used * ANSWER_COPIES,
            "undelivered": self._port.undelivered_bytes,
            "call_lines": self._port.lines.size,
            "peer_partial": self._transport.partial_bytes,
            "admin_answers": self._admin.used,
            "caches": sum(one.logdb.cache_bytes for one in self._parts.host.directories.working),
            **{name: part.used for name, part in self._shared.items()},
        }
        return {
            **{f"{name}/used": size for name, size in used.items()},
            **{f"{name}/limit": size for name, size in limits.items()},
            **{f"{name}/refused": count for name, count in self._refused().items()},
        }

    def alarms(self) -> list[str]:
        """A text for each part for whose room somebody had to pay lately."""
        now_s = self._clock()
        refused = self._refused()
        for name, count in refused.items():
            if count > self._paid.get(name, 0):
                self._paid_s[name] = now_s
        self._paid = refused
        figures = self.figures()
        return [
            f"{FULL_ALARM}: {part.name}: {figures[f'{part.name}/used'] // _MIB} of"
            f" {figures[f'{part.name}/limit'] // _MIB} MiB now; since the start somebody had to pay"
            f" {refused[part.name]} times"
            for part in PARTS
            if part.name in self._paid_s
            and now_s - self._paid_s[part.name] < bounds.MEMORY_FULL_TELL_S
        ]

    @property
    def _shared(self) -> dict[str, MemoryPart]:
        host, transport = self._parts.host, self._transport
        return {
            "proposals": host.proposals,
            "unwritten": host.unwritten,
            "peer_queues": transport.queues,
            "peer_requests": transport.requests,
        }

    def _refused(self) -> dict[str, int]:
        port = self._port
        return {
            "answers": port.answers.refused,
            "undelivered": port.undelivered_cut,
            "call_lines": port.lines.crowded_out,
            "peer_partial": self._transport.partial_cuts,
            "admin_answers": self._admin.cut,
            **{name: part.refused for name, part in self._shared.items()},
        }
