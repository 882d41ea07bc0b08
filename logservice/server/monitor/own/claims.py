"""claims: who holds, writes to or has sessions in the logs that are led here, a page at a time.

Theory of operation. A claim is a hold, a writer or a named session. Rows are in the order of logs,
and of names within one, and a page begins behind the last row of the one before; so pages stay
right while claims come and go, and nothing is kept between them. A store tells of the logs that it
leads: so each log is told once, by who knows it best. Between two slices of logs and their rows
other work runs, and one page is made after the other, because a filter that matches nothing looks
at every row: a log may have thousands of sessions, so logs alone say nothing of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.ids import HAKEEPER_SHARD, NO_SESSION, ShardId
from logservice.nodehost.assembly.store_parts import StoreParts
from logservice.raft.ready import Role
from logservice.rsm.queries import (
    LogStatus,
    NamedSessionsPage,
    NamedSessionsQuery,
    NamedSessionStatus,
)
from logservice.same_names import copied
from logservice.server.monitor.own.shard_inside import HoldRow, SessionRow, hold_rows, log_status


class ClaimsQuestion(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """kind: one of `KINDS`. The rows come behind (after_shard, after_name), at most `count`, and
    contain `filter` (lower case). keeping: only holds that keep back a truncation.
    """

    kind: str
    filter: str = ""
    keeping: bool = False
    after_shard: int = 0
    after_name: str = ""
    count: int = bounds.ADMIN_CLAIMS_SHOWN


class ClaimRow(Struct, frozen=True, kw_only=True):
    """One claim. log: the name of the log. name: of the hold or the session, or the writer's
    holder. epoch: the writer's, or the session's. sessions: how many the log has, with and without
    a name. hold, session: the rest of such a one.
    """

    shard: int = 0
    log: str = ""
    name: str = ""
    owner: str = ""
    epoch: int = 0
    sessions: int = 0
    hold: HoldRow | None = None
    session: SessionRow | None = None


class Claims(Struct, frozen=True, kw_only=True):
    """A page. more: there are rows behind the last one. silent: the stores that did not answer, so
    that the logs they lead are missing.
    """

    rows: tuple[ClaimRow, ...] = ()
    more: bool = False
    silent: tuple[str, ...] = ()


class LocalClaims:
    """One per store, on the loop thread."""

    def __init__(self, parts: StoreParts) -> None:
        """Nothing is looked at before it is asked for."""
        self._parts = parts
        self._turn = asyncio.Lock()

    async def page(self, asked: ClaimsQuestion) -> Claims:
        """Of the logs that are led here. Nothing for a kind that there is none of."""
        rows_of = KINDS.get(asked.kind)
        if rows_of is None:
            return Claims()
        count = min(max(1, asked.count), bounds.ADMIN_CLAIMS_SHOWN)
        found: list[ClaimRow] = []
        looked_at = 0
        async with self._turn:
            for shard in self._led(asked.after_shard):
                rows: list[ClaimRow] = []
                status = log_status(self._parts, shard)
                if status is not None:
                    row = self._parts.directory.row(shard)
                    log = row.name if row is not None else ""
                    rows += rows_of(self._parts, shard, log, status)
                    found += [one for one in rows if _matches(one, asked)]
                if len(found) > count:
                    break
                looked_at += 1 + len(rows)
                if looked_at >= bounds.ADMIN_CLAIMS_SLICE:
                    looked_at = 0
                    await asyncio.sleep(0)
        return Claims(rows=tuple(found[:count]), more=len(found) > count)

    def _led(self, first: int) -> list[ShardId]:
        return [
            info.shard
            for info in self._parts.host.replicas.infos()
            if info.role is Role.LEADER and info.shard != HAKEEPER_SHARD and info.shard >= first
        ]


def together(pages: Mapping[str, Claims | None], count: int) -> Claims:
    """One page of those of several stores; None: the store did not answer."""
    known = [page for page in pages.values() if page is not None]
    # A log that has just changed its leader may be told by two stores.
    found = {(row.shard, row.name): row for page in known for row in page.rows}
    rows = [found[key] for key in sorted(found)]
    return Claims(
        rows=tuple(rows[:count]),
        more=len(rows) > count or any(page.more for page in known),
        silent=tuple(store for store, page in sorted(pages.items()) if page is None),
    )


def _matches(row: ClaimRow, asked: ClaimsQuestion) -> bool:
    if (row.shard, row.name) <= (asked.after_shard, asked.after_name):
        return False
    if asked.keeping and (row.hold is None or not row.hold.keeps):
        return False
    words = (str(row.shard), row.log, row.name, row.owner)
    return not asked.filter or asked.filter in " ".join(words).lower()


def _holds(parts: StoreParts, shard: ShardId, log: str, status: LogStatus) -> Iterable[ClaimRow]:
    if not status.holds:
        return
    for hold in sorted(hold_rows(parts, shard, status), key=lambda one: one.name):
        yield ClaimRow(shard=shard, log=log, name=hold.name, owner=hold.owner, hold=hold)


def _writers(parts: StoreParts, shard: ShardId, log: str, status: LogStatus) -> Iterable[ClaimRow]:
    if status.writer_epoch:
        yield ClaimRow(
            shard=shard,
            log=log,
            name=status.writer_holder,
            owner=status.writer_owner,
            epoch=status.writer_epoch,
            sessions=status.session_count,
        )


def _sessions(parts: StoreParts, shard: ShardId, log: str, status: LogStatus) -> Iterator[ClaimRow]:
    if not status.session_count:
        return
    named: list[NamedSessionStatus] = []
    more = True
    while more:
        after = named[-1].session if named else NO_SESSION
        query = NamedSessionsQuery(bounds.SESSIONS_LISTED_MAX, after)
        page = parts.host.stale_lookup(shard, query)
        assert isinstance(page, NamedSessionsPage)
        named += page.rows
        more = page.more
    if len(named) < status.session_count:  # the others have no name, and are one row
        yield ClaimRow(shard=shard, log=log, sessions=status.session_count)
    for one in sorted(named, key=lambda one: one.name):
        yield ClaimRow(
            shard=shard,
            log=log,
            name=one.name,
            owner=one.owner,
            epoch=one.epoch,
            sessions=status.session_count,
            session=copied(SessionRow, one),
        )


_RowsOf = Callable[[StoreParts, ShardId, str, LogStatus], Iterable[ClaimRow]]

KINDS: Final[Mapping[str, _RowsOf]] = {
    "holds": _holds,
    "writers": _writers,
    "sessions": _sessions,
}
"""The claims that there are."""
