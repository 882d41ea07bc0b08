"""OldestPins: which replicas hold most of the oldest segment, for people who ask why it stays.

Who owns what is alive in a segment is not kept anywhere: that would be a row per replica and
segment. So the chunks of all replicas are looked through, in slices, after a garbage collection,
and only if something was freed in the oldest segment since. The answer is true when it is given:
`top` looks again at each of the few that were found.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from logservice_wire.value import value

from logservice.bounds import LOGDB_COLLECT_SLICE_STEPS, METRIC_PINS_MAX
from logservice.logdb.index.index import Chunk, EntryIndex, SegmentUsage
from logservice.logdb.index.replica_state import Key, ReplicaState


@value
class OldestPin:
    """A replica with live entries in the oldest segment, and their bytes."""

    shard: int
    replica: int
    live_bytes: int


class OldestPins:
    """The newest look at the oldest segment. Loop thread only."""

    def __init__(self, states: Mapping[Key, ReplicaState], usage: SegmentUsage) -> None:
        """Nothing was looked at yet."""
        self._states = states
        self._usage = usage
        self._seen = (0, 0, 0)
        self._largest: list[tuple[Key, list[Chunk]]] = []

    def survey(self, oldest: int) -> Iterator[None]:
        """Find out who is in segment `oldest`. Each step takes well under a millisecond, and the
        caller may do something else between two. Ends at once when nothing has changed.
        """
        seen = oldest, self._usage.live_bytes(oldest), self._usage.chunks(oldest)
        if seen == self._seen:
            return
        found: dict[Key, list[Chunk]] = {}
        looked_at, missing = 0, self._usage.chunks(oldest)
        for key, state in list(self._states.items()):
            if missing <= 0:
                break
            looked_at += 1
            for chunk in tuple(state.index.chunks):
                if chunk.segment == oldest:
                    found.setdefault(key, []).append(chunk)
                    missing -= 1
                looked_at += 1
                if looked_at >= LOGDB_COLLECT_SLICE_STEPS:
                    looked_at = 0
                    yield
        self._seen = seen
        self._largest = heapq.nlargest(
            METRIC_PINS_MAX, found.items(), key=lambda item: sum(chunk.live for chunk in item[1])
        )

    def top(self, oldest: int) -> tuple[OldestPin, ...]:
        """At most METRIC_PINS_MAX replicas that pin segment `oldest` now, most bytes first. None
        for a segment that no survey has looked at yet.
        """
        pins = []
        for key, chunks in self._largest if self._seen[0] == oldest else ():
            index = self._states[key].index
            live = sum(chunk.live for chunk in chunks if _alive(index, chunk))
            if live:
                pins.append(OldestPin(*key, live))
        return tuple(sorted(pins, key=lambda pin: -pin.live_bytes))


def _alive(index: EntryIndex, chunk: Chunk) -> bool:
    """Whether it is still a part of the index."""
    return index.floor_index < chunk.last <= index.last_index and index.chunk(chunk.last) is chunk
