"""The checksum is zlib's CRC-32, whoever computes it: what older programs wrote must verify."""

from __future__ import annotations

import random
import zlib

import pytest

from logservice.checksum import crc32


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 16, 31, 63, 64, 68, 72, 255, 256, 1024, 100_000])
def test_it_is_zlibs(size: int) -> None:
    drawn = random.Random(size)
    for _ in range(20):
        data = drawn.randbytes(size + 9)
        start, seed = drawn.randrange(9), drawn.getrandbits(32)
        view = memoryview(data)[start : start + size]
        expected = zlib.crc32(view, seed)
        assert crc32(view, seed) == crc32(bytes(view), seed) == expected
        assert crc32(bytearray(view), seed) == expected
        cut = drawn.randint(0, size)
        assert crc32(view[cut:], crc32(view[:cut], seed)) == expected


def test_it_begins_at_zero() -> None:
    assert crc32(b"123456789") == 0xCBF43926
