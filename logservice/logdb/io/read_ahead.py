"""ReadAhead: which readers of one data directory go on where they ended, and how much the disk was
asked to bring for them in advance.

Several readers may go through one log at a time (partitions of a replay, followers that are
behind), so a few are remembered for each log; the one that has not read for longest is forgotten
first. What was asked for in advance is in the kernel's page cache until it is read. When a thousand
replicas catch up at once, it would push out what others are about to read, and the disk would read
that again. So all readers together have `bytes_max`, and a reader that finds nothing left reads
without. A reader that gave up keeps its part until IDLE_READS other reads have followed its last.

Nothing depends on it but speed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from logservice.bounds import LOGDB_READ_AHEAD_BYTES_MAX

READERS_OF_A_LOG_MAX: Final = 16
"""Members that are behind and partitions of a replay, together."""

READERS_MAX: Final = 4096
"""Of all logs, each some 200 bytes."""

IDLE_READS: Final = 1024
"""After so many other reads of the directory, a reader that has not gone on loses its part."""


@dataclass(slots=True, eq=False)
class Reader:
    """Its last read, the directory's `turn`-th, was [first, following); the disk was asked for
    everything below `asked`, and `held` bytes of that were not read yet.
    """

    key: tuple[int, int]
    first: int
    following: int
    asked: int
    turn: int
    held: int = 0


class ReadAhead:
    """The sequential readers of one data directory. Loop thread only."""

    def __init__(self, bytes_max: int = LOGDB_READ_AHEAD_BYTES_MAX) -> None:
        """Nobody has read. bytes_max: how much may be asked for and not read yet, for all readers
        together; the last entry may reach beyond it.
        """
        self.held = 0
        self._bytes_max = bytes_max
        self._turn = 0
        self._order: OrderedDict[Reader, None] = OrderedDict()
        self._of: dict[tuple[int, int], list[Reader]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def reads(self, key: tuple[int, int], low: int, following: int) -> Reader | None:
        """Somebody reads [low, following) of the log `key`: return which reader that is, None for
        one that only begins here.
        """
        self._turn += 1
        readers = self._of.setdefault(key, [])
        found = next((one for one in readers if one.first < low <= one.following), None)
        if found is None:
            self._begin(Reader(key, low, following, following, self._turn), readers)
            return None
        readers.remove(found)
        readers.append(found)
        self._order.move_to_end(found)
        found.first, found.following, found.turn = low, following, self._turn
        return found

    def holds(self, reader: Reader, size: int) -> None:
        """The disk was asked for so many bytes that the reader has not read yet."""
        self.held += size - reader.held
        reader.held = size

    def room(self, size: int) -> bool:
        """Whether `size` bytes more may be asked for."""
        while self.held + size > self._bytes_max:
            idle = next(iter(self._order), None)
            if idle is None or idle.turn + IDLE_READS > self._turn:
                return False
            self._forget(idle)
        return True

    def _begin(self, reader: Reader, readers: list[Reader]) -> None:
        readers.append(reader)
        self._order[reader] = None
        if len(readers) > READERS_OF_A_LOG_MAX:
            self._forget(readers[0])
        if len(self._order) > READERS_MAX:
            self._forget(next(iter(self._order)))

    def _forget(self, reader: Reader) -> None:
        self.holds(reader, 0)
        del self._order[reader]
        readers = self._of[reader.key]
        readers.remove(reader)
        if not readers:
            del self._of[reader.key]
