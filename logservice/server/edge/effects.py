"""effects: what may still be said of a call once it has taken effect.

Theory of operation. A method that changes something waits for one answer, that of the log or of
HAKeeper; there its outcome is decided. Whatever comes afterwards (finding out where the log stands,
building the answer, the audit log, quotas, spans) only tells of it. So the method waits by
`effect`, which remembers for the rest of this call that there was one, and an error that comes
later goes through `honest` on its way to the caller.

INV-EFFECT-1 (G5): an error that says "not applied" is never the answer of a call that took effect;
what fails afterwards turns a known outcome into an unknown one at most.
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
"""Of the call that this task serves; gRPC serves each in a task of its own."""

logger = logging.getLogger(__name__)


def begin() -> None:
    """A call begins: nothing has taken effect."""
    _took_effect.set(False)


async def effect(work: Awaitable[T]) -> T:
    """Wait for what decides the call's outcome; when it succeeds the call has taken effect."""
    done = await work
    _took_effect.set(True)
    return done


def took_effect() -> bool:
    """Whether the call that this task serves has."""
    return _took_effect.get()


def honest(error: LogServiceError) -> LogServiceError:
    """INV-EFFECT-1: what the caller is told instead of `error`."""
    if not _took_effect.get() or error.outcome is Outcome.UNKNOWN:
        return error
    return UnknownOutcome(f"it took effect, but there is no answer: {error.message}")


def noted(note: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Note something about a call whose outcome is decided; a failure is only logged."""
    try:
        note(*args, **kwargs)
    except Exception:  # INV-EFFECT-1: the caller gets the outcome, whatever fails here
        logger.exception("a call could not be noted")
