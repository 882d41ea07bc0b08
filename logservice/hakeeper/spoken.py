"""Spoken: a time in ticks as people say it."""

from __future__ import annotations

from logservice import bounds


def spoken(ticks: int) -> str:
    """A number of ticks in hours, minutes or seconds; never less than it is."""
    seconds = -(-max(0, ticks) // bounds.HAKEEPER_TICKS_PER_S)
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{-(-seconds // size)} {unit}"
    return f"{seconds} s"
