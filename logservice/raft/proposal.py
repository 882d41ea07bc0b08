"""Proposal: one entry to be. The leader gives it term, index and LSN when it appends it."""

from __future__ import annotations

from logservice.entry import EntryKind
from logservice.value import value


@value
class Proposal:
    """`record_count` is 0 unless `kind` is BLOCK; `payload` is never copied."""

    kind: EntryKind
    record_count: int
    payload: bytes
