"""Entry: one element of a shard's Raft log.

The Raft log *is* the user's log: the leader gives every entry its `lsn` (the LSN of its first
record) and its `record_count` when it appends it. INV-LOG-LSN, for uncommitted entries too: ``lsn(i
+ 1) == lsn(i) + record_count(i)``. Entries that carry no records have record_count 0 and the LSN
that the next record will get. So LSN -> index is a search in the log's own index.
"""

from __future__ import annotations

import enum

from logservice.ids import Index, Lsn, Term
from logservice.value import value


class EntryKind(enum.IntEnum):
    """What the payload is. The numbers are on disk and on the wire."""

    NOOP = 1
    """First entry of a term; empty payload."""
    BLOCK = 2
    """User records: `logservice.envelope` block envelopes."""
    COMMAND = 3
    """One state machine command: `logservice.envelope` command envelope."""
    CONFIG = 4
    """A membership change, decoded by `raft.config_change`."""


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
