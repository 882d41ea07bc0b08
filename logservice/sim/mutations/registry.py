"""The table of seeded bugs, and how they are put into a running process.

A function is replaced where it is looked up, so a mutation whose function is gone fails loudly. So
does one that takes other arguments than its function: it would die of a TypeError, whatever the
checkers see.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from logservice.sim.config import SimConfig

MUTATIONS: dict[str, Callable[[], None]] = {}

WORLDS: dict[str, Callable[[SimConfig], None]] = {}
"""What a mutation changes in the drawn worlds, if it is about an option that few of them have."""


def mutation(apply: Callable[[], None]) -> Callable[[], None]:
    """Enter a seeded bug into the table, under its function's name."""
    MUTATIONS[_name(apply)] = apply
    return apply


def mutation_in(
    world: Callable[[SimConfig], None],
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A seeded bug of something that is off in most worlds, and the worlds that have it."""

    def enter(apply: Callable[[], None]) -> Callable[[], None]:
        WORLDS[_name(apply)] = world
        return mutation(apply)

    return enter


def _name(apply: Callable[[], None]) -> str:
    return apply.__name__.strip("_").replace("_", "-")


def wrap(owner: Any, name: str, mutate: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by `mutate(original)`; TypeError when that takes other arguments."""
    original = getattr(owner, name)
    changed = mutate(original)
    if callable(original):
        places = inspect.signature(original).parameters
        given = [one for one in places.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        named = {one.name: None for one in places.values() if one.kind is one.KEYWORD_ONLY}
        inspect.signature(changed).bind(*given, **named)
    setattr(owner, name, changed)


class Without:
    """Passes everything on but for some calls, which do nothing."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            return lambda *_: None
        return getattr(self._inner, name)
