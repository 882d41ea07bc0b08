"""Directory: what this store knows of all logs, also while nobody can ask HAKeeper.

Theory of operation. The directory has a row for each log: its id, name, state and members. The
store gets the rows page by page and in the order of their marks (`hakeeper.marks`), so it asks for
what has changed, and for everything only after its start or when rows are gone that it may have.
The answer to each heartbeat says whether anything has changed. Until a copy is whole, the one from
before the restart counts; it is read from a remembered file. A copy, whole or coming, may have a
row that is gone if that row's last mark is above what the copy was complete with.

The file is a cache of what HAKeeper says again. It is written at once when the access list has
another version, because names are judged with it, and otherwise at most every
DIRECTORY_WRITE_INTERVAL_S, so that a cluster in which logs come and go costs no disk. What a crash
loses of it is fetched again; until then the store knows a little less, and says how old it is.

The copy is that of one moment, `index`, or newer row by row. Nothing in it is a proof of the
present: a log may have moved or ended since. It is never a proof that a log does not exist.

INV-DIRECTORY-1: an older answer changes nothing. A page counts only if the replica that made it has
applied what this copy has. Only HAKeeper's own answer to a heartbeat can take the copy back: if the
entry of a heartbeat has a lower index than what was known before it was sent, shard 0 has lost
entries, and everything is asked for anew.

INV-DIRECTORY-2: a name is told only with the version of the access list that it is as new as.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.clock import Clock
from logservice.hakeeper.answers.directory import DirectoryPage, DirectoryRow
from logservice.hakeeper.answers.queries import GetDirectory
from logservice.hakeeper.answers.views import Life
from logservice.hakeeper.commands.wire_types import Natural
from logservice.ids import ShardId
from logservice.nodehost.agent.remembered_file import Copy, PageForm, RememberedFile

logger = logging.getLogger(__name__)

_VERSION = b"\x01"
_LAST: Final = ShardId(2**62)
"""Behind every log's id."""


class _Page(Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    index: Natural = 0
    access_version: Natural = 0
    heard_us: int = 0
    rows: tuple[DirectoryRow, ...] = ()


_FORM = PageForm("the directory", _VERSION, _Page)


class Directory:
    """One per store, on the loop thread."""

    def __init__(self, copies: Sequence[Copy], clock: Clock) -> None:
        """Read what the store knew before."""
        self._file = RememberedFile(_FORM, copies)
        self._clock = clock
        page = max([_Page(), *self._file.found], key=lambda page: page.index)
        self.index = page.index
        """What the copy is as new as, by shard 0's index; 0 for no copy."""
        self._access_version = page.access_version if page.index else -1
        self._heard_us = page.heard_us
        self._heard_s: float | None = None
        self._rows = {row.shard: row for row in page.rows}
        self._names = _names(self._rows)
        self._coming: dict[ShardId, DirectoryRow] | None = {}
        self._since, self._after = 0, ShardId(0)
        self._complete = 0
        self._changed = False
        self._written_s = float("-inf")

    def add_copy(self, copy: Copy) -> None:
        """Keep a copy there, too, from the next time on that the copies are written."""
        self._file.add(copy)

    def drop_copy(self, path: str) -> None:
        """Keep none there any more."""
        self._file.drop(path)

    @property
    def heard_us(self) -> int:
        """The wall clock when HAKeeper last said that nothing was newer, 0 for never."""
        return self._heard_us

    def __len__(self) -> int:
        """How many logs are known."""
        return len(self._rows)

    def row(self, shard: ShardId) -> DirectoryRow | None:
        """What is known of a log; None proves nothing."""
        return self._rows.get(shard)

    def resolve(self, name: str) -> DirectoryRow | None:
        """What is known of the log of that name; None proves nothing."""
        return self._names.get(name)

    def count_names(self, prefix: str) -> int:
        """How many logs have a name that begins so."""
        return sum(name.startswith(prefix) for name in self._names)

    def name_of(self, shard: ShardId, access_version: int) -> str | None:
        """The name of a log, if it is known to be as new as that access list (INV-DIRECTORY-2)."""
        row = self._rows.get(shard)
        return row.name if row is not None and self._access_version >= access_version else None

    def age_s(self) -> float:
        """How long ago HAKeeper last said that nothing was newer. After a restart it is counted by
        the wall clock, which may have been set meanwhile.
        """
        if self._heard_s is not None:
            return self._clock.boottime() - self._heard_s
        return max(0.0, (self._clock.wall_us() - self._heard_us) / 1_000_000)

    # --- following --------------------------------------------------------------------------------

    def hear(self, known: int, index: int, newest: int, access_version: int) -> bool:
        """Take in HAKeeper's answer to a heartbeat, and return whether rows are to be asked for.

        `index`: of the heartbeat's entry; `known`: this copy's index before it was sent. `newest`:
        the newest mark; `access_version`: of the access list.
        """
        if index < known:
            logger.warning("shard 0 was at index %d and is at %d: all is asked anew", known, index)
            self.index, self._access_version = 0, -1
            self._begin()
        if self._coming is None and newest <= self._since:
            self._as_new_as(index, access_version)
            return False
        return True

    def wanted(self) -> GetDirectory:
        """What to ask for next."""
        return GetDirectory(self._since, self._after)

    def take(self, asked: GetDirectory, page: DirectoryPage) -> bool:
        """Take in a page, and return whether more is to be asked for now."""
        if asked != self.wanted() or page.index < max(asked.since, self.index):
            return False
        if not asked.since:
            self._complete = page.lost
        elif page.lost > self._complete:
            self._begin()
            return True
        coming = self._rows if self._coming is None else self._coming
        for row in page.rows:
            if self._coming is None:
                self._drop_name(row.shard)
            if row.state == Life.DELETING:
                coming.pop(row.shard, None)
                continue
            coming[row.shard] = row
            if self._coming is None:
                self._names[row.name] = row
        self._changed = self._changed or bool(page.rows) or self._coming is not None
        if page.more and page.rows:
            self._since, self._after = page.rows[-1].mark, page.rows[-1].shard
            return True
        if self._coming is not None:
            self._rows, self._names, self._coming = coming, _names(coming), None
        self._since, self._after = page.index, _LAST
        self._complete = page.index
        self._as_new_as(page.index, page.access_version)
        return False

    def _begin(self) -> None:
        """Ask for everything; what is known counts until everything has come."""
        self._coming = {}
        self._since, self._after = 0, ShardId(0)

    def _drop_name(self, shard: ShardId) -> None:
        before = self._rows.get(shard)
        if before is not None and self._names.get(before.name) is before:
            del self._names[before.name]

    def _as_new_as(self, index: int, access_version: int) -> None:
        renamed = access_version != self._access_version
        self.index, self._access_version = index, access_version
        self._heard_s, self._heard_us = self._clock.boottime(), self._clock.wall_us()
        waited_s = self._heard_s - self._written_s
        if (
            renamed
            or waited_s >= bounds.DIRECTORY_REWRITE_S
            or (self._changed and waited_s >= bounds.DIRECTORY_WRITE_INTERVAL_S)
        ):
            self._written_s, self._changed = self._heard_s, False
            rows = tuple(self._rows.values())
            self._file.write(_Page(index, access_version, self._heard_us, rows))


def _names(rows: dict[ShardId, DirectoryRow]) -> dict[str, DirectoryRow]:
    return {row.name: row for row in rows.values()}
