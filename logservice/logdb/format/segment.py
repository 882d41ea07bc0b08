"""Segments: the names and the header of the log's files.

A segment is ``<id as 16 hexadecimal digits>.segment`` in one directory. Ids grow by one with
every file and are never used twice. The first 64 bytes, little-endian: ``magic 8s, version u16,
flags u16, key tag u32, segment u64, incarnation u64, first group's sequence u64, key check 8 bytes,
reserved 12 bytes, crc u32`` (CRC seeded as everything else). Tag and check say which key the
entries are encrypted with (`encryption`); 0, if none. Commit groups follow, each at a multiple of
8; after the last one zeros or, in a recycled file (`spare_segments`), groups of another segment,
which do not verify here.

The header is a label for people and tools: recovery trusts the name and the chain of the groups,
so damage to a header loses nothing. A reader who does not find a key there tries those it has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from logservice_wire.value import value

from logservice.checksum import crc32
from logservice.invariants import invariant
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES, segment_seed

SEGMENT_MAGIC: Final = b"LSSEGM\x01\n"
SEGMENT_VERSION: Final = 1
SEGMENT_SUFFIX: Final = ".segment"
_HEADER = struct.Struct("<8sHHIQQQ8s12x")
_CRC = struct.Struct("<I")
invariant(_HEADER.size + _CRC.size == SEGMENT_HEADER_BYTES, "INV-SEGMENT-HEADER")


class SegmentVersionError(Exception):
    """The segment was written in a format that this program does not know."""


@value
class KeyLabel:
    """Which key a segment's entries are encrypted with: the tag of its id, and a check that other
    bytes under that id do not pass.
    """

    tag: int
    check: bytes


PLAIN: Final = KeyLabel(0, bytes(8))
"""Of a segment whose entries are not encrypted."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The decoded header."""

    version: int
    segment: int
    incarnation: int
    first_sequence: int
    label: KeyLabel


def segment_name(segment: int) -> str:
    """The file's name."""
    return f"{segment:016x}{SEGMENT_SUFFIX}"


def encode_segment_header(
    segment: int, incarnation: int, first_sequence: int, label: KeyLabel = PLAIN
) -> bytes:
    """The first bytes of a segment."""
    head = _HEADER.pack(
        SEGMENT_MAGIC,
        SEGMENT_VERSION,
        0,
        label.tag,
        segment,
        incarnation,
        first_sequence,
        label.check,
    )
    return head + _CRC.pack(crc32(head, segment_seed(incarnation, segment)))


def decode_segment_header(
    data: bytes | memoryview, segment: int, incarnation: int
) -> SegmentHeader | None:
    """The header, None if it does not verify; raises SegmentVersionError for a future format."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if crc32(data[: _HEADER.size], segment_seed(incarnation, segment)) != crc:
        return None
    magic, version, _, tag, own, written_by, sequence, check = _HEADER.unpack_from(data)
    if magic != SEGMENT_MAGIC or own != segment or written_by != incarnation:
        return None
    if version != SEGMENT_VERSION:
        raise SegmentVersionError(f"segment {segment_name(segment)} has format version {version}")
    return SegmentHeader(version, own, written_by, sequence, KeyLabel(tag, check))


def incarnation_in(data: bytes | memoryview, segment: int) -> int | None:
    """The incarnation of the directory that the segment was written in, as its header says; None if
    the header does not verify. It is for callers who have no other way to know it.
    """
    if len(data) < SEGMENT_HEADER_BYTES:
        return None
    written_by = int(_HEADER.unpack_from(data)[5])
    header = decode_segment_header(data, segment, written_by)
    return None if header is None else header.incarnation
