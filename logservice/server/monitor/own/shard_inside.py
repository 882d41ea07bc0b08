"""shard_inside: everything that this store knows of its replica of one shard, for a page about it.

It is made when it is asked for, from what the replica, the truncation worker and the comparison
know anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from logservice_wire.errors import ShardNotFound
from logservice_wire.v1 import admin_pb2
from msgspec import Struct

from logservice import bounds
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.nodehost.replica.hold_expiry import HoldTime
from logservice.rsm.queries import (
    HoldStatus,
    LogStatus,
    LogStatusQuery,
    NamedSessionsPage,
    NamedSessionsQuery,
)
from logservice.same_names import copied
from logservice.server.monitor.own.history import HOUR, History, HistoryQuestion, Series
from logservice.server.monitor.own.reporter import StatusReporter
from logservice.server.monitor.own.status import ReplicaStatus

Standing = Callable[[ShardId], admin_pb2.TruncationStanding | None]
"""How truncation stands at the replica of a shard here."""


class ShardQuestion(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Asks for a `ShardInside`."""

    shard: int


class HoldRow(Struct, frozen=True, kw_only=True):
    """A hold. age_s: for how long it was neither set nor renewed, as far as the store knows.
    expires_in_s: -1 when it never does, or another store decides. keeps: whether it keeps back a
    truncation that was asked for.
    """

    name: str = ""
    lsn: int = 0
    owner: str = ""
    ttl_s: int = 0
    age_s: float = 0.0
    expires_in_s: float = -1.0
    keeps: bool = False


class SessionRow(Struct, frozen=True, kw_only=True):
    """A named session; see `rsm.queries.NamedSessionStatus`."""

    session: int = 0
    name: str = ""
    owner: str = ""
    epoch: int = 0
    appended: int = 0
    ttl_s: int = 0
    used_us: int = 0
    lost: bool = False
    forgotten: bool = False


class TruncationRow(Struct, frozen=True, kw_only=True):
    """How truncation stands at one replica; see the proto's TruncationStanding."""

    installed_lsn: int = 0
    installed_index: int = 0
    exports: int = 0
    export_bytes: int = 0
    retained_bytes: int = 0
    truncatable_bytes: int = 0
    freed_bytes: int = 0
    visits_stalled: int = 0
    decision: str = ""
    export_decision: str = ""
    error: str = ""
    decided_ms_ago: int = 0


class ComparedRow(Struct, frozen=True, kw_only=True):
    """What the comparison with the other replicas came to, as the leader's store knows it. through:
    the last entry of the newest comparison that went through the whole log, 0 for none. undecided:
    replicas differ, and it is not known yet which of them is right.
    """

    through: int = 0
    undecided: bool = False


class ShardInside(Struct, frozen=True, kw_only=True):
    """See the module's text. holds, sessions and what belongs to writers are the replicated state
    as this replica has applied it; sessions_more: there are more named ones. lineage: how often the
    log was forked. restoring: it is being restored.
    """

    store: str = ""
    replica: ReplicaStatus = ReplicaStatus()
    holds: tuple[HoldRow, ...] = ()
    sessions: tuple[SessionRow, ...] = ()
    sessions_more: bool = False
    writer_owner: str = ""
    next_timestamp: int = 0
    gaps: int = 0
    closed_lsn: int = 0
    lineage: int = 0
    restoring: bool = False
    truncation: TruncationRow = TruncationRow()
    compared: ComparedRow = ComparedRow()
    history: Series = Series()


class ShardsInside:
    """One per store, on the loop thread."""

    def __init__(
        self, parts: StoreParts, reporter: StatusReporter, history: History, standing: Standing
    ) -> None:
        """Nothing is looked at before it is asked for."""
        self._parts = parts
        self._reporter = reporter
        self._history = history
        self._standing = standing

    def of(self, shard: int) -> ShardInside:
        """Raises ShardNotFound when there is no replica here."""
        status = self._reporter.status()
        replica = next((one for one in status.replicas if one.shard == shard), None)
        if replica is None:
            raise ShardNotFound(f"no replica of shard {shard} here", shard=shard)
        standing = self._standing(ShardId(shard))
        found = ShardInside(
            store=status.store,
            replica=replica,
            truncation=copied(TruncationRow, standing) if standing else TruncationRow(),
            compared=ComparedRow(
                through=self._parts.comparer.compared_through(ShardId(shard)),
                undecided=shard in self._parts.comparer.undecided,
            ),
            history=self._history.series(HistoryQuestion(HOUR, shard)),
        )
        return _with_state(self._parts, found)


def _with_state(parts: StoreParts, found: ShardInside) -> ShardInside:
    shard = ShardId(found.replica.shard)
    status = log_status(parts, shard)
    if status is None:
        return found
    query = NamedSessionsQuery(bounds.ADMIN_SESSIONS_SHOWN)
    named = parts.host.stale_lookup(shard, query)
    assert isinstance(named, NamedSessionsPage)
    return msgspec.structs.replace(
        found,
        holds=hold_rows(parts, shard, status),
        sessions=tuple(copied(SessionRow, one) for one in named.rows),
        sessions_more=named.more,
        writer_owner=status.writer_owner,
        next_timestamp=status.next_timestamp,
        gaps=status.rejected_range_count,
        closed_lsn=status.closed_lsn,
        lineage=status.lineage.number,
        restoring=status.restoring is not None,
    )


def log_status(parts: StoreParts, shard: ShardId) -> LogStatus | None:
    """The replicated state of a log as the replica here has applied it; None where there is none:
    of shard 0, of a witness, of a replica that halted or is gone.
    """
    info = parts.host.replicas.info(shard)
    if info is None or shard == HAKEEPER_SHARD or info.halted or info.witness:
        return None
    status = parts.host.stale_lookup(shard, LogStatusQuery())
    return status if isinstance(status, LogStatus) else None


def hold_rows(parts: StoreParts, shard: ShardId, status: LogStatus) -> tuple[HoldRow, ...]:
    """The holds of a log, by name."""
    times = parts.host.hold_expiry.times(parts.host.replicas.running[shard])
    return tuple(
        _hold_row(hold, times.get(hold.name, HoldTime(0.0, None)), status) for hold in status.holds
    )


def _hold_row(hold: HoldStatus, time: HoldTime, status: LogStatus) -> HoldRow:
    return copied(
        HoldRow,
        hold,
        age_s=time.age_s,
        expires_in_s=-1.0 if time.expires_in_s is None else time.expires_in_s,
        keeps=status.truncated_lsn < status.requested_truncation_lsn
        and hold.lsn <= status.requested_truncation_lsn,
    )
