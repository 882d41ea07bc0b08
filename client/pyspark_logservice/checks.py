"""Single values of options: each is read strictly, and a mistake names the option.

What Python would take for a number is more than what a person means by one: ``1_000``, ``true`` or
``7.9`` in a place for an LSN is a mistake, and reading it as something else loses records. So only
plain decimal digits are a number here, and an object of JSON has each of its keys once.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark_logservice.kafka_names import called_here

EARLIEST: Final = -2
LATEST: Final = -1

WORDS: Final = {EARLIEST: "earliest", LATEST: "latest"}

NUMBER_MAX: Final = 2**63 - 1
"""Spark's BIGINT, which LSNs and ids of shards have to fit."""

MS_MIN: Final = 10**11
"""3 March 1973. A smaller number is a time in seconds: until the year 5138 these are below it."""

MS_MAX: Final = 10**14
"""The year 5138. A larger number is a time in microseconds or nanoseconds: these are above it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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
    text = options.get(name.lower())
    if text is None:
        return default
    found = number(text)
    if not found or found > most:
        bound = "" if most == NUMBER_MAX else f" and up to {most}"
        raise OptionError(f"option '{name}': {text!r} is not a number above 0{bound}")
    return found


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """A time above 0, fractions too."""
    text = options.get(name.lower())
    try:
        value = default if text is None else float(text)
    except ValueError as error:
        raise OptionError(f"option '{name}': {text!r} is not a number") from error
    if not 0 < value < float("inf"):
        raise OptionError(f"option '{name}': {text!r} is not a time")
    return value


def boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false."""
    text = options.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise OptionError(f"option '{name}': {text!r} is neither true nor false")
    return text.strip().lower() == "true"


def time_us(options: Mapping[str, str], name: str) -> int:
    """Microseconds since 1970 of a time that is given in ISO 8601 with its zone, or as a number of
    milliseconds, as Kafka's source counts; 0 when it is not given.
    """
    text = options.get(name.lower())
    if text is None:
        return 0
    found = number(text)
    if found is None:
        return _iso_us(text, name)
    if not MS_MIN <= found < MS_MAX:
        unit = "seconds" if 0 < found < MS_MIN else "no milliseconds"
        raise OptionError(
            f"option '{name}': {text.strip()} is {unit}: a number is milliseconds since 1970. "
            "Write 2026-11-29T14:30:00Z, or 13 digits"
        )
    return found * 1000


def _iso_us(text: str, name: str) -> int:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise OptionError(
            f"option '{name}': {text!r} is not a time. Write 2026-11-29T14:30:00Z, or milliseconds "
            "since 1970"
        ) from error
    if found.tzinfo is None:
        raise OptionError(
            f"option '{name}': {text!r} has no time zone. Add one, as in 2026-11-29T14:30:00Z or "
            "2026-11-29T14:30:00+01:00"
        )
    us = (found - _EPOCH) // timedelta(microseconds=1)
    if us <= 0:
        raise OptionError(f"option '{name}': {text!r} is before 1970")
    return us


def check_known(
    given: Iterable[str], known: Iterable[str], others: Collection[str] = (), of: str = ""
) -> None:
    """Raise OptionError for a name that is neither `known` nor, in lower case, one of `others`. It
    names the option that was probably meant. `of`: what takes these options, for the message.
    """
    names = {name.lower(): name for name in known}
    for name in sorted(given):
        lower = name.lower()
        if lower in names or lower in others:
            continue
        raise OptionError(f"unknown option {name!r}{of}{_meant(lower, names)}")


def _meant(lower: str, names: Mapping[str, str]) -> str:
    here = called_here(lower)
    if here is not None and here.lower() in names:
        return f": what Kafka's calls so is {here!r} here"
    close = difflib.get_close_matches(lower, names, 1)
    if close:
        return f"; did you mean {names[close[0]]!r}?"
    return f"; there are: {', '.join(names.values())}"


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
