"""arguments: what a caller names is checked before anything is sent, and refused in one type.

Protobuf refuses numbers that a field cannot hold, and values of another type, with errors of its
own. `message` makes InvalidArgument of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from logservice_wire.errors import InvalidArgument

from logservice_client.bounds import TIMEOUT_DEFAULT_S

ParametersT = ParamSpec("ParametersT")
MessageT = TypeVar("MessageT")

U64_MAX: Final = 2**64 - 1
"""The largest LSN, epoch or id that a request can name."""


def message(
    make: Callable[ParametersT, MessageT], *args: ParametersT.args, **kwargs: ParametersT.kwargs
) -> MessageT:
    """``make(*args, **kwargs)``: a request. Raises InvalidArgument."""
    try:
        return make(*args, **kwargs)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(str(error), field=_culprit(make, kwargs)) from error


def _culprit(make: Callable[..., object], fields: dict[str, object]) -> str:
    """The first field that cannot be made alone."""
    for name, value in fields.items():
        try:
            make(**{name: value})
        except (TypeError, ValueError, OverflowError):
            return name
    return ""


def seconds(value: float | None, field: str = "timeout") -> float:
    """A timeout, TIMEOUT_DEFAULT_S for None. Raises InvalidArgument for what is no time."""
    if value is None:
        return TIMEOUT_DEFAULT_S
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidArgument(f"{value!r} is no number of seconds", field=field)
    if value <= 0:
        raise InvalidArgument(f"{value!r} s leave no time for a call", field=field)
    return value


def number(value: int, field: str, *, least: int = 0) -> int:
    """An integer of 64 bits. Raises InvalidArgument."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{value!r} is no integer", field=field)
    if not least <= value <= U64_MAX:
        raise InvalidArgument(f"{value} is not between {least} and {U64_MAX}", field=field)
    return value
