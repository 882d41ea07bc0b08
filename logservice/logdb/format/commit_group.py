"""Commit group: what one durable write covers, for every replica that has something to say.

Layout: header (80 bytes), directory (32 bytes + 80 per run), the runs, padding to 8. A *run* is
the records of one replica. All little-endian; every CRC starts from the segment's seed.

Header: ``magic 8s, version u16, flags u16, runs u32, sequence u64, segment u64, offset u64,
previous_segment u64, previous_offset u64, body_bytes u64, previous_crc u32, directory_crc u32,
reserved u32, crc u32``. It knows its own place (a misdirected write does not verify) and the
group before.

Directory: ``magic u32, runs u32, body_bytes u64, sequence u64, flags u32, crc u32``, then per run
``shard u64, replica u64, write_sequence u64, index u64, last_index u64, term u64, vote u64,
commit u64, bytes u32, record_count u32, kinds u32, reserved u32``. It repeats what the header and
the records say, so that one damaged place can be attributed to the replicas it belongs to, and a
lost hard state restored.

- INV-GROUP-1: a group is applied whole or not at all.
- INV-GROUP-2: at most one group is not yet fdatasynced, across segments too: a group with a
  successor was durable.
- INV-GROUP-3: `sequence` grows by one; a dropped torn group's number is used again by its
  replacement.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from logservice_wire.value import value

from logservice.checksum import crc32
from logservice.entry import Entry
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.record import Buffer, Meta, RecordKind

GROUP_MAGIC: Final = b"LSGROUP\x01"
GROUP_VERSION: Final = 1
FLAG_MARK: Final = 1
"""An empty group: all before it was durable when it was written (the durable mark)."""
FLAG_REWRITE: Final = 2
"""Copies made by garbage collection; their write sequences are old."""

HEADER: Final = struct.Struct("<8sHHIQQQQQQII")
HEADER_CRC: Final = struct.Struct("<II")
GROUP_HEADER_BYTES: Final = HEADER.size + HEADER_CRC.size
DIRECTORY_MAGIC: Final = 0x5249444C
DIRECTORY: Final = struct.Struct("<IIQQI")
DIRECTORY_CRC: Final = struct.Struct("<I")
DIRECTORY_HEADER_BYTES: Final = DIRECTORY.size + DIRECTORY_CRC.size
ROW: Final = struct.Struct("<QQQQQQQQIIII")
DIRECTORY_ROW_BYTES: Final = ROW.size


@dataclass(slots=True)
class RecordRun:
    """The records of one replica in a group: other records first, then entries.

    `write_sequence` is the first record's; those of the rest count up from it. `entries` are the
    values to write. Once they are encoded, `offset` is where the record of the first one is in
    `segment`, `size` the bytes of all their records, and `overhead` what encryption adds to each
    payload. In a run that was read from the disk,
    `columns` says where its entries are. `repair` is the fault that the run repairs, if it does.
    """

    shard: int
    replica: int
    write_sequence: int
    metas: list[Meta]
    entries: Sequence[Entry] = ()
    columns: EntryColumns | None = None
    segment: int = 0
    offset: int = 0
    size: int = 0
    overhead: int = 0
    repair: Fault | None = None

    @property
    def record_count(self) -> int:
        """Records of the run when it is to be written."""
        return len(self.metas) + len(self.entries)


@value
class GroupPosition:
    """Where a group is (or will be) and what identifies it to its successor."""

    segment: int
    offset: int
    crc: int = 0
    """Also 0 where the header could not be read when a later group, or the index, named it."""

    def names(self, found: GroupPosition) -> bool:
        """Whether this position, as a successor or the derived index has it, means `found`."""
        place = (self.segment, self.offset) == (found.segment, found.offset)
        return place and self.crc in (0, found.crc)


NO_GROUP: Final = GroupPosition(0, 0)
"""Before the first group of a data directory."""


@dataclass(frozen=True, slots=True)
class DirectoryRow:
    """What the directory says of one run. index .. last_index are its entries; in a run without
    entries, index is the index field of its first record, and last_index is 0.
    """

    shard: int
    replica: int
    write_sequence: int
    index: int
    last_index: int
    term: int
    vote: int
    commit: int
    size: int
    record_count: int
    kinds: int

    def has(self, kind: RecordKind) -> bool:
        """Whether the run holds a record of the kind."""
        return bool(self.kinds >> kind & 1)


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """A decoded header. `position.crc` is its own checksum, which the successor repeats."""

    position: GroupPosition
    previous: GroupPosition
    flags: int
    sequence: int
    runs: int
    body_bytes: int
    directory_crc: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A decoded directory."""

    sequence: int
    flags: int
    body_bytes: int
    rows: tuple[DirectoryRow, ...]


def decode_group_header(
    view: Buffer, segment: int, offset: int, seed: int, view_offset: int = 0
) -> GroupHeader | None:
    """The header at `offset` of the segment, None when there is none that verifies and belongs
    there.

    `view` holds the segment from `view_offset` on.
    """
    start = offset - view_offset
    end = start + GROUP_HEADER_BYTES
    if end > len(view) or view[start : start + 8] != GROUP_MAGIC:
        return None
    (
        _,
        version,
        flags,
        runs,
        sequence,
        own_segment,
        own_offset,
        previous_segment,
        previous_offset,
        body_bytes,
        previous_crc,
        directory_crc,
    ) = HEADER.unpack_from(view, start)
    reserved, crc = HEADER_CRC.unpack_from(view, start + HEADER.size)
    if crc32(view[start : end - 4], seed) != crc:
        return None
    if version != GROUP_VERSION or reserved or (own_segment, own_offset) != (segment, offset):
        return None
    return GroupHeader(
        GroupPosition(segment, offset, crc),
        GroupPosition(previous_segment, previous_offset, previous_crc),
        flags,
        sequence,
        runs,
        body_bytes,
        directory_crc,
    )


def decode_directory(view: Buffer, offset: int, seed: int) -> Directory | None:
    """The directory at `offset`, None when there is none that verifies."""
    if offset + DIRECTORY_HEADER_BYTES > len(view):
        return None
    magic, runs, body_bytes, sequence, flags = DIRECTORY.unpack_from(view, offset)
    (crc,) = DIRECTORY_CRC.unpack_from(view, offset + DIRECTORY.size)
    start = offset + DIRECTORY_HEADER_BYTES
    end = start + runs * DIRECTORY_ROW_BYTES
    if magic != DIRECTORY_MAGIC or end > len(view):
        return None
    head_crc = crc32(view[offset : offset + DIRECTORY.size], seed)
    if crc32(view[start:end], head_crc) != crc:
        return None
    rows = []
    for shard, replica, *rest, reserved in ROW.iter_unpack(view[start:end]):
        if reserved:
            return None
        rows.append(DirectoryRow(shard, replica, *rest))
    return Directory(sequence, flags, body_bytes, tuple(rows))


def group_bytes(runs: int, body_bytes: int) -> int:
    """Bytes of a group with that many runs."""
    return GROUP_HEADER_BYTES + DIRECTORY_HEADER_BYTES + DIRECTORY_ROW_BYTES * runs + body_bytes
