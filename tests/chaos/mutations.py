"""Ways to break a history: how a mutation is written and registered.

Each mutation breaks a good history in one way that some real system has shown, and says which
rules may object. It answers False when it finds nothing to break. The mutations live in
`bad_contents` and `bad_answers`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any, TypeVar

from logservice.sim.history import Append, Operation, Outcome, Read, Truncate

History = list[Operation]
Mutation = Callable[[History, random.Random], bool]
MUTATIONS: dict[str, tuple[Mutation, frozenset[str]]] = {}
_Kind = TypeVar("_Kind", Append, Read, Truncate)


def mutation(*rules: str) -> Callable[[Mutation], Mutation]:
    """Register a way to break a history; at least one of `rules` must object to it."""

    def register(mutate: Mutation) -> Mutation:
        MUTATIONS[mutate.__name__] = (mutate, frozenset(rules))
        return mutate

    return register


def pick(
    history: History,
    chance: random.Random,
    kind: type[_Kind],
    fits: Callable[[_Kind], bool] = lambda _: True,
) -> _Kind | None:
    found = [op for op in history if isinstance(op, kind) and fits(op)]
    return chance.choice(found) if found else None


def swap(history: History, old: Operation, **changes: Any) -> bool:
    history[next(i for i, op in enumerate(history) if op is old)] = dataclasses.replace(
        old, **changes
    )
    return True


def acked(op: Append) -> bool:
    return op.outcome is Outcome.OK


def kept(history: History) -> int:
    return max(op.first_lsn for op in history if isinstance(op, Read) and op.final)


def live(history: History) -> Callable[[Append], bool]:
    first = kept(history)
    return lambda op: acked(op) and op.lsn >= first


def final(op: Read) -> bool:
    return op.final


def answered(op: Read) -> bool:
    return not op.final and not op.error and len(op.runs) >= 1


def strong(op: Read) -> bool:
    return op.linearizable and not op.final and not op.error
