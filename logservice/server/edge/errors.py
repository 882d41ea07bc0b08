"""errors: a LogServiceError becomes a gRPC status with ErrorInfo; everything else is our bug.

Theory of operation. Handlers raise the classes of `logservice_wire.errors`; `handler` turns them
into the status, the message and the ``google.rpc.Status`` trailer of the one error table. Any other
exception that leaves a handler is a programmer error:

- an `InvariantViolation` ends the process (`server.crash`): our reasoning is wrong, and gRPC would
  only log it and go on;
- any other exception is logged with its traceback and answered with INTERNAL, which no client
  retries.

An error after the call took effect is reported as INV-EFFECT-1 says (`effects`).

Cancellation (the caller went away) passes through untouched: the proposal, if any, stays in the
log. A caller who leaves while an answer is being written shows as a failure of gRPC's core and is
treated the same.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
import grpc.aio
from grpc.aio import InternalError
from logservice_wire.errors import LogServiceError
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details

from logservice import trace
from logservice.invariants import InvariantViolation
from logservice.server.crash import crash
from logservice.server.edge import effects

ServiceT = TypeVar("ServiceT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[ServiceT, RequestT, Context], Awaitable[ResponseT]]

refused: Counter[str] = Counter()
"""Calls of this process that ended in an error, by ``Method/REASON``. The proto and the error table
bound its size; only the failing path pays for it.
"""

logger = logging.getLogger(__name__)


def _no_leaver(record: logging.LogRecord) -> bool:
    """Whether a line of gRPC's log is about anything but an answer whose caller has left."""
    return not (record.exc_info and isinstance(record.exc_info[1], InternalError))


# gRPC writes a traceback for each answer whose caller has left.
logging.getLogger("grpc._cython.cygrpc").addFilter(_no_leaver)


def handler(
    method: Method[ServiceT, RequestT, ResponseT],
) -> Method[ServiceT, RequestT, ResponseT]:
    """Wrap a method of a servicer, unary or streaming (with `context.read` and `context.write`)."""

    @functools.wraps(method)
    async def guarded(service: ServiceT, request: RequestT, context: Context) -> ResponseT:
        effects.begin()
        try:
            return await method(service, request, context)
        except LogServiceError as failure:
            error = effects.honest(failure)
            refused[f"{method.__name__}/{error.reason.value}"] += 1
            await abort(context, error)
        except InvariantViolation as violated:
            crash(violated)
        except grpc.aio.AbortError:
            raise
        except InternalError as left:
            raise _gone(left) from left
        except Exception as bug:  # the boundary: what arrives here is a bug of ours
            refused[f"{method.__name__}/INTERNAL"] += 1
            logger.exception("%s failed", method.__qualname__)
            await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(bug).__name__}")
            raise

    return guarded


async def abort(context: Context, error: LogServiceError) -> NoReturn:
    """End the call with the status of `error`."""
    try:
        await context.abort(
            grpc.StatusCode[error.status],
            error.message,
            ((STATUS_DETAILS_KEY, to_status_details(error)), *trace.answer_metadata()),
        )
    except InternalError as left:
        raise _gone(left) from left
    raise error


def _gone(failed: Exception) -> asyncio.CancelledError:
    """The core of gRPC took no message and no status: the call is over, because the caller left or
    the connection broke. A handler that leaves as cancelled says nothing more, and no error is
    counted.
    """
    return asyncio.CancelledError(f"the caller went away: {type(failed).__name__}")
