"""duration: the type of every option that is a length of time: ``90``, ``90s``, ``15m``, ``2h``.

A number alone is seconds. A length of nothing is refused, because some verbs take it for their own
end: a pin for no time at all would be an unpin.
"""

from __future__ import annotations

import re
from typing import Final

import click

_LENGTH: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})([smhd]?)", re.ASCII)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(value: str | float) -> float:
    """The seconds, as the type of an option. A default is a number already."""
    if isinstance(value, float):
        return value
    found = _LENGTH.fullmatch(value)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0:
        raise click.BadParameter(f"expected a time such as 90, 90s, 15m, 2h or 1d, not {value!r}")
    return seconds
