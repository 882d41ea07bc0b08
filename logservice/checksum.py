"""CRC-32, the one checksum of everything the service writes and sends.

The polynomial and the values are zlib's. ISA-L computes them by carry-less multiplication, with ten
times the bytes per second of Python's zlib and a third of its cost for a header. Every record is
summed three times on its way (frame, record, block), so the checksum is a good part of what a store
does for a record. `tests/test_checksum.py` shows that both libraries give the same values.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

__all__ = ["crc32"]
