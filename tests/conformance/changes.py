"""Membership changes as the test files write them: `v1 l2 r3 u4`; our files also have witnesses,
`w5`.
"""

from __future__ import annotations

from collections.abc import Iterable

from logservice.config_change import ChangeKind, ChangeStep
from logservice.ids import ReplicaId

_KINDS = {
    "v": ChangeKind.ADD_VOTER,
    "l": ChangeKind.ADD_LEARNER,
    "r": ChangeKind.REMOVE,
    "u": ChangeKind.UPDATE,
    "w": ChangeKind.ADD_WITNESS,
}


def parse_steps(lines: Iterable[str]) -> tuple[ChangeStep, ...]:
    """The steps in all `lines`."""
    return tuple(
        ChangeStep(_KINDS[word[0]], ReplicaId(int(word[1:])))
        for line in lines
        for word in line.split()
    )
