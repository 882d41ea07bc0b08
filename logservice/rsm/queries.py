"""Queries: what `LogRsm.lookup` answers. An answer is a frozen copy, valid for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logservice.ids import NO_SESSION, Index, Lsn, SessionId
from logservice.lineage import FIRST, Lineage
from logservice.rsm.restoring import Restoring


@dataclass(frozen=True, slots=True)
class LogStatusQuery:
    """Asks for a `LogStatus`."""


class HoldStatus(NamedTuple):
    """A hold; see `state.Hold`."""

    name: str
    lsn: Lsn
    owner: str
    revision: Index = Index(0)
    ttl_s: int = 0


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The state of a log shard at `applied_index`.

    first_lsn: oldest LSN that must be readable, `truncated_lsn` + 1. requested_truncation_lsn:
    above `truncated_lsn` while holds keep a truncation back. writer_holder: empty when nobody holds
    the epoch, and so is writer_owner, its identity; writer_epoch: 0 when none was ever granted.
    holds: sorted by name. closed_index: of the Close, 0 while the log is open; closed_lsn: the LSN
    behind its last record, 0 while it is open. restoring: None for a log that is open.
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
    closed_index: Index = Index(0)
    closed_lsn: Lsn = Lsn(0)
    lineage: Lineage = FIRST
    restoring: Restoring | None = None


@dataclass(frozen=True, slots=True)
class NamedSessionsQuery:
    """Asks for the named sessions with an id above `after`, at most `limit`: a
    `NamedSessionsPage`.
    """

    limit: int
    after: SessionId = NO_SESSION


class NamedSessionStatus(NamedTuple):
    """A row of `rsm.named_sessions`. epoch: 0 when it is lost."""

    session: SessionId
    name: str
    owner: str
    epoch: int
    appended: int
    stamp_us: int
    ttl_s: int
    last_used: Index
    used_us: int
    lost: bool
    forgotten: bool


class NamedSessionsPage(NamedTuple):
    """Rows by id, and whether there are more behind them."""

    rows: tuple[NamedSessionStatus, ...]
    more: bool
