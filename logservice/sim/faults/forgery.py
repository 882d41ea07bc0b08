"""Forgery: an entry in a segment becomes another one, and every checksum still verifies.

This stands for what no checksum can find: a bug that wrote the wrong bytes, or a write that went
astray together with its checksum. The payload's last byte changes, so a block still decodes and
holds another record. Index, term, LSN and length stay.
"""

from __future__ import annotations

import struct

from logservice.checksum import crc32
from logservice.entry import EntryKind
from logservice.logdb.format.record import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    decode_header,
    payload_view,
    segment_seed,
)
from logservice.logdb.format.segment_scan import scan_segment

_CRC = struct.Struct("<I")


def blocks_in(image: bytes, segment: int, incarnation: int) -> dict[tuple[int, int, int], int]:
    """(shard, replica, index) -> offset of the entries with records in the bytes of a segment."""
    seed = segment_seed(incarnation, segment)
    found: dict[tuple[int, int, int], int] = {}
    for group in scan_segment(memoryview(image), segment, SEGMENT_HEADER_BYTES, seed).groups():
        for run in group.runs:
            if run.columns is None:
                continue
            for number, offset in enumerate(run.columns.offsets):
                header = decode_header(image, offset, seed)
                if header.detail == EntryKind.BLOCK and header.record_count:
                    found[run.shard, run.replica, run.columns.first + number] = offset
    return found


def forged(image: bytes, segment: int, incarnation: int, offset: int) -> bytes:
    """The record at `offset` with another payload: all its bytes, to be written over it."""
    seed = segment_seed(incarnation, segment)
    header = decode_header(image, offset, seed)
    payload = bytearray(payload_view(image, offset, header, seed))
    payload[-1] ^= 0x55
    head = bytearray(image[offset : offset + RECORD_HEADER_BYTES])
    _CRC.pack_into(head, RECORD_HEADER_BYTES - 8, crc32(payload, seed))
    _CRC.pack_into(head, RECORD_HEADER_BYTES - 4, crc32(head[:-4], seed))
    return bytes(head) + bytes(payload)
