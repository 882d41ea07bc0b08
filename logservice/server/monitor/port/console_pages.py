"""console_pages: the documents of ``/api/v1`` that have parameters, by path.

Each has rules for its parameters and a function that makes the value; the values are bounded where
they are made. What is asked of the cluster is asked through the board, so no thread of the admin
port touches what belongs to the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from logservice import bounds
from logservice.server.monitor.cluster.diagnosis import FindingRow, diagnose, row
from logservice.server.monitor.cluster.rows import ClusterReport
from logservice.server.monitor.cluster.seen import Seen
from logservice.server.monitor.own.claims import KINDS, ClaimsQuestion
from logservice.server.monitor.own.history import DAY, HOUR
from logservice.server.monitor.port.board import Board
from logservice.server.monitor.port.guarded_pages import (
    GrantsQuestion,
    GuardedPages,
    RecordsQuestion,
)
from logservice.server.monitor.port.query import (
    Rule,
    flag,
    number,
    one_of,
    searched,
    text,
    values_of,
)
from logservice.server.monitor.port.runbooks import Runbooks
from logservice.server.monitor.port.shard_page import ShardPages, parse

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_SHARD: Final = number(0, 2**63 - 1)
_STORE: Final = text(bounds.NAME_BYTES_MAX)


class FindingsPage(Struct, frozen=True, kw_only=True):
    """The worst findings; found: how many there are."""

    rows: tuple[FindingRow, ...] = ()
    found: int = 0


class Findings:
    """What the doctor says about a report; made once for each report, by whichever thread comes
    first.
    """

    def __init__(self) -> None:
        """Nothing was diagnosed yet."""
        self._lock = threading.Lock()
        self._seen: ClusterReport | None = None
        self._page = FindingsPage()

    def of(self, report: ClusterReport) -> FindingsPage:
        """The worst first. Nobody looked from outside, so nothing is said of how to get there."""
        with self._lock:
            if report is not self._seen:
                found = diagnose(Seen((), report, ""))
                shown = tuple(map(row, found[: bounds.ADMIN_FINDINGS_SHOWN]))
                self._page = FindingsPage(rows=shown, found=len(found))
                self._seen = report
            return self._page


class ConsolePages:
    """Any thread of the admin port may call it."""

    def __init__(self, board: Board, guarded: GuardedPages) -> None:
        """Ask `board`, and `guarded` for what needs a right."""
        self._board = board
        self._guarded = guarded
        self._shards = ShardPages()
        self._findings = Findings()
        self._runbooks = Runbooks()
        self._pages: Mapping[str, tuple[Mapping[str, Rule], Callable[..., object]]] = {
            "findings": ({}, self._all_findings),
            "history": ({"store": _STORE, "span": one_of(HOUR, DAY)}, self._history),
            "stores/detail": ({"store": _STORE}, self._store),
            "shards/detail": ({"shard": _SHARD}, self._shard),
            "claims": (_CLAIMS, self._claims),
            "work": ({}, self._work),
            "runbooks": ({"page": _STORE}, self._runbook),
        }

    def make(self, part: str, environ: WSGIEnvironment) -> object | None:
        """The document at ``/api/v1/<part>``; None when there is none. Raises BadQuery, and what
        the board raises.
        """
        query = environ.get("QUERY_STRING", "")
        if part == "records":
            return self._guarded.records(
                environ, RecordsQuestion(**{"shard": 0, **values_of(query, _RECORDS)})
            )
        if part == "grants":
            return self._guarded.grants(environ, GrantsQuestion(**values_of(query, _GRANTS)))
        if part == "shards/page":
            choice = parse(query)
            return self._shards.page(self._board.cluster(), choice)
        found = self._pages.get(part)
        if found is None:
            return None
        rules, made = found
        return made(**values_of(query, rules))

    def _all_findings(self) -> object:
        return self._findings.of(self._board.cluster())

    def _history(self, store: str = "", span: str = HOUR) -> object:
        return self._board.console(lambda console: console.history(store, span))

    def _store(self, store: str = "") -> object:
        return self._board.console(lambda console: console.store(store))

    def _shard(self, shard: int = 0) -> object:
        return self._board.console(lambda console: console.shard(shard))

    def _claims(self, kind: str = "holds", **asked: Any) -> object:
        return self._board.console(lambda console: console.claims(ClaimsQuestion(kind, **asked)))

    def _work(self) -> object:
        return self._board.console(lambda console: console.work())

    def _runbook(self, page: str = "") -> object | None:
        return self._runbooks.page(page) if page else self._runbooks.names


_CLAIMS: Final[Mapping[str, Rule]] = {
    "kind": one_of(*KINDS),
    "filter": searched,
    "keeping": flag,
    "after_shard": _SHARD,
    "after_name": text(bounds.NAME_BYTES_MAX),
    "count": number(1, bounds.ADMIN_CLAIMS_SHOWN),
}

_RECORDS: Final[Mapping[str, Rule]] = {
    "shard": _SHARD,
    "lsn": number(0, 2**63 - 1),
    "time_us": number(0, 2**63 - 1),
    "latest": flag,
    "count": number(1, bounds.ADMIN_RECORDS_SHOWN),
}

_GRANTS: Final[Mapping[str, Rule]] = {
    "filter": searched,
    "offset": number(0, 2**31 - 1),
    "count": number(1, bounds.ADMIN_GRANTS_SHOWN),
}
