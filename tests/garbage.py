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


class Born:
    """Counts objects of a class that were not there when it was made: other tests may keep some."""

    def __init__(self, kind: type[object]) -> None:
        """The collector is off from now on (`without_collector`)."""
        self._kind = kind
        self._before = self._all()

    def alive(self) -> int:
        """How many there are, garbage included."""
        return self._all() - self._before

    def _all(self) -> int:
        return sum(type(one) is self._kind for one in gc.get_objects())
