"""Confchange: the byte form of a membership change, as CONFIG entries carry it.

Little-endian: ``version u8, transition u8, has_epoch u8, zero u8, steps u16, context length u32,
epoch u64``, the context, then per step ``kind u8, replica u64, incarnation u64, store id length
u16`` and the store id. No bytes at all stand for the empty, unordered change that leaves a joint
configuration.
"""

from __future__ import annotations

import struct

from logservice.ids import Incarnation, Index, ReplicaId, StoreId
from logservice.raft.config_change import ChangeKind, ChangeStep, ConfigChange, Transition

_HEAD = struct.Struct("<BBBBHIQ")
_STEP = struct.Struct("<BQQH")
_VERSION = 1


class ChangeCorrupt(ValueError):
    """The payload is not a membership change."""


def encode(change: ConfigChange) -> bytes:
    """The byte form above."""
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


def decode(payload: bytes) -> ConfigChange:
    """Inverse of `encode`; raises ChangeCorrupt for anything else."""
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
