"""Entries into the log, one append after the other, each where it has to land.

While an append is under way nothing else is sent, and what comes meanwhile shares the next one. An
append names its LSN, and the log's writer epoch fences those of an earlier shipper: so a record is
in the log once, and behind the one before it (INV-PG-CHANGES).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from examples.postgres_changes.change import Entry
from examples.postgres_changes.transactions import ShippingRefused

APPEND_BYTES_MAX: Final = 1024 * 1024
"""Of one append; one record may always go."""

RECORD_BYTES_MAX: Final = 7 * 1024 * 1024
"""Of a change with its key. A block of the log has 8 MiB, its columns' lengths and padding
included."""

APPEND_TIMEOUT_S: Final = 60.0
"""How long an append may wait for a leader before its session ends, and another one begins."""


class Sink(Protocol):
    """What is asked of a log: `logservice_client.Shard` has it."""

    async def append_columns(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        expected_lsn: int | None = None,
        timeout: float | None = None,
    ) -> int: ...


@dataclass(frozen=True, slots=True)
class Record:
    """An entry as it is appended."""

    value: bytes
    key: bytes | None

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.value) + len(self.key or b"")


def record_of(entry: Entry) -> Record:
    """Raises ShippingRefused for a row that no record can have."""
    made = Record(entry.encode(), entry.record_key())
    if made.size > RECORD_BYTES_MAX:
        raise ShippingRefused(
            f"a change at {entry.commit} takes {made.size} bytes, and a record has at most"
            f" {RECORD_BYTES_MAX}: {made.value[:200]!r}..."
        )
    return made


class Appends:
    """Appends behind `last_lsn`."""

    def __init__(self, log: Sink, last_lsn: int) -> None:
        self._log = log
        self.next_lsn = last_lsn + 1
        """Where the next one lands."""

    async def append(self, records: Sequence[Record]) -> None:
        """All of them or none. Raises errors of the log."""
        await self._log.append_columns(
            [record.value for record in records],
            keys=[record.key for record in records],
            expected_lsn=self.next_lsn,
            timeout=APPEND_TIMEOUT_S,
        )
        self.next_lsn += len(records)
