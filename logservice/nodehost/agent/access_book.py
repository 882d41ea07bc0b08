"""AccessBook: the access list as this store knows it, across restarts.

Theory of operation. The answer of a heartbeat carries the list when it has changed. The book keeps
the newest one in memory and in a remembered file, because a store must be able to serve after a
restart when HAKeeper cannot be reached: the shards do not need HAKeeper, and an access list that
vanished with a power cut would stop them all. The copy with the newest version counts.

INV-ACCESS-1: without a list nobody is granted anything. A missing or damaged file is an empty list.

Until the first heartbeat after a restart is answered, the list may be older than shard 0's. The
same holds for as long as a store is cut off from HAKeeper. What it grants is granted all the same.
What it does not grant may have been granted since, so nothing is denied by it for good (`current`).
Otherwise a change is in force here within two heartbeats.

INV-ACCESS-2: from cluster version 2 on a list that HAKeeper has not confirmed for GRANT_AGE_MAX_S
grants nothing. So a revocation is complete when every store has it, or that time has passed. After
a restart the age is counted by the wall clock, from the time that the directory's file names. If
the clock says that this is still to come, the age is not known, and so the list is too old. It
grows by boottime from there, so neither a clock that is set back nor a suspended host keeps a list.

The file has a second form, for a list with denials; only from cluster version 2 on there are any. A
program that does not know it takes it for damaged, and so lets nobody in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.access import AccessList, Grant
from logservice.clock import Clock, Expiry
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.commands.wire_types import Natural
from logservice.nodehost.agent.remembered_file import CRC_BYTES, Copy, PageForm, RememberedFile

logger = logging.getLogger(__name__)

_VERSION = b"\x01"
_DENYING = b"\x02"


class _Page(Struct, array_like=True, forbid_unknown_fields=True):
    version: Natural = 0
    grants: tuple[AccessGrant, ...] = ()
    denials: tuple[AccessGrant, ...] = ()


class _Granting(Struct, array_like=True, forbid_unknown_fields=True):
    version: Natural = 0
    grants: tuple[AccessGrant, ...] = ()


class _Form(PageForm[_Page]):
    """Writes the first form where it says all that there is."""

    _first: Final = PageForm("the access list", _VERSION, _Granting)

    def encode(self, page: _Page) -> bytes:
        if page.denials:
            return super().encode(page)
        return self._first.encode(_Granting(page.version, page.grants))

    def decode(self, data: bytes) -> _Page:
        if data[CRC_BYTES:][:1] == _DENYING:
            return super().decode(data)
        found = self._first.decode(data)
        return _Page(found.version, found.grants)


_FORM = _Form("the access list", _DENYING, _Page)


class AccessBook:
    """One per store."""

    def __init__(
        self,
        copies: Sequence[Copy],
        clock: Clock,
        current_s: float = bounds.ACCESS_CURRENT_S,
        heard_us: int = 0,
        ages: Callable[[], bool] = lambda: True,
    ) -> None:
        """`current_s`: for how long after HAKeeper's answer the list counts as its own. `heard_us`:
        the wall clock when HAKeeper last answered an earlier process, 0 for never. `ages`: whether
        the cluster's version lets a list grow too old.
        """
        self._heard_us = heard_us
        self._ages = ages
        self._file = RememberedFile(_FORM, copies)
        self._clock = clock
        self._current_s = current_s
        self._confirmed_s = float("-inf")
        self._heard = Expiry.at(heard_us / 1_000_000 + bounds.GRANT_AGE_MAX_S, clock)
        newest = max([_Page(), *self._file.found], key=lambda page: page.version)
        self._page = newest
        self.list = _list(newest)
        """The list in force here."""

    @property
    def current(self) -> bool:
        """HAKeeper has just said that this is the list."""
        return self._clock.boottime() - self._confirmed_s <= self._current_s

    @property
    def too_old(self) -> bool:
        """Nothing is granted by the list any more (INV-ACCESS-2)."""
        age_s = self._clock.boottime() - self._confirmed_s
        if age_s <= bounds.GRANT_AGE_MAX_S or not self._ages():
            return False
        if self._confirmed_s != float("-inf"):
            return True
        return self._clock.wall_us() < self._heard_us or self._heard.left_s(self._clock) < 0

    def add_copy(self, copy: Copy) -> None:
        """Keep a copy there, too."""
        self._file.add(copy, self._page)

    def drop_copy(self, path: str) -> None:
        """Keep none there any more."""
        self._file.drop(path)

    def confirm(self, asked_s: float) -> None:
        """HAKeeper has answered what was asked then, by boottime: `list` was its own."""
        self._confirmed_s = asked_s

    def update(
        self, version: int, grants: Sequence[AccessGrant], denials: Sequence[AccessGrant] = ()
    ) -> None:
        """Take in what a heartbeat's answer says; it is in force at once."""
        page = self._page = _Page(version, tuple(grants), tuple(denials))
        self.list = _list(page)
        logger.info(
            "access list %d is in force: %d grants, %d denials",
            version,
            len(page.grants),
            len(page.denials),
        )
        self._file.write(page)


def _list(page: _Page) -> AccessList:
    grants = [Grant(one.identity, one.scope, one.roles) for one in page.grants]
    denials = [Grant(one.identity, one.scope, one.roles) for one in page.denials]
    return AccessList(page.version, grants, denials)
