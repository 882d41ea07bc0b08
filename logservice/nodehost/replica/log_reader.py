"""LogReader: the core's and the readers' view of one replica's durable log.

It is the real twin of `raft.log.memory_storage`. logdb does the work (index in memory, entries from
its cache or its segments). This class translates into the words of the seam: what is compacted, and
what is not there.

Some entries are only on the disk (for a follower that is far behind; all of them after a restart).
Nobody waits here for those, nor for the index rows that say where they are: asking for them raises
UnavailableError until the read executor has read them. Then the core is asked to try again, and
what was read stays here for that pass. What the core does not take in that pass is forgotten, so
nothing piles up. After a restart every replica wants as much as it may get at once, and one thread
reads for all of them: so one read ends at LOGDB_READ_SPAN_BYTES_MAX.

What is applied here is read for other members only. Those that are far behind have to wait for
their turn (`catch_up`), and until then their entries cannot be had, wherever they are.

INV-READER-1: entries that were read are given only while the log still has the last of them in that
term. Then it has all before it, too (log matching), whatever was cut off and written meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from logservice.bounds import LOGDB_READ_SPAN_BYTES_MAX
from logservice.entry import Entry
from logservice.ids import Index, Lsn, Term
from logservice.logdb.read.entry_read import Fetch
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.nodehost.replica.catch_up import CatchUpGate
from logservice.raft.log.log import limit_size
from logservice.raft.log.storage import CompactedError, UnavailableError
from logservice.snapshot import Snapshot

_FETCHES_MAX: Final = 16
"""Reads under way for one replica: one for applying, and one for each member that is behind."""


class LogReader:
    """See `raft.log.storage.LogStorage` for the methods of the seam."""

    def __init__(
        self,
        log: ReplicaLog,
        submit: Callable[[Fetch], None],
        *,
        gate: CatchUpGate | None = None,
        applied: Callable[[], Index] = lambda: Index(0),
    ) -> None:
        """Read `log`. `submit` runs a fetch elsewhere and then has `arrived` called with it.

        `gate` says when entries up to `applied` may go to members that are far behind; without it
        always.
        """
        self._log = log
        self._submit = submit
        self._gate = gate
        self._applied = applied
        self._under_way: dict[Index, None] = {}
        """An empty set takes 216 bytes, a dictionary 64."""
        self.fetched: list[tuple[Future[None], Fetch]] = []
        """The fetches that have run since the last pass; see `take_arrived`."""
        self._read: list[tuple[Entry, ...]] = []
        self._indexed: dict[Index, None] = {}

    def first_index(self) -> Index:
        """See `LogStorage`."""
        return self._log.first_index()

    def last_index(self) -> Index:
        """See `LogStorage`."""
        return self._log.last_index()

    def term(self, index: Index) -> Term:
        """See `LogStorage`."""
        self._check(index)
        return self._log.term(index)

    def next_lsn(self, index: Index) -> Lsn:
        """See `LogStorage`."""
        self._check(index)
        return self._log.next_lsn(index)

    def index_of_lsn(self, lsn: Lsn) -> Index:
        """The entry that holds the record `lsn`; KeyError when none does."""
        return self._log.index_of_lsn(lsn)

    def entries(self, low: Index, high: Index, max_bytes: int) -> tuple[Entry, ...]:
        """See `LogStorage`. Raises Halted when what is on disk does not verify."""
        if low < self._log.first_index():
            raise CompactedError(low)
        if high > self._log.last_index() + 1 or low >= high:
            raise UnavailableError(high)
        gate = self._gate if self._gate is not None and low <= self._applied() else None
        if gate is not None and not gate.passes(low):
            raise UnavailableError(low)
        if gate is not None and (turn_bytes := gate.bytes_max(low)):
            max_bytes = min(max_bytes, turn_bytes)
        found = self._log.cached_entries(low, high, max_bytes) or self._of_read(low, high)
        if found is None:
            if low not in self._under_way and len(self._under_way) < _FETCHES_MAX:
                fetch = self._fetch(low, high, min(max_bytes, LOGDB_READ_SPAN_BYTES_MAX))
                self._under_way[low] = None
                self._submit(fetch)
            raise UnavailableError(low)
        given = tuple(limit_size(found, max_bytes))
        if gate is not None:
            gate.handed_out(low, given)
        return given

    def _fetch(self, low: Index, high: Index, max_bytes: int) -> Fetch:
        """A fetch of the entries. If their index rows are on the disk, too, those are fetched
        first, and the entries in the pass after that.
        """
        # Index rows that came for this pass, and cannot be used or had to leave again, are not
        # asked for a second time: that could go on for ever.
        index = None if low in self._indexed else self._log.fetch_index(low, max_bytes)
        return index or self._log.fetch(low, high, max_bytes)

    def _of_read(self, low: Index, high: Index) -> tuple[Entry, ...] | None:
        """Entries from `low` on among those read; None when they are not there (INV-READER-1)."""
        for entries in self._read:
            start, last = low - entries[0].index, entries[-1]
            there = 0 <= start < len(entries) and last.index <= self._log.last_index()
            if there and self._log.term(last.index) == last.term:
                return entries[start : start + high - low]
        return None

    def arrived(self, work: Future[None], fetch: Fetch) -> None:
        """`fetch` has run. Called on the loop thread."""
        self._log.end_fetch(fetch)
        self._under_way.pop(fetch.first, None)
        self.fetched.append((work, fetch))

    def turn_came(self) -> bool:
        """Whether a member that is far behind was given its turn since this was last asked."""
        if self._gate is None or not self._gate.fresh:
            return False
        self._gate.fresh = False
        return True

    def take_arrived(self) -> bool:
        """Let `entries` use what was read until `forget`; False when nothing was read. Raises
        Halted when it does not verify.
        """
        arrived, self.fetched = self.fetched, []
        for work, fetch in arrived:
            work.result()
            entries = self._log.fetched(fetch)
            if fetch.chunks:
                self._indexed[fetch.first] = None
            else:
                self._read.append(entries)
        return bool(arrived)

    def forget(self) -> None:
        """End what `take_arrived` began."""
        self._read.clear()
        self._indexed.clear()

    def snapshot(self) -> Snapshot:
        """See `LogStorage`."""
        installed = self._log.installed
        if installed is None:
            raise UnavailableError(0)
        return installed.snapshot

    def _check(self, index: Index) -> None:
        if index > self._log.last_index():
            raise UnavailableError(index)
        if index < self._log.first_index() - 1:
            raise CompactedError(index)
