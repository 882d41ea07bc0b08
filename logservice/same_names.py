"""same_names: one description becomes another without a list of fields in between.

A replica, a directory and a store are told of in several forms, because each form is a format of
its own: a heartbeat, HAKeeper's answer, a protobuf message, a document of the API. What they share
they call by the same name. `copied` fills a form from what it has in common with its source, and
the caller names the rest. So a new field is declared where it is measured and where it is shown,
and passes through in between.

A field that neither has is an AttributeError at the first use, not a silent default.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection
from typing import Any, TypeVar

T = TypeVar("T")


def copied(target: type[T], source: object, /, **others: Any) -> T:
    """A `target` with the values that `source` has under the same names; `others` are the rest."""
    form: Any = target
    for name in _names(form):
        if name not in others:
            others[name] = getattr(source, name)
    return target(**others)


@functools.cache
def _names(form: Any) -> Collection[str]:
    """The fields of a dataclass, of a msgspec struct, or of a protobuf message."""
    if dataclasses.is_dataclass(form):
        return tuple(field.name for field in dataclasses.fields(form))
    if hasattr(form, "__struct_fields__"):
        return tuple(form.__struct_fields__)
    return tuple(form.DESCRIPTOR.fields_by_name)
