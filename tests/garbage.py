"""Garbage: what stays in memory until the collector finds it, because it is in a cycle.

A store's collector comes seldom (`server.process`), so megabytes must not wait for it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Inside, only reference counts free anything; what was garbage before is gone."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(kind: type[object]) -> int:
    """How many objects of this class there are, garbage included."""
    return sum(type(one) is kind for one in gc.get_objects())
