"""guard: services are registered through here, so that no RPC runs before the gate let it in.

Theory of operation. `GuardedServer` stands where the generated code expects a gRPC server. For each
RPC it looks up the rule, by the method's full name, and puts a function around the handler which
finds the caller, counts the call, asks the gate and only then calls. That is done once, at the
start, so that a call costs no interceptor.

A stream gets its handler's context wrapped: the first message says which shard it is about and is
what the gate decides on; at every later message, either way, it is looked whether that decision
still stands (one comparison), so that a revoked grant or an expired certificate ends a stream that
is under way; only the acks of what was let in before go out all the same (INV-EFFECT-1). A reader
that takes nothing for STREAM_WRITE_STALL_S is cut: what was written for it is held in memory.

INV-GUARD-1: an RPC without a rule cannot be registered.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from grpc.aio import EOF  # type: ignore[attr-defined]  # missing in grpc-stubs
from logservice_wire.errors import DeadlineExceeded, LogServiceError, Reason

from logservice import bounds, trace
from logservice.access import AccessList
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.invariants import invariant
from logservice.server.effects import noted, took_effect
from logservice.server.errors import Context, abort, refused
from logservice.server.guard import answers
from logservice.server.guard.answers import AnswerBudget
from logservice.server.guard.connections import Connections
from logservice.server.guard.dispatch import Dispatch
from logservice.server.guard.message_limits import Refused, checked_parser
from logservice.server.guard.undelivered import Delivered
from logservice.server.security.audit import AuditLog, lsn_range, stream_range
from logservice.server.security.gate import Caller, Gate, calling, shard_of
from logservice.server.security.quota import Quota
from logservice.server.security.rules import OVERRIDE, RULES, Rule
from logservice.trace import NO_TRACING, Tracing

_REQUEST_CHARACTERS = 1024
"""Of a request of administration in the audit log."""

_arrived: Final[ContextVar[int]] = ContextVar("arrived")
"""Bytes of the message that this call received last."""

_DENIALS = frozenset({Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED})

_ADMINISTRATION = frozenset(path.rpartition("/")[2] for path, rule in RULES.items() if rule.admin)
"""Names of calls."""

Behavior = Callable[[Any, Any], Awaitable[Any]]


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
    ) -> None:
        """Every service of `server` is to be registered here. `tracing`: who records spans.
        `connections`: who counts them; None: nobody. `budget`: of answers that wait.
        """
        self._gate = gate
        self._auditor = auditor
        self._tracing = tracing
        self._connections = connections
        self._budget = AnswerBudget() if budget is None else budget
        self._dispatch = Dispatch(connections)
        server.add_generic_rpc_handlers((self._dispatch,))
        # Whose call it is, for all that happens in it. Where there are spans, the call's own span
        # has said so; gRPC runs every call in a task of its own, so nothing is put back.
        self._enter: Callable[[Context], object] = (
            trace.current.set if tracing is NO_TRACING else _entered
        )

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
        self._dispatch.add(service, guarded)

    def _guarded(self, service: str, name: str, handler: Any) -> Any:
        path = f"/{service}/{name}"
        rule = RULES.get(path)
        invariant(rule is not None, "INV-GUARD-1", path=path)
        assert rule is not None
        behavior = _behavior(handler)
        method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        parse = _measured(checked_parser(method.input_type, handler.request_deserializer))
        encode = handler.response_serializer
        if handler.unary_unary:
            unary = self._traced(name, self._unary(name, rule, behavior, encode))
            return grpc.unary_unary_rpc_method_handler(unary, parse, None)
        streaming = self._traced(
            name, self._streaming(name, rule, behavior, reads=handler.request_streaming)
        )
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(streaming, parse, encode)
        assert handler.stream_stream, path
        return grpc.stream_stream_rpc_method_handler(streaming, parse, encode)

    def _delivered(self, context: Context) -> Delivered:
        """What calls of this connection have received."""
        if self._connections is None:
            return Delivered()
        return self._connections.delivered(context.peer())

    def _identify(self, context: Context) -> Caller:
        """Who calls. Raises what `Gate.caller` raises, and Busy (`Connections.heard`)."""
        caller = self._gate.caller(context)
        if self._connections is not None:
            self._connections.heard(context.peer(), caller.uri)
        return caller

    def _hold(self, answer: bytes, context: Context) -> None:
        """A large answer that is not in the budget yet. Raises Busy; the call changed nothing."""
        if len(answer) > bounds.ANSWER_SMALL_BYTES and not (answers.paid.get() or took_effect()):
            answers.until_gone(context, self._budget.take_now(len(answer)))

    def _traced(self, name: str, guarded: Behavior) -> Behavior:
        """With a span around it, if they are wanted."""
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
                noted(one.end, failure)

        return spanned

    def _unary(
        self, name: str, rule: Rule, behavior: Behavior, encode: Callable[[Any], bytes]
    ) -> Behavior:
        gate, auditor = self._gate, self._auditor
        told = rule.admin or auditor.data
        enter, identify = self._enter, self._identify
        delivered, whole = self._delivered, self._dispatch.half_calls.whole

        async def guarded(request: Any, context: Context) -> Any:
            whole()
            delivered(context).add(_arrived.get())
            enter(context)
            try:
                if type(request) is Refused:
                    raise request.error
                caller = identify(context)
                calling.set(caller.uri)
                caller.quota.begin_rpc()
            except LogServiceError as error:
                auditor.denied(name, context, None, None, error)
                await _refuse(context, name, error)
            quota = caller.quota
            try:
                if quota.counts_bytes:
                    quota.take_bytes(request.ByteSize())
                shard = shard_of(rule, request)
                asked = OVERRIDE if rule.override and request.override else rule
                try:
                    await gate.admit(caller, asked, shard)
                    if asked.admin:
                        await auditor.admitted(name, context, caller, shard, request)
                except LogServiceError as error:
                    auditor.denied(name, context, caller, shard, error)
                    await _refuse(context, name, error)
                response = None
                try:
                    response = await behavior(request, context)
                finally:
                    if told or asked.admin:
                        noted(auditor.ended, name, context, caller, shard, request, response)
                if quota.counts_bytes:
                    noted(_pay_answer, quota, response)
                data = encode(response)
                try:
                    self._hold(data, context)
                except LogServiceError as error:
                    await _refuse(context, name, error)
                return data
            finally:
                quota.end_rpc()

        return guarded

    def _streaming(self, name: str, rule: Rule, behavior: Behavior, *, reads: bool) -> Behavior:
        gate, auditor = self._gate, self._auditor
        enter, identify = self._enter, self._identify
        half_calls = self._dispatch.half_calls

        async def serve(request: Any, context: Context, delivered: Delivered) -> None:
            enter(context)
            try:
                if type(request) is Refused:
                    raise request.error
                caller = identify(context)
                calling.set(caller.uri)
                caller.quota.begin_stream()
            except LogServiceError as error:
                auditor.denied(name, context, None, None, error)
                await _refuse(context, name, error)
            stream = GuardedStream(
                gate, auditor, name, caller, rule, context, delivered, tells_outcomes=reads
            )
            try:
                try:
                    if not reads:
                        await stream.admit(request)
                except LogServiceError as error:
                    await _refuse(context, name, error)
                await behavior(request, stream)
            finally:
                caller.quota.end_stream()
                noted(stream.ended)

        async def guarded(request: Any, context: Context) -> None:
            delivered = self._delivered(context)
            if not reads:
                half_calls.whole()
                delivered.add(_arrived.get())
                await serve(request, context, delivered)
                return
            delivered.streams[context] = time.monotonic()
            try:
                await serve(request, context, delivered)
            finally:
                del delivered.streams[context]

        return guarded


class Auditor:
    """Puts calls into the words of the audit log; without a log it says nothing."""

    def __init__(self, log: AuditLog | None) -> None:
        """`log` None: there are no identities to speak of."""
        self._log = log
        self.data = log is not None and log.data

    async def admitted(
        self, name: str, context: Context, caller: Caller, shard: ShardId, request: Any
    ) -> None:
        """A call of administration is about to run. Raises NotReady: then it must not."""
        if self._log is not None:
            line = self._line(name, context, caller, shard)
            await self._log.admit({**line, "decision": "allowed", "request": _told(request)})

    def ended(
        self,
        name: str,
        context: Context,
        caller: Caller,
        shard: ShardId,
        request: Any,
        response: Any,
    ) -> None:
        """A call has ended, with an answer or without."""
        if self._log is not None:
            line = self._line(name, context, caller, shard)
            code = context.code()
            outcome = "ok" if response is not None else getattr(code, "name", str(code))
            lsns = lsn_range(request, response)
            line |= {"decision": "allowed", "outcome": outcome, **lsns}
            self._log.record(line, admin=name in _ADMINISTRATION)

    def streamed(
        self,
        name: str,
        context: Context,
        caller: Caller,
        shard: ShardId,
        lsns: Mapping[str, object],
    ) -> None:
        """A stream has ended; `lsns`: what it was about."""
        if self._log is not None:
            line = self._line(name, context, caller, shard)
            self._log.record({**line, "decision": "allowed", "outcome": "ended", **lsns})

    def denied(
        self,
        name: str,
        context: Context,
        caller: Caller | None,
        shard: ShardId | None,
        error: LogServiceError,
    ) -> None:
        """A call was not let in; a limit is no denial."""
        if self._log is not None and error.reason in _DENIALS:
            line = self._line(name, context, caller, shard)
            self._log.deny({**line, "decision": "denied", "reason": error.reason.value})

    @staticmethod
    def _line(
        name: str, context: Context, caller: Caller | None, shard: ShardId | None
    ) -> dict[str, object]:
        line: dict[str, object] = {
            "who": caller.uri if caller is not None else "unknown",
            "from": context.peer(),
            "what": name,
            **trace.trace_ids(),
        }
        if shard is not None:
            line["shard"] = int(shard)
        return line


def _told(request: Any) -> str:
    """A request of administration as text; none of them carries a secret or a record."""
    return str(request).replace("\n", " ").strip()[:_REQUEST_CHARACTERS]


class GuardedStream:
    """The context of a stream, with every message under the gate's eye; else gRPC's own."""

    __slots__ = (
        "_admitted", "_auditor", "_caller", "_context", "_delivered", "_gate", "_listed", "_name",
        "_range", "_rule", "_shard", "_tells_outcomes",
    )  # fmt: skip

    def __init__(
        self,
        gate: Gate,
        auditor: Auditor,
        name: str,
        caller: Caller,
        rule: Rule,
        context: Context,
        delivered: Delivered,
        *,
        tells_outcomes: bool,
    ) -> None:
        """Nothing is admitted yet. `delivered`: to its connection. `tells_outcomes`:
        answers only say what became of messages that were let in, so they go out even if no more
        would be let in.
        """
        self._gate = gate
        self._auditor = auditor
        self._name = name
        self._range: dict[str, object] = {}
        self._caller = caller
        self._rule = rule
        self._context = context
        self._delivered = delivered
        self._listed: AccessList | None = None
        self._shard = HAKEEPER_SHARD
        self._admitted = False
        self._tells_outcomes = tells_outcomes

    def __getattr__(self, name: str) -> Any:
        """Whatever is not about messages."""
        return getattr(self._context, name)

    async def admit(self, request: Any) -> None:
        """The first message names the shard. Raises PermissionDenied."""
        self._shard = shard_of(self._rule, request)
        await self._ask()
        self._admitted = True

    def ended(self) -> None:
        """The stream is over."""
        if self._auditor.data and self._admitted:
            self._auditor.streamed(
                self._name, self._context, self._caller, self._shard, self._range
            )

    async def _ask(self) -> None:
        try:
            self._caller = self._gate.caller(self._context)
            self._listed = await self._gate.admit(self._caller, self._rule, self._shard)
        except LogServiceError as error:
            self._auditor.denied(self._name, self._context, self._caller, self._shard, error)
            raise

    async def read(self) -> Any:
        """The next message, or EOF. Raises LogServiceError for one that is not let in."""
        if not self._admitted:
            return await self._first()
        message = await self._context.read()
        if message is EOF:
            return message
        self._delivered.add(_arrived.get(), self._context)
        if type(message) is Refused:
            raise message.error
        if not self._gate.in_force(self._caller, self._listed):
            await self._ask()
        return await self._pay(message) if self._caller.quota.paced else message

    async def write(self, message: Any) -> None:
        """Send a message; the call ends without an answer when it is not taken for too long."""
        if not (self._tells_outcomes or self._gate.in_force(self._caller, self._listed)):
            await self._ask()
        quota = self._caller.quota
        if quota.counts_bytes:
            noted(_pay_answer, quota, message)
        if self._auditor.data:
            noted(self._note_range, message)
        try:
            async with asyncio.timeout(bounds.STREAM_WRITE_STALL_S):
                await self._context.write(message)
        except TimeoutError:
            # A status would wait behind what nobody reads. A handler that is cancelled leaves
            # without one, and gRPC resets the stream and frees what it holds.
            refused[f"{self._name}/STALLED"] += 1
            raise asyncio.CancelledError("nobody reads this stream") from None

    def _note_range(self, message: Any) -> None:
        self._range = stream_range(self._range, message)

    async def _first(self) -> Any:
        try:
            async with asyncio.timeout(bounds.STREAM_OPEN_TIMEOUT_S):
                message = await self._context.read()
        except TimeoutError as error:
            raise DeadlineExceeded("nothing was sent on the stream") from error
        if message is EOF:
            return message
        self._delivered.add(_arrived.get(), self._context)
        if type(message) is Refused:
            raise message.error
        await self.admit(message)
        return await self._pay(message) if self._caller.quota.paced else message

    async def _pay(self, message: Any) -> Any:
        quota = self._caller.quota
        wait_s = quota.take_message(message.ByteSize() if quota.counts_bytes else 0)
        if wait_s:
            await asyncio.sleep(wait_s)
        return message


def _measured(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def measured(data: bytes) -> Any:
        _arrived.set(len(data))
        return parse(data)

    return measured


def _pay_answer(quota: Quota, answer: Any) -> None:
    quota.take_bytes(answer.ByteSize())


def _entered(_: Context) -> None:
    """`_traced` has said whose call it is."""


def _behavior(handler: Any) -> Behavior:
    found: Behavior = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    return found


async def _refuse(context: Context, name: str, error: LogServiceError) -> NoReturn:
    refused[f"{name}/{error.reason.value}"] += 1
    await abort(context, error)
