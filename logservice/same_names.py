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
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def copied(target: type[T], source: object, /, **others: Any) -> T:
    """A `target` with the values that `source` has under the same names; `others` are the rest."""
    form: Any = target
    made: T = _copier(form, tuple(others))(source, others)
    return made


@functools.cache
def _copier(form: Any, given: tuple[str, ...]) -> Callable[[object, Mapping[str, Any]], Any]:
    """What makes a `form` of a source and of the values for the names in `given`.

    It is prepared once, because heartbeats make thousands: names are looked up here and not for
    each value.
    """
    names = _names(form)
    if unknown := set(given) - set(names):
        raise TypeError(f"{form.__name__} has no {', '.join(sorted(unknown))}")
    shared = tuple(name for name in names if name not in given)
    values_of = _values_of(shared)
    if not _takes_in_order(form, names):
        return lambda source, others: form(
            **dict(zip(shared, values_of(source), strict=True)), **others
        )
    order = [(*shared, *given).index(name) for name in names]
    if len(order) == 1:
        return lambda source, others: form(*values_of(source), *others.values())
    in_order = operator.itemgetter(*order)
    return lambda source, others: form(*in_order((*values_of(source), *others.values())))


def _values_of(names: tuple[str, ...]) -> Callable[[object], Any]:
    """A function that takes the values of these attributes from a source."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda source: tuple(getattr(source, name) for name in names)


def _takes_in_order(form: Any, names: tuple[str, ...]) -> bool:
    """Whether `form` can be called with the values of its fields, without their names."""
    try:
        parameters = inspect.signature(form).parameters
    except (TypeError, ValueError):
        return False
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(parameters) == names and all(one.kind is by_place for one in parameters.values())


def _names(form: Any) -> tuple[str, ...]:
    """The fields of a dataclass, of a msgspec struct, or of a protobuf message."""
    if dataclasses.is_dataclass(form):
        return tuple(field.name for field in dataclasses.fields(form))
    if hasattr(form, "__struct_fields__"):
        return tuple(form.__struct_fields__)
    return tuple(form.DESCRIPTOR.fields_by_name)
