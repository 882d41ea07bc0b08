"""ShardPages: the rows of shards that a page shows, chosen on the server.

Theory of operation. A report on 10,000 shards is 8 MB of JSON, and a page shows 25 of them. So a
page says what it shows: what the rows contain (`filter`), whether only troubled ones, in which
order, and which stretch of them. It gets those rows, how many match, and what the head of the page
says about all shards. The choice is made in the thread of the admin port, from the report that all
callers share; the event loop goes on meanwhile. Only what a choice needs is computed: without a
filter and in the order of shards no more than a pass for the sum of the rates.

Records per second are taken between two reports that this port has seen. Reports further apart
than ADMIN_RATE_SPAN_S give none: their mean says nothing of now.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from logservice import bounds
from logservice.server.monitor.cluster.rows import ClusterReport, ReplicaRow, ShardRow
from logservice.server.monitor.port.query import flag, number, one_of, searched, values_of

_LEADERLESS_NAMED = 8
_WELL = 9
_DIGITS = re.compile("[0-9]+")


class Condition(Struct, frozen=True):
    """What is the matter with a shard: the lower the rank, the worse. `level`: good, warn, bad."""

    rank: int
    text: str
    level: str


class Choice(Struct, frozen=True, kw_only=True):
    """What a page shows. `sort`: a column; among equals the lower shard comes first."""

    filter: str = ""
    troubled: bool = False
    sort: str = "shard"
    descending: bool = False
    offset: int = 0
    count: int = bounds.ADMIN_SHARDS_SHOWN


class ShownShard(Struct, frozen=True, kw_only=True):
    """One row, with what a person is told of it. records_per_s: null when it is unknown."""

    row: ShardRow
    condition: Condition
    records_per_s: float | None


class ShardPage(Struct, frozen=True, kw_only=True):
    """The rows of a choice, from `offset` on. `matching`: how many rows match; `shards`: how many
    there are at all. records_per_s: of all shards. without_leader: the first of those.
    """

    rows: tuple[ShownShard, ...]
    offset: int
    matching: int
    shards: int
    records_per_s: float
    without_leader: tuple[int, ...]


class ShardPages:
    """It remembers the rates between the newest two reports; any thread may call it."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._lock = threading.Lock()
        self._seen: ClusterReport | None = None
        self._lsns: Mapping[int, int] = {}
        self._rates: Mapping[int, float] = {}

    def page(self, report: ClusterReport, choice: Choice) -> ShardPage:
        """The rows of `choice`. An offset behind the last one gets the last page."""
        rates = self._rates_at(report)
        found = [row for row in report.shards if _matches(row, choice)]
        if choice.sort != "shard" or choice.descending:
            found.sort(key=_KEYS[choice.sort](rates), reverse=choice.descending)
        last = max(0, len(found) - 1) // choice.count * choice.count
        offset = min(choice.offset, last)
        leaderless = [row.shard for row in report.shards if not row.leader_store]
        return ShardPage(
            rows=tuple(
                ShownShard(row=row, condition=condition(row), records_per_s=rates.get(row.shard))
                for row in found[offset : offset + choice.count]
            ),
            offset=offset,
            matching=len(found),
            shards=len(report.shards),
            records_per_s=sum(rates.values()),
            without_leader=tuple(leaderless[:_LEADERLESS_NAMED]),
        )

    def _rates_at(self, report: ClusterReport) -> Mapping[int, float]:
        with self._lock:
            if report is not self._seen:
                before, self._seen = self._seen, report
                lsns = {row.shard: row.applied_lsn for row in report.shards}
                self._rates = {}
                if before is not None:
                    seconds = (report.cluster.time_us - before.cluster.time_us) / 1e6
                    if 0 < seconds <= bounds.ADMIN_RATE_SPAN_S:
                        self._rates = _rates(self._lsns, lsns, seconds)
                self._lsns = lsns
            return self._rates


def _rates(before: Mapping[int, int], now: Mapping[int, int], seconds: float) -> dict[int, float]:
    """A shard whose position went back has none: nobody who knew it better answered."""
    return {
        shard: (lsn - before[shard]) / seconds
        for shard, lsn in now.items()
        if shard in before and lsn >= before[shard]
    }


def condition(shard: ShardRow) -> Condition:
    """The worst that can be said of a shard."""
    voters = [one for one in shard.replicas if one.role != "learner"]
    alive = sum(not _lost(one) for one in voters)
    lost = sum(_lost(one) for one in shard.replicas)
    learners = len(shard.replicas) - len(voters)
    readers = sum(shard.learners.values())
    if not shard.leader_store:
        return Condition(0, "no leader", "bad")
    if alive < len(voters) and 2 * alive <= len(voters):
        return Condition(1, "no majority", "bad")
    if lost:
        return Condition(2, f"{lost} replica{'s' if lost > 1 else ''} down", "warn")
    if shard.stalled:
        return Condition(3, "truncation stalled", "warn")
    if alive < shard.wanted:
        return Condition(4, f"{alive} of {shard.wanted} replicas", "warn")
    if shard.joint:
        return Condition(5, "changing", "warn")
    if learners < readers:
        return Condition(6, f"{learners} of {readers} learners", "warn")
    if shard.state == "deleting":
        return Condition(7, "deleting", "warn")
    if shard.state == "closed":
        return Condition(8, "closed", "good")
    return Condition(_WELL, "ok", "good")


def parse(query: str) -> Choice:
    """The choice that a query string says. Raises BadQuery."""
    return Choice(**values_of(query, _FIELDS))


def _column(said: str) -> str:
    return one_of(*_KEYS)(said)


_FIELDS: Final[dict[str, Callable[[str], object]]] = {
    "filter": searched,
    "troubled": flag,
    "sort": _column,
    "descending": flag,
    "offset": number(0, 2**31 - 1),
    "count": number(1, bounds.ADMIN_SHARDS_SHOWN),
}


def _lost(replica: ReplicaRow) -> bool:
    return replica.health not in ("", "alive")


def _matches(row: ShardRow, choice: Choice) -> bool:
    if choice.troubled and condition(row).rank == _WELL:
        return False
    if not choice.filter:
        return True
    stores = (one.store for one in row.replicas)
    words = (
        str(row.shard),
        row.name,
        row.leader_store,
        row.writer_holder,
        condition(row).text,
        *stores,
    )
    return choice.filter in " ".join(words).lower()


def _natural(text: str) -> str:
    """Orders text as a person does: log-9 before log-10. It is one string, because a sort of
    strings holds the interpreter for the shortest time.
    """
    return _DIGITS.sub(_measured, text.lower())


def _measured(found: re.Match[str]) -> str:
    digits = found[0].lstrip("0")
    return f"{len(digits):06}{digits}"


_Key = Callable[[ShardRow], Any]
_KEYS: Final[dict[str, Callable[[Mapping[int, float]], _Key]]] = {
    "shard": lambda _: lambda row: row.shard,
    "name": lambda _: lambda row: _natural(row.name),
    "state": lambda _: lambda row: condition(row).rank,
    "leader_store": lambda _: lambda row: _natural(row.leader_store),
    "lag_entries": lambda _: lambda row: row.lag_entries,
    "rate": lambda rates: lambda row: rates.get(row.shard, -1.0),
    "first_lsn": lambda _: lambda row: row.first_lsn,
    "applied_lsn": lambda _: lambda row: row.applied_lsn,
    "truncated_lsn": lambda _: lambda row: row.truncated_lsn,
    "writer_holder": lambda _: lambda row: _natural(row.writer_holder),
}
