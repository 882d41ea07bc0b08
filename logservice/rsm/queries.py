"""Queries: what `LogRsm.lookup` answers. Answers are frozen copies, valid for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logservice_wire.errors import Reason

from logservice.ids import Index, Lsn


class RejectedRange(NamedTuple):
    """`record_count` LSNs from `first_lsn` on that hold no record: the block there was refused.

    One range per refused block, so a block is a gap exactly when a range starts at its LSN. A
    duplicate of an applied sequence is recorded as SEQUENCE_GAP: its records are at their original
    LSNs.
    """

    first_lsn: Lsn
    record_count: int
    reason: Reason

    @property
    def next_lsn(self) -> Lsn:
        """The LSN after the range."""
        return Lsn(self.first_lsn + self.record_count)


@dataclass(frozen=True, slots=True)
class LogStatusQuery:
    """Asks for a `LogStatus`."""


@dataclass(frozen=True, slots=True)
class RejectedRangesQuery:
    """Asks for the `RejectedRange`s that share an LSN with [low, high), as a tuple in LSN order."""

    low: Lsn
    high: Lsn


class HoldStatus(NamedTuple):
    """A hold, and the identity it belongs to."""

    name: str
    lsn: Lsn
    owner: str


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The state of a log shard at `applied_index`.

    first_lsn: oldest LSN that must be readable, `truncated_lsn` + 1. requested_truncation_lsn:
    above `truncated_lsn` while holds keep a truncation back. writer_holder: empty when nobody holds
    the epoch, and so is writer_owner, its identity; writer_epoch: 0 when none was ever granted.
    holds: sorted by name.
    """

    applied_index: Index
    next_lsn: Lsn
    first_lsn: Lsn
    truncated_lsn: Lsn
    requested_truncation_lsn: Lsn
    writer_holder: str
    writer_owner: str
    writer_epoch: int
    holds: tuple[HoldStatus, ...]
    next_timestamp: int
    session_count: int
    rejected_range_count: int


LogQuery = LogStatusQuery | RejectedRangesQuery
"""Every query of a log shard."""
