"""Kv: the ordered key-value store that holds the derived index.

`leveldb_kv` is the real one, `memory_kv` its twin; `tests/logdb/test_kv_conformance.py` runs over
both.

- INV-KV-1: one `write` is atomic and durable when it returns. There is no un-synced write:
  mixing both kinds in one LevelDB can lose the earlier and keep the later (LevelDB's log rotation
  does not sync).
- INV-KV-2: after the first exception from `write` the handle answers nothing any more. LevelDB
  goes on acknowledging writes that it will lose after one failed append (google/leveldb#1180).
- INV-KV-3: a store one of whose writes failed is not trusted at any later opening, until it is
  destroyed. What failed may be a compaction that met a damaged row which no reader had asked for. A
  store that is trusted again would meet that row again, at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol


class KvError(Exception):
    """The key-value store failed; the handle is dead."""


class KvCorrupt(KvError):
    """What is on disk is damaged. The content is derived: destroy it and rebuild."""


class Kv(Protocol):
    """An open key-value store."""

    def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = ()) -> None:
        """Apply all or nothing, durably; a key in both lists ends up put. Raises KvError, and does
        so from then on.
        """
        ...

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None when there is none. Raises KvError."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys that start with `prefix`, ascending, with values. Raises KvError, also while
        iterating.
        """
        ...

    def compact(self) -> None:
        """Read everything that is stored, also what newer writes replace, and store it anew. Raises
        KvError, from then on, when something cannot be read.
        """
        ...

    def close(self) -> None:
        """Release the handle."""
        ...


class KvEngine(Protocol):
    """Makes, opens and destroys stores by path."""

    def open(self, path: str) -> Kv:
        """Open the store, creating an empty one when there is none. Raises KvCorrupt, KvError."""
        ...

    def trusted(self, path: str) -> bool:
        """Whether what the opened store says may be relied on (INV-KV-3). A store that is not
        trusted may be read for what it proves, and must be destroyed after that.
        """
        ...

    def open_copy(self, path: str) -> AbstractContextManager[Kv | None]:
        """A copy of the store, to be read only, and gone afterwards; None when there is no store.
        The store itself is not touched. Raises KvCorrupt, KvError.
        """
        ...

    def destroy(self, path: str) -> None:
        """Remove the store with all its content; it must not be open."""
        ...
