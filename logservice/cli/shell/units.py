"""units: what a person reads for a field: the name without its unit, the figure with it.

The fields of an API end with their unit (``disk_used_bytes``, ``age_ticks``), and JSON has them as
they are. A table says ``disk used`` and ``1.5 GiB``. Figures keep two to three digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logservice.bounds import HAKEEPER_TICKS_PER_S
from logservice.cli.shell.moment import moment_text

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_TIMES: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def size(number: float) -> str:
    """A number of bytes, for people."""
    power = 0
    while number >= 1024 and power < len(_SIZES) - 1:
        number /= 1024
        power += 1
    digits = 1 if number < 9.95 and number != int(number) else 0
    return f"{number:.{digits}f} {_SIZES[power]}"


def length(seconds: float) -> str:
    """A length of time, for people: two units at most."""
    if seconds < 0:
        return f"-{length(-seconds)}"
    if 0 < seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    if 0 < seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    left = round(seconds)
    said: list[tuple[int, str]] = []
    for unit_s, unit in _TIMES:
        number, left = divmod(left, unit_s)
        if number or said:
            said.append((number, unit))
    return " ".join(f"{number} {unit}" for number, unit in said[:2] if number)


_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "_bytes_per_s": lambda number: f"{size(number)}/s",
    "_per_s": lambda number: f"{number}/s",
    "_bytes": size,
    "_s_ago": lambda number: f"{length(number)} ago",
    "_s": length,
    "_ms": lambda number: length(number / 1e3),
    "_us": lambda number: length(number / 1e6),
    "_ticks": lambda number: length(number / HAKEEPER_TICKS_PER_S),
}
"""The end of a field's name -> its figure in words; the first that fits counts."""

_TICKS: Final = "ticks_"
"""How a field begins that counts HAKeeper's ticks since something."""

_MOMENTS: Final = frozenset({"archived_us", "last_append_us"})
"""Fields that count from 1970."""


def heading(field: str) -> str:
    """The field's name, for people."""
    return field.removeprefix(_TICKS).removesuffix(_unit(field)).replace("_", " ")


def figure(field: str, number: float) -> str:
    """A number of the field, for people."""
    if field in _MOMENTS:
        return moment_text(int(number))
    if field == "bytes":
        return size(number)
    if field.startswith(_TICKS):
        return length(number / HAKEEPER_TICKS_PER_S)
    unit = _unit(field)
    return _UNITS[unit](number) if unit else str(number)


def _unit(field: str) -> str:
    return next((unit for unit in _UNITS if field.endswith(unit)), "")
