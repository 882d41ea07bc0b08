"""Entry: one element of a shard's Raft log; Proposal: what becomes one.

The Raft log *is* the user's log: the leader gives every entry its `lsn` (the LSN of its first
record) and its `record_count` when it appends it. INV-LOG-LSN, for uncommitted entries too: ``lsn(i
+ 1) == lsn(i) + record_count(i)``. Entries that carry no records have record_count 0 and the LSN
that the next record will get. So LSN -> index is a search in the log's own index.
"""

from __future__ import annotations

import enum
from typing import Final

from logservice_wire.value import value

from logservice.bounds import (
    BLOCK_RECORDS_MAX,
    ENTRY_PAYLOAD_BYTES_MAX,
    RESTORED_GAP_BYTES,
    RESTORED_GAP_LSNS_MAX,
)
from logservice.ids import Index, Lsn, Term

ENTRY_RECORDS_MAX: Final = BLOCK_RECORDS_MAX * 64
"""Records in one entry of several blocks. Its payload is full long before that, so only a damaged
or forged entry exceeds it.
"""


class EntryKind(enum.IntEnum):
    """What the payload is. The numbers are on disk and on the wire."""

    NOOP = 1
    """First entry of a term; empty payload."""
    BLOCK = 2
    """User records: `logservice.envelope` block envelopes."""
    COMMAND = 3
    """One state machine command: `logservice.envelope` command envelope."""
    CONFIG = 4
    """A membership change, decoded by `logservice.config_change`."""


@value
class Entry:
    """``(term, index, lsn, record_count, kind, payload)``; immutable, payload never copied."""

    term: Term
    index: Index
    lsn: Lsn
    record_count: int
    kind: EntryKind
    payload: bytes

    @property
    def next_lsn(self) -> Lsn:
        """The LSN that follows this entry's records."""
        return Lsn(self.lsn + self.record_count)


@value
class Proposal:
    """What becomes an entry: the leader gives it term, index and LSN when it appends it.

    `record_count` is 0 unless `kind` is BLOCK; `payload` is never copied.
    """

    kind: EntryKind
    record_count: int
    payload: bytes


def counts_error(entry: Entry) -> str:
    """Why no entry can have this record count or this much payload; empty when one can."""
    count = entry.record_count
    if count and (entry.kind is not EntryKind.BLOCK or not 0 < count <= _counted(entry)):
        return f"{count} records in {entry.kind!r}"
    if len(entry.payload) > ENTRY_PAYLOAD_BYTES_MAX:
        return f"payload of {len(entry.payload)} bytes"
    return ""


def _counted(entry: Entry) -> int:
    """How many LSNs the entry may have: many, if it is too small for a record. A witness gets it
    without its payload.
    """
    small = len(entry.payload) <= RESTORED_GAP_BYTES
    return RESTORED_GAP_LSNS_MAX if small else ENTRY_RECORDS_MAX
