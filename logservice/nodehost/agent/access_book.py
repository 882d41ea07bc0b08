"""AccessBook: the access list as this store knows it, across restarts.

Theory of operation. The answer of a heartbeat carries the list when it has changed. The book keeps
the newest one in memory and in a remembered file, because a store must be able to serve after a
restart when HAKeeper cannot be reached: the shards do not need HAKeeper, and an access list that
vanished with a power cut would stop them all. The copy with the newest version counts.

INV-ACCESS-1: without a list nobody is granted anything. A missing or damaged file is an empty list.

Until the first heartbeat after a restart is answered, the list may be older than shard 0's. The
same holds for as long as a store is cut off from HAKeeper. Otherwise a change is in force here
within two heartbeats.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import Struct

from logservice.access import AccessList, Grant
from logservice.hakeeper.commands.proposals import AccessGrant
from logservice.hakeeper.commands.wire_types import Natural
from logservice.nodehost.agent.remembered_file import Copy, PageForm, RememberedFile

logger = logging.getLogger(__name__)

_VERSION = b"\x01"


class _Page(Struct, array_like=True, forbid_unknown_fields=True):
    version: Natural = 0
    grants: tuple[AccessGrant, ...] = ()


_FORM = PageForm("the access list", _VERSION, _Page)


class AccessBook:
    """One per store."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._file = RememberedFile(_FORM, copies)
        newest = max([_Page(), *self._file.found], key=lambda page: page.version)
        self.list = _list(newest)
        """The list in force here."""

    def update(self, version: int, grants: Sequence[AccessGrant]) -> None:
        """Take in what a heartbeat's answer says; it is in force at once."""
        page = _Page(version, tuple(grants))
        self.list = _list(page)
        logger.info("access list %d is in force: %d grants", version, len(page.grants))
        self._file.write(page)


def _list(page: _Page) -> AccessList:
    grants = [Grant(one.identity, one.scope, one.roles) for one in page.grants]
    return AccessList(page.version, grants)
