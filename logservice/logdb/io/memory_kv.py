"""MemoryKv: a key-value store in memory with the crash behaviour observed on LevelDB.

A `write` is durable when it returns, so a crash loses nothing of it; a failing write kills the
handle and leaves the batch applied or not (LevelDB shows both after a reopen).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from logservice.logdb.io.kv import KvCorrupt, KvError


class MemoryKv:
    """See `kv.Kv`."""

    def __init__(self, engine: MemoryKvEngine, path: str, rows: dict[bytes, bytes]) -> None:
        """Use `MemoryKvEngine.open`."""
        self._engine = engine
        self._path = path
        self._rows: dict[bytes, bytes] | None = rows

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        rows = self._alive()
        try:
            self._engine.before_write()
        except Exception as error:
            self.close()
            self._engine.distrust(self._path)
            raise KvError(f"memory store, writing: {error}") from error
        for key in deletes:
            rows.pop(key, None)
        for key, value in puts:
            rows[key] = bytes(value)

    def get(self, key: bytes) -> bytes | None:
        return self._alive().get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        rows = self._alive()
        keys = sorted(rows)
        for key in keys[bisect_left(keys, prefix) :]:
            if not key.startswith(prefix):
                return
            yield key, rows[key]

    def compact(self) -> None:
        self._alive()

    def close(self) -> None:
        self._rows = None

    def _alive(self) -> dict[bytes, bytes]:
        if self._rows is None:
            raise KvError("the key-value store is closed or has failed")
        return self._rows


class MemoryKvEngine:
    """See `kv.KvEngine`. Keeps the rows of every path between openings."""

    def __init__(self) -> None:
        """No stores yet."""
        self._stores: dict[str, dict[bytes, bytes]] = {}
        self._corrupt: set[str] = set()
        self._distrusted: set[str] = set()

    def open(self, path: str) -> MemoryKv:
        if path in self._corrupt:
            raise KvCorrupt(f"memory store {path} was damaged by a test")
        return MemoryKv(self, path, self._stores.setdefault(path, {}))

    def trusted(self, path: str) -> bool:
        return path not in self._distrusted

    def distrust(self, path: str) -> None:
        """A write failed there."""
        self._distrusted.add(path)

    @contextmanager
    def open_copy(self, path: str) -> Iterator[MemoryKv | None]:
        yield self.copy().open(path) if path in self._stores else None

    def destroy(self, path: str) -> None:
        self._stores.pop(path, None)
        self._corrupt.discard(path)
        self._distrusted.discard(path)

    def before_write(self) -> None:
        """Called before every write; a test overrides it to make writes fail."""

    def damage(self, path: str) -> None:
        """Make the next openings of `path` fail as damaged until it is destroyed."""
        self._corrupt.add(path)

    def copy(self) -> MemoryKvEngine:
        """An independent engine with the same content."""
        twin = MemoryKvEngine()
        twin._stores = {path: dict(rows) for path, rows in self._stores.items()}
        twin._corrupt = set(self._corrupt)
        twin._distrusted = set(self._distrusted)
        return twin
