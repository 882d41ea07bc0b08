"""Single values of options: each is read strictly, and a mistake names the option.

What Python would take for a number is more than what a person means by one: ``1_000``, ``true`` or
``7.9`` in a place for an LSN is a mistake, and reading it as something else loses records. So only
plain decimal digits are a number here, and an object of JSON has each of its keys once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

EARLIEST: Final = -2
LATEST: Final = -1

WORDS: Final = {EARLIEST: "earliest", LATEST: "latest"}

NUMBER_MAX: Final = 2**63 - 1
"""Spark's BIGINT, which LSNs and ids of shards have to fit."""

_MS_MAX: Final = 2**53
"""So that microseconds fit the request; the year is beyond 200,000."""

_DIGITS: Final = re.compile(r"[0-9]{1,19}")


class OptionError(ValueError):
    """An option is missing, unknown or wrong; the message names it."""


def number(text: str) -> int | None:
    """The number that `text` is in plain decimal digits; None when it is none."""
    text = text.strip()
    if not _DIGITS.fullmatch(text) or int(text) > NUMBER_MAX:
        return None
    return int(text)


def positive(options: Mapping[str, str], name: str, default: int, most: int = NUMBER_MAX) -> int:
    """A number above 0 and up to `most`."""
    text = options.get(name)
    if text is None:
        return default
    found = number(text)
    if not found or found > most:
        bound = "" if most == NUMBER_MAX else f" and up to {most}"
        raise OptionError(f"option '{name}': {text!r} is not a number above 0{bound}")
    return found


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """A time above 0, fractions too."""
    text = options.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError as error:
        raise OptionError(f"option '{name}': {text!r} is not a number") from error
    if not 0 < value < float("inf"):
        raise OptionError(f"option '{name}': {text!r} is not a time")
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option '{name}': {text!r} is neither true nor false")
    return text.strip().lower() == "true"


def time_us(options: Mapping[str, str], name: str) -> int:
    """Microseconds of a time that is given in milliseconds since 1970, as Kafka's source counts;
    0 when it is not given.
    """
    text = options.get(name.lower())
    if text is None:
        return 0
    found = number(text)
    if not found or found >= _MS_MAX:
        raise OptionError(f"option '{name}': {text!r} is not a time in milliseconds since 1970")
    return found * 1000


def lsn(text: str, name: str, special: Collection[int]) -> int:
    """An LSN, or one of the `special` ones by its word or number."""
    for value in special:
        if text.strip().lower() in (WORDS[value], str(value)):
            return value
    found = number(text)
    if not found:
        raise OptionError(f"option '{name}': {text!r} is neither an LSN (from 1) {_nor(special)}")
    return found


def lsns_by_shard(text: str, name: str, special: Collection[int]) -> dict[int, int]:
    """An LSN for each shard, from a JSON object."""
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except ValueError as error:
        raise OptionError(f"option '{name}': cannot read {text!r}: {error}") from error
    if not isinstance(pairs, _Pairs):
        raise OptionError(f"option '{name}': a JSON object is needed, not {text!r}")
    found: dict[int, int] = {}
    for key, value in pairs.items:
        shard = number(key)
        if not shard or str(shard) != key:
            raise OptionError(f"option '{name}': {key!r} is not the id of a shard (from 1)")
        if shard in found:
            raise OptionError(f"option '{name}': shard {shard} is there twice")
        if type(value) is not int or not (1 <= value <= NUMBER_MAX or value in special):
            raise OptionError(
                f"option '{name}': shard {shard}: {json.dumps(_plain(value))} is neither an LSN "
                f"(from 1) {_nor(special)}"
            )
        found[shard] = value
    return found


class _Pairs:
    """A JSON object with its keys as they stand there, also twice."""

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items


def _plain(value: Any) -> Any:
    return dict(value.items) if isinstance(value, _Pairs) else value


def _nor(special: Collection[int]) -> str:
    words = (f"{WORDS[value]} ({value})" for value in special)
    return "nor " + " nor ".join(words)
