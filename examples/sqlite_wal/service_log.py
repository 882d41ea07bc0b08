"""The shard, as the database uses it: one writer, fenced against every other.

The synchronous client retries by itself with the same session and sequence, so that a transaction
is appended at most once however often the leader changes. The writer epoch makes sure that a
second machine that takes the database over ends our right to append.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logservice_client import SyncLogClient

APPEND_TIMEOUT_S: Final = 60.0
"""How long a commit may wait for a new leader before its outcome is unknown."""

HOLDER: Final = "shop database"


class ServiceLog:
    """Appends, truncates and reads one shard."""

    def __init__(self, endpoints: Sequence[str], shard: int) -> None:
        """Take the right to append, whoever had it."""
        self._client = SyncLogClient(endpoints)
        self._shard = self._client.shard(shard)
        self._shard.acquire_writer(HOLDER, takeover=True)

    def append(self, records: Sequence[bytes]) -> int:
        """One block; returns the LSN of its first record when it is durable on a majority."""
        return self._shard.append(records, timeout=APPEND_TIMEOUT_S)

    def truncate(self, lsn: int) -> int:
        """Let every record up to and including `lsn` go; the LSN that was reached."""
        return self._shard.truncate(lsn)

    def read(self, first_lsn: int, next_lsn: int) -> list[tuple[int, bytes]]:
        """`(lsn, record)` for ``[first_lsn, next_lsn)``; LSNs of gaps have no record."""
        found: list[tuple[int, bytes]] = []
        lsn = first_lsn
        while lsn < next_lsn:
            result = self._shard.read(lsn)
            for block in result.blocks:
                found += enumerate(block.records(), block.first_lsn)
            lsn = result.next_lsn
        return [row for row in found if row[0] < next_lsn]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
