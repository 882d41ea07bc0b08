"""Failures of gRPC calls as typed errors, and after which of them a call may be repeated.

A store's own errors carry ErrorInfo and come back as they were raised. Errors of gRPC itself have
none. Then there is one question: can the request have taken effect? It cannot when no connection
existed (the caller checks that before, `ChannelPool.connect`). Once it was sent, a lost connection
leaves a mutating call's outcome unknown. Of the other codes, those that refuse a call before it is
served mean that it was not applied (INVALID_ARGUMENT, UNIMPLEMENTED, UNAUTHENTICATED,
PERMISSION_DENIED, a request over the length limit); after any other code the outcome of a mutating
call is unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import grpc
import grpc.aio
from logservice_wire.errors import (
    Busy,
    DeadlineExceeded,
    InvalidArgument,
    LogServiceError,
    NotReady,
    Outcome,
    PermissionDenied,
    Reason,
    TooLarge,
    Unauthenticated,
    UnknownOutcome,
)
from logservice_wire.status import STATUS_DETAILS_KEY, bare_status, from_status_details

from logservice_client.background import asked_to_end

_BROKEN: Final = "broken"
"""Metadata key of a failure that no repetition cures: the other side has a bug."""

ELSEWHERE: Final = frozenset(
    {Reason.NOT_LEADER, Reason.SHARD_NOT_FOUND, Reason.NOT_READY, Reason.HALTED}
)
"""This replica cannot serve the call; another one may."""

REPEATABLE: Final = ELSEWHERE | {Reason.BUSY, Reason.SEQUENCE_GAP}
"""Not applied, and worth another attempt within the deadline."""


@contextlib.contextmanager
def typed_failures(*, mutating: bool) -> Iterator[None]:
    """A call of gRPC that fails within it raises its typed error. So does one that is cancelled
    beneath a task that goes on: gRPC serves it with tasks of its own, which a program may cancel.
    """
    try:
        yield
    except grpc.aio.AioRpcError as failure:
        raise error_of(failure, mutating=mutating) from failure
    except asyncio.CancelledError:
        if asked_to_end():
            raise
        raise _by_code(grpc.StatusCode.CANCELLED, "a task of gRPC", mutating=mutating) from None


def error_of(failure: grpc.RpcError, *, mutating: bool) -> LogServiceError:
    """The typed error of a failed call."""
    rpc: Any = failure
    for key, value in rpc.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY:
            error = from_status_details(value)
            if error is not None:
                return error
    return _by_code(rpc.code(), rpc.details(), mutating=mutating)


def error_of_status(status: bytes, *, mutating: bool) -> LogServiceError:
    """The typed error of a part of a call: `status` is a ``google.rpc.Status``."""
    error = from_status_details(status)
    if error is not None:
        return error
    number, details = bare_status(status)
    codes = {code.value[0]: code for code in grpc.StatusCode}
    return _by_code(codes.get(number, grpc.StatusCode.UNKNOWN), details, mutating=mutating)


def _by_code(code: grpc.StatusCode, details: str | None, *, mutating: bool) -> LogServiceError:
    message = f"{code.name}: {details}"
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED | grpc.StatusCode.ABORTED:
            lost, why = "the connection with the store was lost", _said(details)
            return UnknownOutcome(lost, why=why) if mutating else NotReady(lost, why=why)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded("the store did not answer in time")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            # gRPC refuses a message over its length limit with this code. The message is either the
            # request, before it was served, or the answer, after whatever was done.
            if "larger than max" in message:
                by_server = "SERVER: " in message
                unserved = by_server != ("Sent message" in message)
                if unserved or not mutating:
                    return TooLarge(message)
                return UnknownOutcome(message, **{_BROKEN: code.name})
            # The limit on concurrent calls refuses a call before it is served. Anything else under
            # this code (too many pings, say) may end one that was under way.
            if "Concurrent RPC limit" in message or not mutating:
                return Busy(message)
            return UnknownOutcome(message)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.UNIMPLEMENTED:
            return InvalidArgument(message)
        case grpc.StatusCode.UNAUTHENTICATED:
            return Unauthenticated(message)
        case grpc.StatusCode.PERMISSION_DENIED:
            return PermissionDenied(message)
    return UnknownOutcome(message, **{_BROKEN: code.name})


def _said(details: str | None) -> str:
    """What gRPC says of a lost connection, if that means anything to who reads it."""
    return "" if not details or "Stream removed" in details else details


def answered(error: LogServiceError, *, mutating: bool) -> LogServiceError:
    """`error` as the end of a call: what changes nothing has no unknown outcome."""
    if mutating or error.outcome is not Outcome.UNKNOWN:
        return error
    told = NotReady(error.message, **error.metadata)
    told.__cause__ = error
    return told


def refused_for_now(error: LogServiceError) -> bool:
    """Whether nothing was applied, and another attempt may succeed. What a later cluster version
    takes is not refused for now: a person raises that.
    """
    return error.reason in REPEATABLE and not error.number("needed")


def may_repeat(error: LogServiceError, *, mutating: bool, idempotent: bool) -> bool:
    """Whether the same request may be sent again, possibly to another replica."""
    if error.reason in REPEATABLE:
        return refused_for_now(error)
    if error.outcome is Outcome.UNKNOWN and error.reason is not Reason.SESSION_EXPIRED:
        return _BROKEN not in error.metadata and (idempotent or not mutating)
    return False
