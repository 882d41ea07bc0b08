"""History: what a store's figures were in the last hour and day, in a bounded part of its memory.

Theory of operation. Whoever watches the store hands every status to `look`. A *track* takes one in
its period, and a point is what lay between that status and the one before: rates from counters,
quantiles from the difference of histograms. So a point of two minutes is of all appends of these
two minutes, and no mean of other points. There is a track of an hour and one of a day, and one for
the logs here. A track is a ring of numbers; the newest point overwrites the oldest.

A log has a history once something was appended to it. With more than HISTORY_SHARDS_MAX of them,
the one that was appended to longest ago goes. An hour without an append ends a history, too.

The times are those of the points, because a store that was busy looks late. What is not known is
not a number (NaN), which is `null` in JSON. Nothing survives the process: this is to look at, and
Prometheus is what keeps figures.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.histogram import quantile
from logservice.server.monitor.own.status import Buckets, ReplicaStatus, StoreStatus

UNKNOWN: Final = math.nan

FIGURES: Final[Mapping[str, str]] = {
    "appends_per_s": "/s",
    "records_per_s": "/s",
    "append_p50_s": "s",
    "append_p99_s": "s",
    "bytes_written_per_s": "B/s",
    "read_bytes_per_s": "B/s",
    "disk_used_bytes": "B",
    "lag_entries": "",
    "loop_turn_s": "s",
    "leaders": "",
}
"""What there is of a store, and its unit. appends, and how long they took: of the logs that it
leads, block by block. lag_entries: of the follower that is furthest behind. loop_turn_s: the upper
end of the bucket of the longest turn of the event loop."""

SHARD_FIGURES: Final[Mapping[str, str]] = {
    "records_per_s": "/s",
    "lag_entries": "",
    "kept_records": "",
}
"""What there is of a log. lag_entries: where it is led."""

HOUR: Final = "hour"
DAY: Final = "day"


class HistoryQuestion(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """span: HOUR or DAY. shard: the log, or -1 for the store."""

    span: str
    shard: int = -1


class Series(Struct, frozen=True, kw_only=True):
    """The points of a history, the oldest first. times_us: when each was taken. units, figures: by
    name. span_s: how long a full one is.
    """

    store: str = ""
    period_s: float = 0.0
    span_s: float = 0.0
    times_us: tuple[int, ...] = ()
    units: dict[str, str] = {}
    figures: dict[str, tuple[float, ...]] = {}


class _Rings:
    """Columns of numbers with one position."""

    def __init__(self, points: int) -> None:
        self._points = points
        self.times_us = array("q", bytes(8 * points))
        self.taken = 0
        self.columns: dict[object, array[float]] = {}

    def add(self, time_us: int) -> int:
        """Begin a point; returns its place. Every column has nothing there yet."""
        place = self.taken % self._points
        self.taken += 1
        self.times_us[place] = time_us
        for column in self.columns.values():
            column[place] = UNKNOWN
        return place

    def column(self, name: object) -> array[float]:
        found = self.columns.get(name)
        if found is None:
            found = self.columns[name] = array("d", [UNKNOWN]) * self._points
        return found

    def in_order(self, found: array[float] | array[int]) -> tuple[float, ...]:
        if self.taken <= self._points:
            return tuple(found[: self.taken])
        begin = self.taken % self._points
        return (*found[begin:], *found[:begin])


class _Track:
    """The figures of the store, in one period."""

    def __init__(self, period_s: float, points: int) -> None:
        self.period_s = period_s
        self.points = points
        self.rings = _Rings(points)
        self._before: StoreStatus | None = None
        self._lsns: Mapping[int, int] = {}

    def look(self, status: StoreStatus) -> None:
        before = self._before
        if before is not None and status.uptime_s - before.uptime_s < self.period_s:
            return
        lsns = {one.shard: one.applied_lsn for one in status.replicas}
        if before is not None:
            place = self.rings.add(status.wall_time_us)
            for name, number in _point(before, status, self._lsns).items():
                self.rings.column(name)[place] = number
        self._before = _counters(status)
        self._lsns = lsns


class _Shards:
    """The figures of the logs here. A ring has a column for each figure of each log."""

    def __init__(self) -> None:
        self.rings = _Rings(bounds.HISTORY_SHARD_POINTS)
        self._changed: dict[int, int] = {}
        """The number of the look at which the log had more than before, the oldest one first."""
        self._lsns: Mapping[int, int] = {}
        self._before_s: float | None = None

    def look(self, status: StoreStatus) -> None:
        before_s = self._before_s
        if before_s is not None and status.uptime_s - before_s < bounds.HISTORY_SHARD_S:
            return
        lsns = {one.shard: one.applied_lsn for one in status.replicas}
        if before_s is not None:
            self._choose(lsns)
            place = self.rings.add(status.wall_time_us)
            passed_s = status.uptime_s - before_s
            for one in status.replicas:
                if one.shard in self._changed:
                    self._note(one, place, passed_s)
        self._lsns, self._before_s = lsns, status.uptime_s

    def has(self, shard: int) -> bool:
        return shard in self._changed

    def _choose(self, lsns: Mapping[int, int]) -> None:
        look, known = self.rings.taken, self._lsns
        for shard, lsn in lsns.items():
            if lsn > known.get(shard, lsn):
                self._changed.pop(shard, None)
                self._changed[shard] = look
        for shard, at in list(self._changed.items()):
            crowded = len(self._changed) > bounds.HISTORY_SHARDS_MAX
            if not crowded and at > look - bounds.HISTORY_SHARD_POINTS:
                break
            del self._changed[shard]
            for name in SHARD_FIGURES:
                self.rings.columns.pop((shard, name), None)

    def _note(self, one: ReplicaStatus, place: int, passed_s: float) -> None:
        shard, rings = one.shard, self.rings
        gained = one.applied_lsn - self._lsns.get(shard, one.applied_lsn)
        rings.column((shard, "records_per_s"))[place] = max(0, gained) / passed_s
        rings.column((shard, "lag_entries"))[place] = _lag(one) if one.role == "leader" else UNKNOWN
        kept = one.applied_lsn - one.first_lsn + 1 if one.first_lsn else 0
        rings.column((shard, "kept_records"))[place] = kept


class History:
    """One per store, on the loop thread."""

    def __init__(self, store: str) -> None:
        """Nothing was seen yet."""
        self._store = store
        self._tracks = {
            HOUR: _Track(bounds.HISTORY_FINE_S, bounds.HISTORY_FINE_POINTS),
            DAY: _Track(bounds.HISTORY_COARSE_S, bounds.HISTORY_COARSE_POINTS),
        }
        self._shards = _Shards()

    def look(self, status: StoreStatus) -> None:
        """Take what is due. Statuses come in order, of one process."""
        for track in self._tracks.values():
            track.look(status)
        self._shards.look(status)

    def series(self, asked: HistoryQuestion) -> Series:
        """What there is. Without points for a log that has no history, and for a span that there
        is none of.
        """
        if asked.shard >= 0:
            return self._of_shard(asked.shard)
        track = self._tracks.get(asked.span)
        if track is None:
            return Series(store=self._store)
        rings = track.rings
        return Series(
            store=self._store,
            period_s=track.period_s,
            span_s=track.period_s * track.points,
            times_us=tuple(map(int, rings.in_order(rings.times_us))),
            units=dict(FIGURES),
            figures={name: rings.in_order(rings.column(name)) for name in FIGURES},
        )

    def _of_shard(self, shard: int) -> Series:
        rings, known = self._shards.rings, self._shards.has(shard)
        return Series(
            store=self._store,
            period_s=bounds.HISTORY_SHARD_S,
            span_s=bounds.HISTORY_SHARD_S * bounds.HISTORY_SHARD_POINTS,
            times_us=tuple(map(int, rings.in_order(rings.times_us))) if known else (),
            units=dict(SHARD_FIGURES),
            figures={
                name: rings.in_order(rings.column((shard, name))) if known else ()
                for name in SHARD_FIGURES
            },
        )


def _counters(status: StoreStatus) -> StoreStatus:
    """What the next point is compared with, without the rest of a status."""
    return StoreStatus(
        uptime_s=status.uptime_s,
        append_seconds=status.append_seconds,
        loop_turn_seconds=status.loop_turn_seconds,
        logdb={"bytes_written": status.logdb.get("bytes_written", 0)},
        reads=status.reads,
    )


def _point(before: StoreStatus, now: StoreStatus, lsns: Mapping[int, int]) -> dict[str, float]:
    passed_s = now.uptime_s - before.uptime_s
    appends = _between(before.append_seconds, now.append_seconds)
    turns = _between(before.loop_turn_seconds, now.loop_turn_seconds)
    bounds_s = now.append_seconds.bounds
    led, gained, lag = _led(now.replicas, lsns)
    written = now.logdb.get("bytes_written", 0) - before.logdb.get("bytes_written", 0)
    read = _read_bytes(now) - _read_bytes(before)
    return {
        "appends_per_s": sum(appends) / passed_s,
        "records_per_s": gained / passed_s,
        "append_p50_s": quantile(bounds_s, appends, 0.5) if any(appends) else UNKNOWN,
        "append_p99_s": quantile(bounds_s, appends, 0.99) if any(appends) else UNKNOWN,
        "bytes_written_per_s": max(0.0, written) / passed_s,
        "read_bytes_per_s": max(0, read) / passed_s,
        "disk_used_bytes": now.logdb.get("segment_bytes", UNKNOWN),
        "lag_entries": lag,
        "loop_turn_s": (
            quantile(now.loop_turn_seconds.bounds, turns, 1.0) if any(turns) else UNKNOWN
        ),
        "leaders": led,
    }


def _led(replicas: Sequence[ReplicaStatus], lsns: Mapping[int, int]) -> tuple[int, int, int]:
    """How many lead, what they have more than `lsns`, and the largest lag. In one go, because they
    may be thousands.
    """
    led = gained = lag = 0
    for one in replicas:
        if one.role == "leader":
            led += 1
            gained += max(0, one.applied_lsn - lsns.get(one.shard, one.applied_lsn))
            for follower in one.followers:
                if follower.lag_entries > lag:
                    lag = follower.lag_entries
    return led, gained, lag


def _between(before: Buckets, now: Buckets) -> Sequence[int]:
    if len(before.counts) != len(now.counts):
        return now.counts
    return [new - old for old, new in zip(before.counts, now.counts, strict=True)]


def _read_bytes(status: StoreStatus) -> int:
    return sum(number for name, number in status.reads.items() if name.endswith("/bytes"))


def _lag(replica: ReplicaStatus) -> int:
    return max((one.lag_entries for one in replica.followers), default=0)
