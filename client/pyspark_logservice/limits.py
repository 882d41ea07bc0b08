"""Limits: how far one micro-batch goes, over all logs together.

Theory of operation. A limit is divided fairly: a log with less than an even share gives the rest to
the others, so none that has something new waits for ever behind a large one, and a limit is used up
while there is enough to read. A micro-batch that a limit lets through has at least one LSN.

Records are counted exactly, as LSNs: gaps count, too. Bytes are estimated (`sizes`), and one record
may be longer than what is left; so a limit by bytes is about so many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_logservice.sizes import Outline


@dataclass(frozen=True, slots=True)
class Backlog:
    """What one log has that was not in a micro-batch yet: ``start <= lsn < end``."""

    start: int
    end: int


def shares(wanted: Mapping[int, float], budget: float) -> dict[int, float]:
    """The budget, divided: no log gets more than it wants, and no log gets less than an even share
    of what those leave that want less.
    """
    found: dict[int, float] = {}
    left = budget
    order = sorted(wanted, key=lambda shard: (wanted[shard], shard))
    for number, shard in enumerate(order):
        found[shard] = min(wanted[shard], left / (len(order) - number))
        left -= found[shard]
    return found


def within_records(backlogs: Mapping[int, Backlog], records_max: int) -> dict[int, int]:
    """The end of each log's part of a micro-batch of at most so many LSNs, at least one of all."""
    found: dict[int, int] = {}
    left = records_max
    order = sorted(backlogs, key=lambda shard: (backlogs[shard].end - backlogs[shard].start, shard))
    for number, shard in enumerate(order):
        one = backlogs[shard]
        part = min(one.end - one.start, left // (len(order) - number))
        found[shard] = one.start + part
        left -= part
    return found


def within_bytes(outlines: Mapping[int, Outline], size: int) -> dict[int, int]:
    """The same for about `size` bytes, at least one LSN of each log."""
    parts = shares({shard: one.total for shard, one in outlines.items()}, size)
    return {
        shard: max(one.lsns[0] + 1, one.lsn_at(parts[shard])) for shard, one in outlines.items()
    }
