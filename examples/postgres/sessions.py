"""Sessions of a shipper, one after the other: whatever may become right by another try ends one of
them and begins the next.

What cannot become right ends the shipper with its reason, e.g. that another one has the log
(`ownership`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from logservice_client import Fenced, LogServiceError, Outcome, WrongExpectedLsn

from examples.postgres.ownership import LogTaken
from examples.postgres.protocol import TRANSIENT, ConnectionLost, ServerError

PAUSE_S: Final = 0.3
"""Between two sessions."""


class ShippingLost(Exception):
    """This session is over; another one may do better."""


class Sessions:
    """`say` is told why they end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = ""

    async def run(self, session: Callable[[], Awaitable[None]]) -> NoReturn:
        """For ever. Raises LogTaken, and what no waiting makes better."""
        while True:
            try:
                await session()
            except (ConnectionLost, ShippingLost) as error:
                self._once(str(error))
            except ServerError as error:
                if error.code not in TRANSIENT:
                    raise
                self._once(str(error))
            except Fenced as error:
                raise LogTaken(f"{error.holder!r} has the log now: {error}") from error
            except LogServiceError as error:
                if not _may_get_better(error):
                    raise
                self._once(str(error))
            await asyncio.sleep(PAUSE_S)

    def goes_on(self, text: str) -> None:
        """Say that it works now."""
        self._say(text)
        self._said = ""

    def _once(self, reason: str) -> None:
        """Say why a session ended, but not every third of a second."""
        if reason != self._said:
            self._say(f"interrupted: {reason}")
        self._said = reason


def _may_get_better(error: LogServiceError) -> bool:
    return (
        error.retryable
        or error.outcome is Outcome.UNKNOWN
        or isinstance(error, WrongExpectedLsn)  # an append before it was not applied
    )
