"""A moment on a command line: ISO 8601 (without a zone it is UTC), or seconds since 1970."""

from __future__ import annotations

import datetime
import re
from typing import Final

import click

_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,6})?")
_ONE_US: Final = datetime.timedelta(microseconds=1)
_BEGIN: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def moment_us(text: str) -> int:
    """Microseconds since 1970; raises click.BadParameter."""
    if _SECONDS.fullmatch(text):
        seconds, _, part = text.partition(".")
        return int(seconds) * 1_000_000 + int(part.ljust(6, "0"))
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is neither ISO 8601 (2026-11-25T16:40:00Z) nor seconds since 1970"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - _BEGIN) // _ONE_US


def moment_text(us: int) -> str:
    """The other way, to the second; a number beyond the calendar, which a store may say, as it
    is.
    """
    try:
        return (_BEGIN + us * _ONE_US).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return str(us)
