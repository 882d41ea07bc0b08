"""Seeded bugs of catch-up, in worlds in which it is limited."""

from __future__ import annotations

from typing import Any

from logservice.nodehost.replica.catch_up import CatchUpBudget, CatchUpGate
from logservice.sim.config import SimConfig, make_slow_catch_up
from logservice.sim.mutations.registry import mutation_in, wrap


def _slow(config: SimConfig) -> None:
    make_slow_catch_up(config, 8192)


@mutation_in(_slow)
def _catch_up_waits_for_no_turn() -> None:
    wrap(CatchUpGate, "passes", lambda _: lambda _self, _low: True)


@mutation_in(_slow)
def _catch_up_is_not_paid_for() -> None:
    def mutate(original: Any) -> Any:
        def used(self: CatchUpBudget, size: int, paid: int, free_bytes: int) -> None:
            original(self, min(size, free_bytes), paid, free_bytes)

        return used

    wrap(CatchUpBudget, "used", mutate)


@mutation_in(_slow)
def _catch_up_turns_end_with_the_first_that_waits() -> None:
    def mutate(original: Any) -> Any:
        def ask(self: CatchUpBudget, gate: Any, low: int, free_bytes: int) -> None:
            if self._timer is None:
                original(self, gate, low, free_bytes)

        return ask

    wrap(CatchUpBudget, "ask", mutate)
