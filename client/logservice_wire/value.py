"""value: the decorator of small immutable values that are made by the thousand.

The type checker treats such a class as a frozen dataclass and refuses every assignment. At run time
it is an ordinary dataclass with slots: ``frozen=True`` sets each field by a call of its own, which
costs about three times as much per object, on a path that makes a dozen objects per message. Values
that are not made in such numbers stay ``@dataclass(frozen=True, slots=True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
@dataclass_transform(frozen_default=True)
def value(cls: type[T], /) -> type[T]: ...


@overload
@dataclass_transform(frozen_default=True)
def value(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


def value(
    cls: type[T] | None = None, /, *, kw_only: bool = False
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make `cls` a value class: slots, equality and hash by its fields."""
    decorate = dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
    return decorate if cls is None else decorate(cls)
