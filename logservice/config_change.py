"""ConfigChange: a membership change as it travels in a CONFIG entry.

Changes are compare-and-swap: `expected_epoch` must equal the membership's `change_epoch` when the
entry is applied, else it is rejected and changes nothing. A removed replica id never comes back.

Byte form, little-endian: ``version u8, transition u8, has_epoch u8, zero u8, steps u16, context
length u32, epoch u64``, the context, then per step ``kind u8, replica u64, incarnation u64, store
id length u16`` and the store id. No bytes at all stand for the empty, unordered change that leaves
a joint configuration. This form is in the log, so changing it is a format change.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from logservice.ids import Incarnation, Index, ReplicaId, StoreId

_HEAD = struct.Struct("<BBBBHIQ")
_STEP = struct.Struct("<BQQH")
_VERSION = 1


class ChangeCorrupt(ValueError):
    """The payload is not a membership change."""


class ChangeKind(enum.IntEnum):
    """One step of a change. The numbers are in the log."""

    ADD_VOTER = 1
    """Adds a voter, or promotes a learner to one."""
    ADD_LEARNER = 2
    """Adds a learner, or demotes a voter to one."""
    REMOVE = 3
    ADD_WITNESS = 4
    """Adds a witness, or promotes a learner that stores no records to one."""
    UPDATE = 5
    """Changes nothing in the quorum; kept for members whose address record changes."""
    ADD_WITNESS_LEARNER = 6
    """Adds a learner that stores no records, and may become a witness and nothing else."""


OF_WITNESSES = frozenset({ChangeKind.ADD_WITNESS, ChangeKind.ADD_WITNESS_LEARNER})


class Transition(enum.IntEnum):
    """How a change goes through joint consensus."""

    AUTO = 0
    """The change is simple when one voter changes; else it is joint and left automatically."""
    IMPLICIT = 1
    """The change is joint and left automatically."""
    EXPLICIT = 2
    """The change is joint until an empty change leaves it."""


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """`store_id` and `incarnation` are needed for additions only."""

    kind: ChangeKind
    replica_id: ReplicaId
    store_id: StoreId = StoreId("")
    incarnation: Incarnation = Incarnation(0)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change without steps leaves the joint configuration. One whose `expected_epoch` is None is
    unordered (in tests only).
    """

    steps: tuple[ChangeStep, ...] = ()
    expected_epoch: Index | None = None
    transition: Transition = Transition.AUTO
    context: bytes = b""


def encode_change(change: ConfigChange) -> bytes:
    """The payload of a CONFIG entry, in the byte form above."""
    if change == ConfigChange():
        return b""
    ordered = change.expected_epoch is not None
    parts = [
        _HEAD.pack(
            _VERSION,
            change.transition,
            ordered,
            0,
            len(change.steps),
            len(change.context),
            change.expected_epoch or 0,
        ),
        change.context,
    ]
    for step in change.steps:
        store = step.store_id.encode()
        parts.append(_STEP.pack(step.kind, step.replica_id, step.incarnation, len(store)) + store)
    return b"".join(parts)


def decode_change(payload: bytes) -> ConfigChange:
    """Inverse of `encode_change`; raises ChangeCorrupt for anything else."""
    if not payload:
        return ConfigChange()
    try:
        version, transition, ordered, zero, count, context_size, epoch = _HEAD.unpack_from(payload)
        position = _HEAD.size
        if version != _VERSION or ordered > 1 or zero or (epoch and not ordered):
            raise ChangeCorrupt(f"change version {version}")
        context = payload[position : position + context_size]
        position += context_size
        steps: list[ChangeStep] = []
        for _ in range(count):
            kind, replica, incarnation, size = _STEP.unpack_from(payload, position)
            position += _STEP.size
            store = payload[position : position + size].decode()
            position += size
            steps.append(
                ChangeStep(
                    ChangeKind(kind), ReplicaId(replica), StoreId(store), Incarnation(incarnation)
                )
            )
        change = ConfigChange(
            tuple(steps), Index(epoch) if ordered else None, Transition(transition), context
        )
    except (struct.error, ValueError) as error:
        raise ChangeCorrupt(str(error)) from error
    if position != len(payload):
        raise ChangeCorrupt("change with trailing or missing bytes")
    return change
