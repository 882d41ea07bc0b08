"""same_names: one description becomes another without a list of fields in between.

A replica, a directory and a store are described in several forms, because each form is a format of
its own: a heartbeat, HAKeeper's answer, a protobuf message, a document of the API. A field that
several forms share has the same name in all of them. `copied` fills a form with the fields that its
source has, too, and the caller names the others. So a new field is declared where it is measured
and where it is shown, and passes through in between.

A field that neither the source nor the caller has is an AttributeError at the first use, not a
silent default.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Collection
from typing import Any, TypeVar

T = TypeVar("T")


def copied(target: type[T], source: object, /, **others: Any) -> T:
    """A `target` with the values that `source` has under the same names; `others` are the rest."""
    form: Any = target
    names, values_of = _shared(form, tuple(others))
    return target(**dict(zip(names, values_of(source), strict=True)), **others)


@functools.cache
def _shared(form: Any, given: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[object], Any]]:
    """The fields that are not given, and a function that takes their values from a source."""
    names = tuple(name for name in _names(form) if name not in given)
    if len(names) > 1:
        return names, operator.attrgetter(*names)
    return names, lambda source: tuple(getattr(source, name) for name in names)


def _names(form: Any) -> Collection[str]:
    """The fields of a dataclass, of a msgspec struct, or of a protobuf message."""
    if dataclasses.is_dataclass(form):
        return tuple(field.name for field in dataclasses.fields(form))
    if hasattr(form, "__struct_fields__"):
        return tuple(form.__struct_fields__)
    return tuple(form.DESCRIPTOR.fields_by_name)
