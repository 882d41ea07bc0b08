"""memory_figures: how much of each part of the store's memory budget is in use."""

from __future__ import annotations

from logservice.config import StoreConfig, memory_limits
from logservice.memory_budget import ANSWER_COPIES
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.transport.tcp import TcpTransport
from logservice.server.client_port import ClientPort


class MemoryFigures:
    """One per store, made with its parts."""

    def __init__(
        self, config: StoreConfig, parts: StoreParts, transport: TcpTransport, port: ClientPort
    ) -> None:
        self._limits = memory_limits(config)
        self._parts = parts
        self._transport = transport
        self._port = port

    def figures(self) -> dict[str, int]:
        """``part/used`` and ``part/limit`` of every part, ``part/refused`` of those that holders
        share.
        """
        host, port, transport = self._parts.host, self._port, self._transport
        shared = {
            "proposals": host.proposals,
            "unwritten": host.unwritten,
            "peer_queues": transport.queues,
            "peer_requests": transport.requests,
        }
        used = {
            "answers": port.answers.used * ANSWER_COPIES,
            "undelivered": port.undelivered_bytes,
            "call_lines": port.lines.size,
            "peer_partial": transport.partial_bytes,
            "caches": sum(one.logdb.cache_bytes for one in host.directories.working),
            **{name: part.used for name, part in shared.items()},
        }
        return {
            **{f"{name}/used": size for name, size in used.items()},
            **{f"{name}/limit": size for name, size in self._limits.items()},
            **{f"{name}/refused": part.refused for name, part in shared.items()},
        }
