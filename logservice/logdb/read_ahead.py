"""ReadAhead: which reads of one log go on where an earlier one ended, and what the disk was asked
for in advance of them.

Several readers may go through one log at a time (partitions of a replay, followers that are
behind), so a few of them are remembered; one that has not read for longest is forgotten first.
Nothing depends on it but speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_READERS_MAX: Final = 16
"""Members that are behind and partitions of a replay, together."""


@dataclass(slots=True)
class Reader:
    """Its last read was [first, following); the disk was asked for everything below `asked`."""

    first: int
    following: int
    asked: int


class ReadAhead:
    """The sequential readers of one log."""

    def __init__(self) -> None:
        """Nobody has read."""
        self._readers: list[Reader] = []

    def reads(self, low: int, following: int) -> Reader | None:
        """Somebody reads [low, following): the reader it is; None for one that only begins here."""
        found = next((one for one in self._readers if one.first < low <= one.following), None)
        if found is None:
            self._readers.append(Reader(low, following, following))
            del self._readers[:-_READERS_MAX]
            return None
        self._readers.remove(found)
        self._readers.append(found)
        found.first, found.following = low, following
        return found
