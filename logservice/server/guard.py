"""guard: services are registered through here, so that no RPC runs before the gate let it in.

Theory of operation. `GuardedServer` stands where the generated code expects a gRPC server. For each
RPC it looks up the rule, by the method's full name, and puts a function around the handler which
finds the caller, counts the call, asks the gate and only then calls. That is done once, at the
start, so that a call costs no interceptor.

A stream gets its handler's context wrapped: the first message says which shard it is about and is
what the gate decides on; at every later message, either way, it is looked whether that decision
still stands (one comparison), so that a revoked grant or an expired certificate ends a stream that
is under way. A reader that takes nothing for STREAM_WRITE_STALL_S is cut: what was written for it
is held in memory.

INV-GUARD-1: an RPC without a rule cannot be registered.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import Busy, DeadlineExceeded, LogServiceError

from logservice import bounds
from logservice.access import AccessList
from logservice.ids import HAKEEPER_SHARD
from logservice.invariants import invariant
from logservice.server import trace
from logservice.server.errors import Context, abort, refused
from logservice.server.gate import Caller, Gate, shard_of
from logservice.server.message_limits import Refused, checked_parser
from logservice.server.rules import RULES, Rule

Behavior = Callable[[Any, Any], Awaitable[Any]]


class GuardedServer:
    """Give it to the generated ``add_…Servicer_to_server`` in place of the server."""

    def __init__(self, server: grpc.aio.Server, gate: Gate) -> None:
        """Every service of `server` is to be registered here."""
        self._server = server
        self._gate = gate

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The generated code says everything twice; the other form has the methods' names."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register a service."""
        # What is no coroutine is a method that nobody wrote (Health.List): left out, gRPC says so.
        guarded = {
            name: self._guarded(service, name, one)
            for name, one in handlers.items()
            if inspect.iscoroutinefunction(_behavior(one))
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, guarded),)
        )

    def _guarded(self, service: str, name: str, handler: Any) -> Any:
        path = f"/{service}/{name}"
        rule = RULES.get(path)
        invariant(rule is not None, "INV-GUARD-1", path=path)
        assert rule is not None
        behavior = _behavior(handler)
        method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        parse = checked_parser(method.input_type, handler.request_deserializer)
        encode = handler.response_serializer
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(name, rule, behavior), parse, encode
            )
        streaming = self._streaming(name, rule, behavior, reads=handler.request_streaming)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(streaming, parse, encode)
        assert handler.stream_stream, path
        return grpc.stream_stream_rpc_method_handler(streaming, parse, encode)

    def _unary(self, name: str, rule: Rule, behavior: Behavior) -> Behavior:
        gate = self._gate

        async def guarded(request: Any, context: Context) -> Any:
            trace.enter(context)
            try:
                if type(request) is Refused:
                    raise request.error
                caller = gate.caller(context)
                caller.quota.begin_rpc()
            except LogServiceError as error:
                await _refuse(context, name, error)
            quota = caller.quota
            try:
                if quota.counts_bytes:
                    quota.take_bytes(request.ByteSize())
                try:
                    await gate.admit(caller, rule, shard_of(rule, request))
                except LogServiceError as error:
                    await _refuse(context, name, error)
                response = await behavior(request, context)
                if quota.counts_bytes:
                    quota.take_bytes(response.ByteSize())
                return response
            finally:
                quota.end_rpc()

        return guarded

    def _streaming(self, name: str, rule: Rule, behavior: Behavior, *, reads: bool) -> Behavior:
        gate = self._gate

        async def guarded(request: Any, context: Context) -> None:
            trace.enter(context)
            try:
                if type(request) is Refused:
                    raise request.error
                caller = gate.caller(context)
                caller.quota.begin_stream()
            except LogServiceError as error:
                await _refuse(context, name, error)
            try:
                stream = GuardedStream(gate, caller, rule, context)
                try:
                    if not reads:
                        await stream.admit(request)
                except LogServiceError as error:
                    await _refuse(context, name, error)
                await behavior(request, stream)
            finally:
                caller.quota.end_stream()

        return guarded


class GuardedStream:
    """The context of a stream, with every message under the gate's eye; else gRPC's own."""

    __slots__ = ("_admitted", "_caller", "_context", "_gate", "_listed", "_rule", "_shard")

    def __init__(self, gate: Gate, caller: Caller, rule: Rule, context: Context) -> None:
        """Nothing is admitted yet."""
        self._gate = gate
        self._caller = caller
        self._rule = rule
        self._context = context
        self._listed: AccessList | None = None
        self._shard = HAKEEPER_SHARD
        self._admitted = False

    def __getattr__(self, name: str) -> Any:
        """Whatever is not about messages."""
        return getattr(self._context, name)

    async def admit(self, request: Any) -> None:
        """The first message names the shard. Raises PermissionDenied."""
        self._shard = shard_of(self._rule, request)
        self._listed = await self._gate.admit(self._caller, self._rule, self._shard)
        self._admitted = True

    async def read(self) -> Any:
        """The next message, or EOF. Raises LogServiceError for one that is not let in."""
        if not self._admitted:
            return await self._first()
        message = await self._context.read()
        if message is EOF:
            return message
        if type(message) is Refused:
            raise message.error
        await self._stand()
        return await self._pay(message)

    async def write(self, message: Any) -> None:
        """Send a message. Raises Busy when the reader takes nothing for too long."""
        await self._stand()
        quota = self._caller.quota
        if quota.counts_bytes:
            quota.take_bytes(message.ByteSize())
        try:
            async with asyncio.timeout(bounds.STREAM_WRITE_STALL_S):
                await self._context.write(message)
        except TimeoutError as error:
            raise Busy("nobody reads this stream", retry_after_ms=1000) from error

    async def _first(self) -> Any:
        try:
            async with asyncio.timeout(bounds.STREAM_OPEN_TIMEOUT_S):
                message = await self._context.read()
        except TimeoutError as error:
            raise DeadlineExceeded("nothing was sent on the stream") from error
        if message is EOF:
            return message
        if type(message) is Refused:
            raise message.error
        await self.admit(message)
        return await self._pay(message)

    async def _stand(self) -> None:
        """INV-GATE-2, at every message."""
        if not self._gate.in_force(self._caller, self._listed):
            self._gate.caller(self._context)
            self._listed = await self._gate.admit(self._caller, self._rule, self._shard)

    async def _pay(self, message: Any) -> Any:
        quota = self._caller.quota
        wait_s = quota.take_message(message.ByteSize() if quota.counts_bytes else 0)
        if wait_s:
            await asyncio.sleep(wait_s)
        return message


def _behavior(handler: Any) -> Behavior:
    found: Behavior = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return found


async def _refuse(context: Context, name: str, error: LogServiceError) -> NoReturn:
    refused[f"{name}/{error.reason.value}"] += 1
    await abort(context, error)
