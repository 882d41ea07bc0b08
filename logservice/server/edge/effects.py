"""effects: what may still be said of a call once it has taken effect.

Theory of operation. A method that changes something waits for one answer, the log's or HAKeeper's,
and that answer decides the call's outcome. Whatever happens afterwards (reading the log's position,
building the response, the audit log, quotas, spans) only reports it. So the method waits with
`effect`, which remembers for the rest of the call that it took effect, and a later error passes
through `honest` on its way to the caller.

INV-EFFECT-1 (G5): an error that says "not applied" is never the answer to a call that took effect;
a failure after the effect can at most turn a known outcome into an unknown one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, ParamSpec, TypeVar

from logservice_wire.errors import LogServiceError, Outcome, UnknownOutcome

T = TypeVar("T")
P = ParamSpec("P")

_took_effect: Final[ContextVar[bool]] = ContextVar("took_effect", default=False)
"""Whether the call of this task has taken effect; gRPC serves each call in its own task."""

logger = logging.getLogger(__name__)


def begin() -> None:
    """A call begins: nothing has taken effect."""
    _took_effect.set(False)


async def effect(work: Awaitable[T]) -> T:
    """Wait for what decides the call's outcome; once it succeeds, the call has taken effect."""
    done = await work
    _took_effect.set(True)
    return done


def took_effect() -> bool:
    """Whether the call that this task serves has taken effect."""
    return _took_effect.get()


def honest(error: LogServiceError) -> LogServiceError:
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
