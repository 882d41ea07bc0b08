"""query: the parameters of a document, each of which comes once and is checked by its own rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from logservice import bounds

Rule = Callable[[str], object]
"""Makes a value of a text; raises ValueError with what is expected."""


class BadQuery(ValueError):
    """A parameter that this document does not have, or a value that it cannot have."""


def values_of(query: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The values of a query string. Raises BadQuery."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=len(rules))
    except ValueError as error:
        raise BadQuery("not a query that can be read") from error
    if len(dict(pairs)) < len(pairs):
        raise BadQuery("a parameter comes twice")
    values: dict[str, Any] = {}
    for name, said in pairs:
        if name not in rules:
            raise BadQuery(f"there is no such parameter; there are {', '.join(rules)}")
        try:
            values[name] = rules[name](said)
        except ValueError as error:
            raise BadQuery(f"{name}: {error}") from error
    return values


def text(most: int) -> Callable[[str], str]:
    """Any text of so many characters."""

    def parsed(said: str) -> str:
        if len(said) > most:
            raise ValueError(f"at most {most} characters")
        return said

    return parsed


def searched(said: str) -> str:
    """What rows are to contain, in lower case."""
    return text(bounds.ADMIN_FILTER_CHARS_MAX)(said).strip().lower()


def flag(said: str) -> bool:
    """0 or 1."""
    if said not in ("0", "1"):
        raise ValueError("0 or 1")
    return said == "1"


def one_of(*known: str) -> Callable[[str], str]:
    """One of these words."""

    def parsed(said: str) -> str:
        if said not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return said

    return parsed


def number(least: int, most: int) -> Callable[[str], int]:
    """A whole number in these bounds."""

    def parsed(said: str) -> int:
        if not (said.isascii() and said.isdecimal() and len(said) <= len(str(most))):
            raise ValueError(f"a number from {least} to {most}")
        if not least <= int(said) <= most:
            raise ValueError(f"a number from {least} to {most}")
        return int(said)

    return parsed
