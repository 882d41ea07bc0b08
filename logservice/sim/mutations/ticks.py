"""Seeded bugs of how ticks are counted, in worlds in which turns of the loop take time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logservice.nodehost.ticker import Ticker
from logservice.sim.config import SimConfig, make_costly
from logservice.sim.mutations.registry import mutation_in, wrap


def _costly(config: SimConfig) -> None:
    """Worlds whose stores sleep through ticks now and then, and whose turns take time."""
    config.calm, config.heartbeat_ticks = False, 3
    config.quiesce_ticks, config.operations_per_s = max(2, config.quiesce_ticks), 5.0
    make_costly(config, 0.2)


@mutation_in(_costly)
def _ticks_are_counted_inside_a_tick() -> None:
    def mutate(original: Callable[[Ticker], None]) -> Any:
        def catch_up(self: Ticker) -> None:
            if self._sleeps > 1 and self._timer is not None:
                self._catch_up()

        return catch_up

    wrap(Ticker, "catch_up", mutate)
