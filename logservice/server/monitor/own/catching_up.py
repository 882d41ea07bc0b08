"""CatchUpForecast: how long a member that is behind will take, by how fast it came nearer lately.

Theory of operation. Whoever asks how a store is brings, for each member of a log led here, the
bytes that it lacks. Two such looks, CATCH_UP_LOOK_S apart or more, give the bytes per second by
which it came nearer; what its log took in meanwhile is in that figure. The newest figure and the
ones before it are averaged. A member that falls back has no time to go: -1, as one that was looked
at once only. What nobody lacks is forgotten, so the table is as large as what is behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logservice import bounds
from logservice.ids import ReplicaId, ShardId

_NEWEST: Final = 0.5
"""Weight of the newest look."""

UNKNOWN: Final = -1.0


@dataclass(slots=True)
class _Seen:
    at_s: float
    lag_bytes: int
    nearer_per_s: float | None = None


class CatchUpForecast:
    """One per store."""

    def __init__(self) -> None:
        """Nobody was looked at."""
        self._seen: dict[tuple[ShardId, ReplicaId], _Seen] = {}

    def to_go_s(self, shard: ShardId, member: ReplicaId, lag_bytes: int, now_s: float) -> float:
        """Seconds until `member`, which lacks so many bytes now, lacks none; -1: not known."""
        key = (shard, member)
        if lag_bytes <= 0:
            self._seen.pop(key, None)
            return 0.0
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = _Seen(now_s, lag_bytes)
        passed_s = now_s - seen.at_s
        if passed_s >= bounds.CATCH_UP_LOOK_S:
            newest = (seen.lag_bytes - lag_bytes) / passed_s
            before = newest if seen.nearer_per_s is None else seen.nearer_per_s
            seen.nearer_per_s = _NEWEST * newest + (1 - _NEWEST) * before
            seen.at_s, seen.lag_bytes = now_s, lag_bytes
        nearer_per_s = seen.nearer_per_s
        return lag_bytes / nearer_per_s if nearer_per_s and nearer_per_s > 0 else UNKNOWN

    def keep(self, led: set[ShardId]) -> None:
        """These shards are led here; forget the others."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in led}
