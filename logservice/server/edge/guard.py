"""guard: services are registered here, so that no RPC runs before the gate has let it in.

Theory of operation. `GuardedServer` stands where the generated code expects a gRPC server. It looks
up the row of each RPC (`SERVED`) and puts a function around the handler that finds the caller,
counts the call, asks the gate and only then calls. That is done once, at the start, so that a call
costs no interceptor.

A unary call waits for its turn behind the other calls of its caller (`call_lines`), once the caller
is known and before anything is decided or done. Health calls do not.

Every call is noted when it is over, however it ended (`call_book`).

A stream gets its handler's context wrapped (`guarded_stream`), so that the gate sees every message.

An error knows the frames that it left, and they know the request. gRPC keeps the error of a call
together with the call, in a cycle, for which the collector comes too seldom (`server.process`). So
what fails here takes nothing of that along (`let_go`). Else each append that is refused would keep
its block, in no part of the memory budget.

INV-GUARD-1: an RPC without a row cannot be registered.
INV-GUARD-2: a call that failed keeps nothing of its request.
"""

from __future__ import annotations

import inspect
import operator
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from logservice_wire.errors import LogServiceError, TooLarge
from logservice_wire.reader_hold import is_reader_hold
from logservice_wire.rpcs import RPCS, Rpc, serialize

from logservice import bounds, trace
from logservice.invariants import invariant
from logservice.server.edge import answers, token_addresses
from logservice.server.edge.answers import AnswerBudget
from logservice.server.edge.auditor import Auditor
from logservice.server.edge.call import (
    Context,
    abort,
    failed,
    failure_of,
    noted,
    time_left_s,
    took_effect,
)
from logservice.server.edge.call_book import OK, CallBook
from logservice.server.edge.call_lines import CallLines
from logservice.server.edge.connections import Connections
from logservice.server.edge.dispatch import Dispatch
from logservice.server.edge.gate import Caller, Gate, calling, shard_of
from logservice.server.edge.guarded_stream import GuardedStream
from logservice.server.edge.identity_book import IdentityBook, Seen
from logservice.server.edge.message_limits import Refused, arrived_bytes, checked_parser, measured
from logservice.server.edge.quota import Quota, pay_answer
from logservice.server.edge.undelivered import Delivered
from logservice.trace import NO_TRACING, Tracing

_HEALTH: Final = "/grpc.health.v1.Health/"


def _health(name: str, request: type[Any], response: type[Any]) -> Rpc[Any, Any]:
    return Rpc(f"{_HEALTH}{name}", request, response, frozenset(), shard="")


