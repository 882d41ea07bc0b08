"""Seeded bugs of the pass that drives few operators, in worlds that have many of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logservice import bounds, versions
from logservice.hakeeper.state import Operator, State
from logservice.hakeeper.stores import drives
from logservice.ids import HAKEEPER_SHARD
from logservice.sim.config import SimConfig, make_few_drives
from logservice.sim.mutations.registry import mutation_in, wrap
from logservice.versions import VersionRange

_ZONES = 3
_SHARDS = 6


def _many_repairs(config: SimConfig) -> None:
    """Whole zones are lost, and a pass drives two operators."""
    config.versions = VersionRange(versions.FIRST, versions.NEWEST)
    config.administered = not config.calm
    config.zones = _ZONES if config.administered else 0
    config.shards = max(config.shards, _SHARDS)
    make_few_drives(config, 2)


def _by(order: Callable[[Operator], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """A pass that drives the first ones in this order, and leaves no place for those in turn."""

    def mutate(original: Any) -> Any:
        def choose(state: State) -> list[Operator]:
            found: list[Operator] = original(state)
            operators = state.sorted_operators()
            if len(found) == len(operators):
                return found
            chosen = sorted(operators, key=order)[: bounds.HAKEEPER_DRIVES_PER_PASS_MAX]
            return [one for one in operators if one in chosen]

        return choose

    return mutate


@mutation_in(_many_repairs)
def _those_that_waited_longest_get_no_places() -> None:
    wrap(drives, "choose", _by(lambda one: (one.shard != HAKEEPER_SHARD, not one.heard, one.id)))


@mutation_in(_many_repairs)
def _shard_of_hakeeper_waits_in_turn() -> None:
    wrap(drives, "choose", _by(lambda one: (one.driven_tick, one.id)))


@mutation_in(_many_repairs)
def _what_is_overdue_waits_for_the_next_look() -> None:
    wrap(drives, "overdue", lambda _: lambda _state: False)


@mutation_in(_many_repairs)
def _what_was_driven_keeps_its_turn() -> None:
    def mutate(original: Any) -> Any:
        def driven(state: State, operator: Operator, said: Any) -> None:
            before = operator.driven_tick
            original(state, operator, said)
            operator.driven_tick = before

        return driven

    wrap(drives, "driven", mutate)


@mutation_in(_many_repairs)
def _pass_drives_all_that_were_heard_of() -> None:
    def mutate(original: Any) -> Any:
        def choose(state: State) -> list[Operator]:
            chosen: list[Operator] = original(state)
            return [one for one in state.sorted_operators() if one.heard or one in chosen]

        return choose

    wrap(drives, "choose", mutate)
