"""DurableMark: the statement that a commit group was durable, apart from the group.

A group that a later one follows was durable (INV-GROUP-2). Of the newest group nothing in its
segment says so, and damage to it looks like a write that a crash cut short. The mark names that
group. From cluster version 2 on it is a file of its own (`io.mark_file`); before that it was a
group without runs directly behind the newest one (`commit_group.FLAG_MARK`), often in the same page
of the disk.

64 bytes, little-endian: ``magic 8s, version u16, reserved 6 bytes, sequence u64, segment u64,
offset u64, group crc u32, reserved 16 bytes, crc u32``. Group crc is that of the group's header, 0
when it could not be read any more. The crc starts from the seed of segment 0, which does not exist:
so a mark of another data directory never verifies, and neither does a mark in a segment.
"""

from __future__ import annotations

import struct
from typing import Final

from logservice_wire.value import value

from logservice.checksum import crc32
from logservice.invariants import invariant
from logservice.logdb.format.commit_group import GroupPosition
from logservice.logdb.format.record import segment_seed

MARK_MAGIC: Final = b"LSMARK\x01\n"
MARK_VERSION: Final = 1
MARK_BYTES: Final = 64
_MARK = struct.Struct("<8sH6xQQQI16x")
_CRC = struct.Struct("<I")
invariant(_MARK.size + _CRC.size == MARK_BYTES, "INV-MARK-BYTES")


@value
class DurableMark:
    """The group at `last`, with the number `sequence`, and all before it were durable."""

    last: GroupPosition
    sequence: int

    @property
    def place(self) -> tuple[int, int]:
        """Segment and offset of the group; of two marks the newer one has the later place."""
        return self.last.segment, self.last.offset


def encode_mark(mark: DurableMark, incarnation: int) -> bytes:
    """The bytes of a mark."""
    last = mark.last
    head = _MARK.pack(MARK_MAGIC, MARK_VERSION, mark.sequence, last.segment, last.offset, last.crc)
    return head + _CRC.pack(crc32(head, segment_seed(incarnation, 0)))


def decode_mark(data: bytes, incarnation: int) -> DurableMark | None:
    """The mark that the bytes begin with; None when none verifies, or it has another version."""
    if len(data) < MARK_BYTES:
        return None
    magic, version, sequence, segment, offset, crc = _MARK.unpack_from(data)
    if (magic, version) != (MARK_MAGIC, MARK_VERSION):
        return None
    (own,) = _CRC.unpack_from(data, _MARK.size)
    if crc32(data[: _MARK.size], segment_seed(incarnation, 0)) != own:
        return None
    return DurableMark(GroupPosition(segment, offset, crc), sequence)
