"""Forgery: an entry in a segment becomes another one, and every checksum still verifies.

This stands for what no checksum can find: a bug that wrote the wrong bytes, or a write that went
astray together with its checksum. An encrypted payload is encrypted again, as it was written by
that bug. The payload's last byte changes, so a block still decodes and
holds another record. Index, term, LSN and length stay.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence

from logservice.checksum import crc32
from logservice.entry import EntryKind
from logservice.logdb.format.encryption import NONCE_BYTES, SegmentCipher
from logservice.logdb.format.record import (
    ASSOCIATED_BYTES,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    RecordCorrupt,
    decode_header,
    payload_view,
    segment_seed,
)
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.io.segment_keys import SegmentKeys
from logservice.sealing_keys import Keys

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


def forged(
    image: bytes, segment: int, incarnation: int, offset: int, keys: Keys | None = None
) -> bytes:
    """The record at `offset` with another payload: all its bytes, to be written over it. `keys`:
    the store's.
    """
    seed = segment_seed(incarnation, segment)
    header = decode_header(image, offset, seed)
    payload = bytearray(payload_view(image, offset, header, seed))
    if header.encrypted and keys is not None:
        found = SegmentKeys(keys).candidates(incarnation, segment)
        payload = _forged_within(payload, image[offset : offset + ASSOCIATED_BYTES], found)
    else:
        payload[-1] ^= 0x55
    head = bytearray(image[offset : offset + RECORD_HEADER_BYTES])
    _CRC.pack_into(head, RECORD_HEADER_BYTES - 8, crc32(payload, seed))
    _CRC.pack_into(head, RECORD_HEADER_BYTES - 4, crc32(head[:-4], seed))
    return bytes(head) + bytes(payload)


def _forged_within(
    payload: bytearray, associated: bytes, ciphers: Sequence[SegmentCipher]
) -> bytearray:
    for cipher in ciphers:
        with contextlib.suppress(RecordCorrupt):
            plain = bytearray(cipher.open(bytes(payload), associated))
            plain[-1] ^= 0x55
            return bytearray(cipher.encrypt(bytes(payload[:NONCE_BYTES]), bytes(plain), associated))
    raise AssertionError("the store has no key of its segment")
