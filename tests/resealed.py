"""A block whose checksum fits again after a change, so that what is checked behind it is tested."""

from __future__ import annotations

import struct
import zlib


def resealed(block: bytes | bytearray) -> bytes:
    """`block` with a CRC that fits."""
    crc = zlib.crc32(block[20:], zlib.crc32(block[:16]))
    return bytes(block[:16]) + struct.pack("<I", crc) + bytes(block[20:])
