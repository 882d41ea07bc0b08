"""dispatch: finds the handler of a call, and refuses headers larger than a client can send.

Theory of operation. gRPC holds a connection to METADATA_BYTES_MAX from the moment its client has
acknowledged the server's SETTINGS, as every client does. Before that moment one call may bring 16
MiB of headers. So headers are measured here, where nothing else of a call is known yet. Larger
headers come from a client that withholds the acknowledgement; its connection is cut, and with it
everything else that the client holds on it.

A call is also noted here as one whose request is awaited (`undelivered`).

On a port that asks for no certificate a call's headers must have a good token (`early`). A call
without one is answered at once: its request, which may never come, is not awaited, so strangers
hold no calls there.

INV-DISPATCH-1: no handler runs for a call with more than METADATA_BYTES_MAX bytes of headers.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from logservice import bounds
from logservice.server.edge.call import Context
from logservice.server.edge.connections import Connections
from logservice.server.edge.undelivered import HalfCalls

_FIELD_BYTES: Final = 32
"""What a field counts for beside its name and value (RFC 9113, section 6.5.2)."""


Early = Callable[[str, Any], Callable[[Any, Context], Awaitable[None]] | None]


class Dispatch(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Every service of a server."""

    def __init__(self, connections: Connections | None, early: Early | None = None) -> None:
        """`connections` cuts a connection; with None nobody can. `early` returns who answers in
        the place of a method's handler, which it is given with the headers; None: the handler.
        """
        self._early = early
        self.half_calls = HalfCalls() if connections is None else connections.half_calls
        self._connections = connections
        self._handlers: dict[str, Any] = {}
        self._collecting = False
        self._refusing = grpc.stream_stream_rpc_method_handler(self._refuse)

    def add(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Serve the methods of `service`, by name."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """See gRPC. None: there is no such method."""
        size = 0
        for name, value in handler_call_details.invocation_metadata:
            size += len(name) + len(value) + _FIELD_BYTES
        if size > bounds.METADATA_BYTES_MAX:
            return self._refusing
        handler = self._handlers.get(handler_call_details.method)
        if handler is not None and self._early is not None:
            other = self._early(
                handler_call_details.method, handler_call_details.invocation_metadata
            )
            if other is not None:
                return grpc.stream_stream_rpc_method_handler(other)
        if handler is not None and not handler.request_streaming:
            self.half_calls.began()
        return handler

    async def _refuse(self, _: object, context: Context) -> None:
        """Answer no status: the connection is cut, and its client is owed none."""
        if self._connections is not None:
            self._connections.cut(context.peer(), "headers")
        if not self._collecting:
            # gRPC leaves each call behind as a cycle, and this call holds megabytes of headers. The
            # collector runs too seldom for that (`server.process`). The objects are still young
            # here.
            self._collecting = True
            asyncio.get_running_loop().call_later(bounds.HEADERS_COLLECT_S, self._collect)

    def _collect(self) -> None:
        self._collecting = False
        gc.collect(1)
