"""guarded_pages: the documents that need a right: records, and the access list.

Theory of operation. A request says whose it is (`caller`), or it gets nothing. What the caller may
see the store's services decide as they do for the RPC of the same contents, and they write it into
the audit log (`server.services.browsing`); this file carries the question to the event loop and the
answer back. A store that speaks plaintext does so on a loopback address, and lets everybody on its
machine read at its client port. So it shows them records here, too, as *anonymous*, but to nobody
from elsewhere, whatever address the admin port has. The access list means nothing there.

INV-ADMIN-2: no record and no grant leaves the admin port for a caller without an identity, but
records of a store in plaintext for a request from its own machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from logservice_wire.errors import NotReady, Unauthenticated
from msgspec import Struct

from logservice import bounds
from logservice.owner import ANONYMOUS
from logservice.server.edge.gate import Caller as KnownCaller
from logservice.server.monitor.port.board import Board
from logservice.server.monitor.port.caller import Callers, from_this_machine, peer_of

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

WHO: Final = "who"
"""Metadata key of UNAUTHENTICATED: ``plaintext`` where nobody has an identity, ``nobody`` where the
request names none."""


class RecordsQuestion(Struct, frozen=True, kw_only=True):
    """Records of a log from an LSN on, or from a time on. lsn: 0 for the first ones that there are,
    or those at `time_us`, if that is not 0. latest: the last ones, whatever `lsn` says.
    """

    shard: int
    lsn: int = 0
    time_us: int = 0
    latest: bool = False
    count: int = bounds.ADMIN_RECORDS_SHOWN


class Shown(Struct, frozen=True, kw_only=True):
    """Bytes of a record: how many there are, and the first ADMIN_VALUE_BYTES_SHOWN in hex."""

    size: int
    hex: str


class RecordRow(Struct, frozen=True, kw_only=True):
    """A record, or a stretch of LSNs that has none. count: 1 for a record, else how many LSNs the
    row is about. gap: why there are none. value: None where it is not shown, and note says why.
    append_time_us: when it was appended, 0 when that is not known; time_us: what its block, or the
    record itself, says. block_lsn, block_records, block_bytes: of its block. wide: only readers
    open that. key, headers: of a record in a wide one.
    """

    lsn: int
    count: int = 1
    gap: str = ""
    note: str = ""
    term: int = 0
    append_time_us: int = 0
    time_us: int = 0
    block_lsn: int = 0
    block_records: int = 0
    block_bytes: int = 0
    wide: bool = False
    value: Shown | None = None
    key: Shown | None = None
    headers: tuple[tuple[str, Shown], ...] = ()


class RecordsPage(Struct, frozen=True, kw_only=True):
    """Rows from `lsn` on. next_lsn: where the next page begins. first_lsn, applied_lsn: what this
    store's replica has. end_lsn: behind the last record of a closed log, else 0. who: for whom it
    was read.
    """

    store: str
    shard: int
    lsn: int
    next_lsn: int
    first_lsn: int
    applied_lsn: int
    end_lsn: int
    who: str
    rows: tuple[RecordRow, ...] = ()


class GrantsQuestion(Struct, frozen=True, kw_only=True):
    """Denials and grants that contain `filter`, from the one at `offset` on."""

    filter: str = ""
    offset: int = 0
    count: int = bounds.ADMIN_GRANTS_SHOWN


class GrantRow(Struct, frozen=True, kw_only=True):
    """A rule of the list. rule: grant, or deny, which wins. logs: how many logs its scope names
    now, -1 where that says nothing. used_us: when the identity last called this store, 0 for never
    since its start.
    """

    rule: str
    identity: str
    scope: str
    roles: tuple[str, ...]
    logs: int
    used_us: int = 0


class GrantsPage(Struct, frozen=True, kw_only=True):
    """The access list as this store has it. current: HAKeeper has just said that it is the list.
    too_old: it grants nothing any more. admins: who may do everything by the configuration here.
    """

    store: str
    version: int
    current: bool
    too_old: bool
    admins: tuple[str, ...]
    rows: tuple[GrantRow, ...]
    offset: int
    matching: int
    rules: int
    who: str


class Browser(Protocol):
    """What answers on the event loop; see `server.services.browsing`."""

    async def records(self, caller: KnownCaller, peer: str, asked: RecordsQuestion) -> RecordsPage:
        """Raises what Read does."""
        ...

    async def grants(self, caller: KnownCaller, peer: str, asked: GrantsQuestion) -> GrantsPage:
        """Raises what GetAccessList does."""
        ...


class GuardedPages:
    """One per admin port. Its methods are called in the port's threads."""

    def __init__(self, board: Board, callers: Callers) -> None:
        """Nothing is shown before `attach`."""
        self._board = board
        self._callers = callers
        self._browser: Callable[[], Browser | None] = _no_browser

    def attach(self, browser: Callable[[], Browser | None]) -> None:
        """Ask what `browser` returns; None as long as the store starts."""
        self._browser = browser

    def records(self, environ: WSGIEnvironment, asked: RecordsQuestion) -> RecordsPage:
        """Raises what `Browser.records` does, and what `_caller` does."""
        caller, peer = self._caller(environ, plaintext=from_this_machine(environ)), peer_of(environ)
        browser = self._ready()
        return self._board.ask(lambda: browser.records(caller, peer, asked))

    def grants(self, environ: WSGIEnvironment, asked: GrantsQuestion) -> GrantsPage:
        """Raises what `Browser.grants` does, and what `_caller` does."""
        caller, peer, browser = self._caller(environ), peer_of(environ), self._ready()
        return self._board.ask(lambda: browser.grants(caller, peer, asked))

    def _caller(self, environ: WSGIEnvironment, *, plaintext: bool = False) -> KnownCaller:
        """Raises Unauthenticated{who}, and what `Callers.of` does. `plaintext`: take anonymous."""
        caller = self._callers.of(environ)
        if caller is None:
            raise Unauthenticated("the request does not say whose it is", **{WHO: "nobody"})
        if caller.uri == ANONYMOUS and not plaintext:
            raise Unauthenticated(
                "this store speaks plaintext, so nobody can say who they are: it shows records to"
                " its own machine only, and no access list",
                **{WHO: "plaintext"},
            )
        return caller.known

    def _ready(self) -> Browser:
        browser = self._browser()
        if browser is None:
            raise NotReady("the store is starting")
        return browser


def _no_browser() -> None:
    return None