SERVED: Final[Mapping[str, Rpc[Any, Any]]] = {
    **RPCS,
    **{
        one.path: one
        for one in (
            _health("Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse),
            _health("List", health_pb2.HealthListRequest, health_pb2.HealthListResponse),
            _health("Watch", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse),
        )
    },
}
"""Every RPC that a store may serve, by its path: the contract's, and gRPC's health service."""

Behavior = Callable[[Any, Any], Awaitable[Any]]
Called = Callable[[Caller, Any, Context], Awaitable[Any]]


class GuardedServer:
    """Give it to the generated ``add_…Servicer_to_server`` in place of the server."""

    def __init__(
        self,
        server: grpc.aio.Server,
        gate: Gate,
        auditor: Auditor,
        tracing: Tracing = NO_TRACING,
        connections: Connections | None = None,
        budget: AnswerBudget | None = None,
        lines: CallLines | None = None,
        calls: CallBook | None = None,
        seen: IdentityBook | None = None,
        token_port_offset: int = 0,
    ) -> None:
        """Every service of `server` is to be registered here. `tracing` records spans.
        `connections` counts connections; with None nobody does. `budget` bounds the answers that
        wait; in `lines` unary calls wait for their turn; `calls` notes how calls ended, and `seen`
        who called. `token_port_offset`: see `token_addresses`; not 0: the server's port asks for no
        certificate, and every call needs a token.
        """
        self._seen = IdentityBook() if seen is None else seen
        self._gate = gate
        self._auditor = auditor
        self._tracing = tracing
        self._connections = connections
        self._budget = AnswerBudget() if budget is None else budget
        self._lines = CallLines() if lines is None else lines
        self._calls = CallBook() if calls is None else calls
        self._token_port_offset = token_port_offset
        early = self._refused_early if token_port_offset else None
        self._dispatch = Dispatch(connections, early)
        server.add_generic_rpc_handlers((self._dispatch,))
        # Everything that happens in the call can ask whose call it is. Where there are spans, the
        # call's own span has said so. gRPC runs every call in a task of its own, so nothing is put
        # back.
        self._enter: Callable[[trace.OpenCall], object] = (
            trace.current.set if tracing is NO_TRACING else _entered
        )

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignored: the generated code registers everything twice, and the second time with
        names.
        """

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Register a service."""
        # A handler that is no coroutine is a method that nobody wrote (Health.List). It is left
        # out, and gRPC answers that it does not exist.
        guarded = {
            name: self._guarded(service, name, one)
            for name, one in handlers.items()
            if inspect.iscoroutinefunction(_behavior(one))
        }
        self._dispatch.add(service, guarded)

    def _guarded(self, service: str, name: str, handler: Any) -> Any:
        path = f"/{service}/{name}"
        rpc = SERVED.get(path)
        invariant(rpc is not None, "INV-GUARD-1", path=path)
        assert rpc is not None
        behavior = _behavior(handler)
        parse = measured(checked_parser(rpc.request.DESCRIPTOR, rpc.parse_request))
        if handler.unary_unary:
            unary = self._unary(rpc, self._called(rpc, behavior))
            noted_one = self._traced(name, self._noted(name, unary, timed=True))
            return grpc.unary_unary_rpc_method_handler(noted_one, parse, None)
        stream = self._streaming(rpc, behavior, reads=handler.request_streaming)
        streaming = self._traced(name, self._noted(name, stream, timed=False))
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(streaming, parse, serialize)
        assert handler.stream_stream, path
        return grpc.stream_stream_rpc_method_handler(streaming, parse, serialize)

    def _refused_early(self, path: str, metadata: Any) -> Behavior | None:
        """Who answers a call whose headers have no good token; None when they have one."""
        said = [value for name, value in metadata if name == "authorization"]
        try:
            self._gate.bearer(b"", said)
        except LogServiceError as error:
            rpc, refusal = SERVED[path], error

            async def refuse(_: Any, context: Context) -> None:
                call = trace.OpenCall(context)
                self._enter(call)
                try:
                    self._auditor.denied(rpc, context, None, None, refusal)
                    await _refuse(context, rpc.name, refusal)
                finally:
                    call.over()

            return refuse
        return None

    def _delivered(self, context: Context) -> Delivered:
        """The account of what the calls of this connection have received so far."""
        if self._connections is None:
            return Delivered()
        return self._connections.delivered(context.peer())

    async def _let_in(
        self, rpc: Rpc[Any, Any], request: Any, context: Context, count: Callable[[Quota], None]
    ) -> tuple[Caller, Seen]:
        """Find out who is calling, and `count` the call as one of the caller's. The call ends here
        when its message is refused, the caller is not known, or too much is under way already.
        """
        seen: Seen | None = None
        try:
            if type(request) is Refused:
                raise request.error
            caller = self._gate.caller(context)
            peer = context.peer()
            seen = self._seen.used(caller.uri, peer, caller.serial, caller.not_after.wall_s)
            if self._connections is not None:
                self._connections.heard(peer, caller.uri)
            calling.set(caller.uri)
            if caller.by_token_only:
                token_addresses.offset.set(self._token_port_offset)
            count(self._gate.quota_of(caller, rpc))
        except LogServiceError as error:
            if seen is not None:
                seen.busy += 1
            self._auditor.denied(rpc, context, None, None, error)
            await _refuse(context, rpc.name, error)
        return caller, seen

    def _hold(self, answer: bytes, context: Context) -> None:
        """Take a large answer's bytes from the budget, if they are not counted yet. Raises Busy."""
        if len(answer) > bounds.ANSWER_SMALL_BYTES and not (answers.paid.get() or took_effect()):
            answers.until_gone(context, self._budget.take_now(len(answer)), len(answer))

    def _traced(self, name: str, guarded: Behavior) -> Behavior:
        """`guarded` with a span around it, if spans are recorded."""
        tracing = self._tracing
        if tracing is NO_TRACING:
            return guarded

        async def spanned(request: Any, context: Context) -> Any:
            one = tracing.begin(name, context)
            trace.current.set(one.call)
            failure = "CANCELLED"
            try:
                response = await guarded(request, context)
                failure = ""
                return response
            except grpc.aio.AbortError:
                code = context.code()
                failure = getattr(code, "name", str(code))
                raise
            finally:
                del request  # an error leaves this frame, too (INV-GUARD-2)
                noted(one.end, failure)

        return spanned

    def _noted(self, name: str, guarded: Behavior, *, timed: bool) -> Behavior:
        """`guarded`, whose lines say whose call it is, and a note of how each call ended."""
        row, enter = self._calls.row(name, timed=timed), self._enter

        async def noting(request: Any, context: Context) -> Any:
            began_s, outcome = time.monotonic(), OK
            call = trace.OpenCall(context)
            enter(call)
            try:
                return await guarded(request, context)
            except BaseException as error:
                outcome = failure_of(error)
                raise
            finally:
                del request  # an error leaves this frame, too (INV-GUARD-2)
                call.over()
                row.end(outcome, began_s)

        return noting

    def _unary(self, rpc: Rpc[Any, Any], called: Called) -> Behavior:
        """Wait for the turn of a call and give its place back when it is over."""
        name, lines, lined = rpc.name, self._lines, not rpc.path.startswith(_HEALTH)
        delivered, whole = self._delivered, self._dispatch.half_calls.whole
        quota_of = self._gate.quota_of

        async def guarded(request: Any, context: Context) -> Any:
            whole()
            size = arrived_bytes.get()
            delivered(context).add(size)
            caller, _ = await self._let_in(rpc, request, context, Quota.begin_rpc)
            place = None
            try:
                if lined:
                    try:
                        place = await lines.enter(caller.uri, size, lambda: time_left_s(context))
                    except LogServiceError as error:
                        await _refuse(context, name, error)
                return await called(caller, request, context)
            except BaseException as error:
                let_go(error)
                raise
            finally:
                del request  # an error leaves this frame, too (INV-GUARD-2)
                if place is not None:
                    lines.leave(place)
                quota_of(caller, rpc).end_rpc()

        return guarded

    def _called(self, rpc: Rpc[Any, Any], behavior: Behavior) -> Called:
        """What is done for a call once it has its turn."""
        gate, auditor = self._gate, self._auditor
        told = rpc.admin or auditor.data
        name, overriding, of_reader = rpc.name, rpc.overriding(), rpc.of_reader()
        named: Callable[[Any], str] = operator.attrgetter(rpc.named) if rpc.named else _unnamed

        async def called(caller: Caller, request: Any, context: Context) -> Any:
            quota = gate.quota_of(caller, rpc)
            if quota.counts_bytes:
                quota.take_bytes(request.ByteSize())
            shard = shard_of(rpc, request)
            asked = rpc
            if rpc.override and request.override:
                asked = overriding
            elif rpc.readers and is_reader_hold(request.name):
                asked = of_reader
            try:
                await gate.admit(caller, asked, shard, named(request))
                if rpc.each_as is not None:
                    await self._admit_each(rpc, rpc.each_as, caller, request)
                if asked.admin:
                    await auditor.admitted(rpc, context, caller, shard, request)
            except LogServiceError as error:
                auditor.denied(rpc, context, caller, shard, error)
                await _refuse(context, name, error)
            response = None
            try:
                response = await behavior(request, context)
            finally:
                if told or asked.admin:
                    noted(auditor.ended, rpc, context, caller, shard, request, response)
            if quota.counts_bytes:
                noted(pay_answer, quota, response)
            token_addresses.move_in(response)
            data = serialize(response)
            try:
                self._hold(data, context)
            except LogServiceError as error:
                await _refuse(context, name, error)
            return data

        return called

    async def _admit_each(
        self, rpc: Rpc[Any, Any], each_as: Rpc[Any, Any], caller: Caller, request: Any
    ) -> None:
        """Let a request with a list of shards through; raises what `Gate.admit` does, TooLarge."""
        items = getattr(request, rpc.each)
        if len(items) > rpc.each_max:
            raise TooLarge("the list", name=rpc.each, value=len(items), limit=rpc.each_max)
        for item in items:
            await self._gate.admit(caller, each_as, shard_of(each_as, item))

    def _streaming(self, rpc: Rpc[Any, Any], behavior: Behavior, *, reads: bool) -> Behavior:
        gate, auditor = self._gate, self._auditor
        half_calls, name, book = self._dispatch.half_calls, rpc.name, self._seen
        row = self._calls.row(name, timed=False)

        async def serve(request: Any, context: Context, delivered: Delivered) -> None:
            caller, seen = await self._let_in(rpc, request, context, Quota.begin_stream)
            seen.streams += 1
            stream = GuardedStream(
                gate, auditor, rpc, caller, context, delivered, row, seen, tells_outcomes=reads
            )
            try:
                try:
                    if not reads:
                        await stream.admit(request)
                except LogServiceError as error:
                    await _refuse(context, name, error)
                await behavior(request, stream)
            except BaseException as error:
                let_go(error)
                raise
            finally:
                caller.quota.end_stream()
                book.stream_ended(seen)
                noted(stream.ended)

        async def guarded(request: Any, context: Context) -> None:
            delivered = self._delivered(context)
            if not reads:
                half_calls.whole()
                delivered.add(arrived_bytes.get())
                await serve(request, context, delivered)
                return
            delivered.streams[context] = time.monotonic()
            try:
                await serve(request, context, delivered)
            finally:
                del delivered.streams[context]

        return guarded


def let_go(error: BaseException) -> None:
    """Take from `error`, and from those that it came from, the frames that they left
    (INV-GUARD-2).
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += (one.__cause__, one.__context__)


def _entered(_: trace.OpenCall) -> None:
    """Do nothing: `_traced` has entered the call already."""


def _unnamed(_: Any) -> str:
    return ""


def _behavior(handler: Any) -> Behavior:
    found: Behavior = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return found


async def _refuse(context: Context, name: str, error: LogServiceError) -> NoReturn:
    failed(name, error.reason.value)
    await abort(context, error)
