"""call: how long a call may take, whether it took effect, and the status it ends with.

Theory of operation. gRPC serves each call in its own task, and `handler` stands around the method
that answers it.

*Its time.* When a client's deadline passes, gRPC answers in the store's place with
DEADLINE_EXCEEDED and no ErrorInfo, and nobody knows what became of the request. So a request gets a
little less time than its caller has (`in_time`). When that time is over, the NodeHost decides about
the request at once instead of at its next look at deadlines: NOT_READY when nothing was proposed
(no leader took it), an unknown outcome when something was.

*Its effect.* A method that changes something waits for one answer, the log's or HAKeeper's, and
that answer decides the call's outcome. Whatever happens afterwards (reading the log's position,
building the response, the audit log, quotas, spans) only reports it. So the method waits with
`effect`, which remembers for the rest of the call that it took effect, and a later error passes
through `_honest` on its way to the caller.

INV-EFFECT-1 (G5): an error that says "not applied" is never the answer to a call that took effect;
a failure after the effect can at most turn a known outcome into an unknown one.

*Its end.* Methods raise the classes of `logservice_wire.errors`; `handler` turns them into the
status, the message and the ``google.rpc.Status`` trailer of the one error table. Any other
exception that leaves a method is a programmer error:

- an `InvariantViolation` ends the process (`server.crash`): our reasoning is wrong, and gRPC would
  only log it and go on;
- any other exception is logged with its traceback and answered with INTERNAL, which no client
  retries.

Cancellation (the caller went away) passes through untouched: the proposal, if any, stays in the
log. A caller who leaves while an answer is being written shows as a failure of gRPC's core and is
treated the same.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

import grpc
import grpc.aio
from grpc.aio import InternalError
from logservice_wire.errors import LogServiceError, Outcome, UnknownOutcome
from logservice_wire.status import STATUS_DETAILS_KEY, to_status_details

from logservice import bounds, trace
from logservice.config import LimitsSection
from logservice.ids import ShardId
from logservice.invariants import InvariantViolation
from logservice.server.crash import crash
from logservice.server.edge.token_addresses import moved_error

CANCELLED: Final = "CANCELLED"
INTERNAL: Final = "INTERNAL"

T = TypeVar("T")
P = ParamSpec("P")
ServiceT = TypeVar("ServiceT")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[ServiceT, RequestT, Context], Awaitable[ResponseT]]

refused: Counter[str] = Counter()
"""Calls of this process that ended in an error, by ``Method/REASON``. The proto and the error table
bound its size; only the failing path pays for it.
"""

_took_effect: Final[ContextVar[bool]] = ContextVar("took_effect", default=False)
"""Whether the call of this task has taken effect."""

_reason: Final[ContextVar[str]] = ContextVar("reason", default="")
"""Why the call of this task failed; empty as long as it has not."""

_EXPIRE_AFTER_S: Final = 0.002
"""How much later the request's own deadline is than the timer, which was set before it."""

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
        _took_effect.set(False)
        try:
            return await method(service, request, context)
        except LogServiceError as failure:
            error = _honest(failure)
            failed(method.__name__, error.reason.value)
            await abort(context, error)
        except InvariantViolation as violated:
            crash(violated)
        except grpc.aio.AbortError:
            raise
        except InternalError as left:
            raise _gone(left) from left
        except Exception as bug:  # the boundary: what arrives here is a bug of ours
            failed(method.__name__, INTERNAL)
            logger.exception("%s failed", method.__qualname__)
            await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(bug).__name__}")
            raise

    return guarded


async def abort(context: Context, error: LogServiceError) -> NoReturn:
    """End the call with the status of `error`."""
    error = moved_error(error)
    try:
        await context.abort(
            grpc.StatusCode[error.status],
            error.message,
            ((STATUS_DETAILS_KEY, to_status_details(error)), *trace.answer_metadata()),
        )
    except InternalError as left:
        raise _gone(left) from left
    raise error


def failed(method: str, reason: str) -> None:
    """Count that the call of this task has failed."""
    refused[f"{method}/{reason}"] += 1
    _reason.set(reason)


def failure_of(error: BaseException) -> str:
    """Why the call of this task failed, which `error` has ended."""
    return _reason.get() or (CANCELLED if isinstance(error, asyncio.CancelledError) else INTERNAL)


def _gone(left: Exception) -> asyncio.CancelledError:
    """The core of gRPC took no message and no status: the call is over, because the caller left or
    the connection broke. A handler that leaves as cancelled says nothing more, and no error is
    counted.
    """
    return asyncio.CancelledError(f"the caller went away: {type(left).__name__}")


# --- its time ------------------------------------------------------------------------------------


def timeout_s(context: Context, limits: LimitsSection) -> float:
    """Seconds this call may take from now on: its caller's, less the margin, or the default.

    Without a deadline a proposal on a shard that lost its quorum would be held for ever.
    """
    remaining: float | None = context.time_remaining()
    if remaining is None:
        return limits.rpc_timeout_default_s
    return min(remaining - _margin_s(remaining), limits.rpc_timeout_max_s)


def time_left_s(context: Context) -> float:
    """Seconds that this call may wait for its turn, so that the answer to a call that had none
    leaves before its caller's deadline.
    """
    remaining: float | None = context.time_remaining()
    if remaining is None:
        return bounds.RPC_TIMEOUT_DEFAULT_S
    return min(remaining - _margin_s(remaining), bounds.RPC_TIMEOUT_MAX_S)


def _margin_s(remaining_s: float) -> float:
    return min(bounds.DEADLINE_MARGIN_S, remaining_s * bounds.DEADLINE_MARGIN_SHARE)


@contextmanager
def in_time(
    context: Context, limits: LimitsSection, expire: Callable[[ShardId], None], shard: ShardId
) -> Iterator[float]:
    """Whatever is asked of `shard` inside is answered within the seconds that this yields.

    `expire`: the NodeHost's method.
    """
    limit_s = timeout_s(context, limits)
    timer = asyncio.get_running_loop().call_later(limit_s + _EXPIRE_AFTER_S, expire, shard)
    try:
        yield limit_s
    finally:
        timer.cancel()


# --- its effect ----------------------------------------------------------------------------------


async def effect(work: Awaitable[T]) -> T:
    """Wait for what decides the call's outcome; once it succeeds, the call has taken effect."""
    done = await work
    _took_effect.set(True)
    return done


def took_effect() -> bool:
    """Whether the call that this task serves has taken effect."""
    return _took_effect.get()


def _honest(error: LogServiceError) -> LogServiceError:
    """What the caller is told instead of `error`, by INV-EFFECT-1."""
    if not _took_effect.get() or error.outcome is Outcome.UNKNOWN:
        return error
    return UnknownOutcome(f"it took effect, but there is no answer: {error.message}")


def noted(note: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Note something about a call whose outcome is decided; a failure is only logged."""
    try:
        note(*args, **kwargs)
    except Exception:  # INV-EFFECT-1: the caller gets the outcome, whatever fails here
        logger.exception("a call could not be noted")
