"""CRC-32, the one checksum of everything the service writes and sends.

The polynomial is zlib's, and so are the values; what computes them is ISA-L, which folds with
carry-less multiplications: ten times the bytes per second of Python's zlib, and a third of the cost
of a header. Every record is summed three times on its way (frame, record, block), so this is a
good part of what a store does for one. `tests/test_checksum.py` holds the two to be equal.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

__all__ = ["crc32"]
