"""A hash of a whole database that costs one transaction's pages to keep up to date.

The sum, modulo 2^256, of the hashes of ``(page number, page)`` over all pages: replacing a page
subtracts its old hash and adds the new one. Equal sums mean equal pages in equal places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from examples.sqlite_wal.wal_format import Frame

_MODULUS = 1 << 256


class ContentHash:
    """The running hash of one database."""

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        self._sum = 0

    @classmethod
    def of_file(cls, path: Path, page_size: int) -> ContentHash:
        """The hash of a database file that has no write-ahead log beside it."""
        whole = cls()
        with open(path, "rb") as file:
            number = 1
            while page := file.read(page_size):
                whole._replace(number, page)
                number += 1
        return whole

    def apply(self, frames: Iterable[Frame]) -> None:
        """Replace the pages of a transaction; its commit frame sets the size of the database."""
        for frame in frames:
            self._replace(frame.page_number, frame.data)
            if frame.commits:
                for number in [page for page in self._pages if page > frame.database_pages]:
                    self._sum = (self._sum - self._pages.pop(number)) % _MODULUS

    @property
    def digest(self) -> bytes:
        """32 bytes."""
        return self._sum.to_bytes(32, "little")

    def _replace(self, number: int, page: bytes) -> None:
        new = hashlib.sha256(number.to_bytes(4, "little") + page).digest()
        value = int.from_bytes(new, "little")
        self._sum = (self._sum - self._pages.get(number, 0) + value) % _MODULUS
        self._pages[number] = value
