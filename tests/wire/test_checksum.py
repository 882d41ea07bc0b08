"""The client's checksum is zlib's, with and without the package that is faster."""

from __future__ import annotations

import importlib
import random
import sys
import zlib

import pytest
from logservice_wire import checksum


@pytest.mark.parametrize("fast", [True, False])
def test_it_is_zlibs(monkeypatch: pytest.MonkeyPatch, *, fast: bool) -> None:
    if not fast:
        monkeypatch.setitem(sys.modules, "isal", None)
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    try:
        crc32 = importlib.reload(checksum).crc32
        assert (crc32 is zlib.crc32) is not fast
        drawn = random.Random(1)
        for size in (0, 1, 20, 1000, 100_000):
            data, begun = drawn.randbytes(size), drawn.getrandbits(32)
            assert crc32(memoryview(data), begun) == zlib.crc32(data, begun)
    finally:
        monkeypatch.undo()
        importlib.reload(checksum)
