"""Trace: which call of a client the work of this task belongs to.

A caller may send ``x-request-id`` and a W3C ``traceparent`` as gRPC metadata, and a traceparent
with each block of a stream. Lines that are logged while the call is served carry both. The trailing
metadata of a failed call gives the request id back. A request that is forwarded to the leader's
store takes both along. So one failure can be found in the logs of the client and of the stores.

The task keeps the call, not its ids: serving a call costs little, and the metadata is read only
when a line is logged. gRPC runs every call in a task of its own, so nothing has to be reset.
Requests that wait for a leader have left their tasks, so each of them remembers its own call
(`Waiting.call`). Ids come from outside: those that are not plain and short are left out.

INV-TRACE-1: metadata is read only while its call is served. gRPC keeps it in memory of the call,
and whoever asks a call for it that has ended reads what is there by then. But a task, a timer or a
pass that began in a call takes its context along, and may outlive it by days. So `current` is an
`OpenCall`, which knows nothing any more once the guard has ended it.

`Tracing` is the seam to a recorder of spans (`server.telemetry`); `NO_TRACING` records nothing.

Reference: W3C Trace Context, level 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from logservice_wire.errors import LogServiceError
from logservice_wire.value import value

REQUEST_ID: Final = "x-request-id"
TRACEPARENT: Final = "traceparent"

TRACEPARENT_BYTES: Final = 55
"""Length of every valid traceparent of version 00. Later versions may be longer; they are left out.
"""

CARRIED_BYTES_MAX: Final = 255
"""The ids of a forwarded request: a traceparent has 55 bytes, a request id at most 128."""

_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}", re.ASCII)
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}", re.ASCII)


class Call(Protocol):
    """What a call is known by. gRPC's context is one."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """What the caller sent along."""
        ...


class OpenCall:
    """A call that gRPC serves (INV-TRACE-1)."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        """`call`: gRPC's context."""
        self._call: Call | None = call

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        """What the caller sent along; nothing once the call is over."""
        return () if self._call is None else self._call.invocation_metadata() or ()

    def over(self) -> None:
        """The call has ended."""
        self._call = None


@value
class Carried:
    """A call whose ids did not come as metadata; an id that is absent is an empty string."""

    traceparent: str = ""
    request_id: str = ""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]]:
        return ((TRACEPARENT, self.traceparent), (REQUEST_ID, self.request_id))


current: ContextVar[Call | None] = ContextVar("logservice_call", default=None)
"""The call that this task serves; None for what the store does by itself."""


def trace_ids() -> dict[str, str]:
    """request_id, trace_id and span_id of the call being served; empty outside of one."""
    call = current.get()
    if call is None:
        return {}
    request_id, traceparent = plain_ids(call)
    found = {"request_id": request_id} if request_id else {}
    if traceparent:
        found["trace_id"], found["span_id"] = traceparent[3:35], traceparent[36:52]
    return found


def plain_ids(call: Call) -> tuple[str, str]:
    """The call's request id and traceparent; empty strings for what is absent or not plain."""
    request_id = traceparent = ""
    for key, text in call.invocation_metadata() or ():
        if key == REQUEST_ID and isinstance(text, str) and _PLAIN_ID.fullmatch(text):
            request_id = text
        elif key == TRACEPARENT and isinstance(text, str) and _TRACEPARENT.fullmatch(text):
            traceparent = text
    return request_id, traceparent


def answer_metadata() -> tuple[tuple[str, str], ...]:
    """What the trailing metadata of a failed call says about its request."""
    request_id = trace_ids().get("request_id")
    return ((REQUEST_ID, request_id),) if request_id is not None else ()


def encode(call: Call | None) -> bytes:
    """The ids as a forwarded request takes them along, at most CARRIED_BYTES_MAX; often empty."""
    if call is None:
        return b""
    request_id, traceparent = plain_ids(call)
    return f"{traceparent} {request_id}".encode() if request_id or traceparent else b""


def decode(data: bytes) -> Call | None:
    """Inverse of `encode`; None for anything else."""
    traceparent, space, request_id = data.decode("ascii", errors="replace").partition(" ")
    return Carried(traceparent, request_id) if space else None


class Span(Protocol):
    """A piece of work that is recorded while it goes on."""

    @property
    def call(self) -> Call | None:
        """The call that its parts belong to; it is `current` while the span goes on."""
        ...

    def end(self, failure: str) -> None:
        """The work is over; `failure` says why it failed, and is "" when it did not."""
        ...


class Tracing(Protocol):
    """A recorder of spans."""

    def begin(self, name: str, call: Call | None, **attributes: str | int) -> Span:
        """A part of `call` begins."""
        ...


class _NoSpan:
    __slots__ = ("call",)

    def __init__(self, call: Call | None) -> None:
        self.call = call

    def end(self, failure: str) -> None:
        pass


class NoTracing:
    """Records nothing."""

    def begin(self, name: str, call: Call | None, **attributes: str | int) -> Span:
        return _NoSpan(call)


NO_TRACING: Final = NoTracing()


@contextmanager
def span(tracing: Tracing, name: str, call: Call | None, **attributes: str | int) -> Iterator[None]:
    """What runs inside belongs to a new part of `call`, which ends with it."""
    one = tracing.begin(name, call, **attributes)
    before = current.set(one.call)
    failure = ""
    try:
        yield
    except LogServiceError as error:
        failure = error.reason.value
        raise
    except BaseException as error:
        failure = type(error).__name__
        raise
    finally:
        current.reset(before)
        one.end(failure)
