"""ConfigChange: a membership change as it travels in a CONFIG entry.

Changes are compare-and-swap: `expected_epoch` must equal the membership's `change_epoch` when the
entry is applied, else it is rejected and changes nothing. A removed replica id never comes back.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logservice.ids import Incarnation, Index, ReplicaId, StoreId


class ChangeKind(enum.IntEnum):
    """One step of a change. The numbers are in the log."""

    ADD_VOTER = 1
    """Add, or promote a learner."""
    ADD_LEARNER = 2
    """Add, or demote a voter."""
    REMOVE = 3
    ADD_WITNESS = 4
    UPDATE = 5
    """Changes nothing in the quorum; kept for members whose address record changes."""


class Transition(enum.IntEnum):
    """How a change goes through joint consensus."""

    AUTO = 0
    """Simple when one voter changes, else joint and left automatically."""
    IMPLICIT = 1
    """Joint, left automatically."""
    EXPLICIT = 2
    """Joint until an empty change leaves it."""


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """`store_id` and `incarnation` are needed for additions only."""

    kind: ChangeKind
    replica_id: ReplicaId
    store_id: StoreId = StoreId("")
    incarnation: Incarnation = Incarnation(0)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """No steps: leave the joint configuration. `expected_epoch` None: unordered (tests only)."""

    steps: tuple[ChangeStep, ...] = ()
    expected_epoch: Index | None = None
    transition: Transition = Transition.AUTO
    context: bytes = b""
