"""Shard series: which replicas have series of their own, and the quantiles that stand for all.

Theory of operation. A series for each figure of each of ten thousand shards would cost every scrape
half a second of this process's time and megabytes, and nobody reads them. So up to
METRIC_SHARDS_MAX replicas each has its series. On a store with more only those have that something
is wrong with, up to the same bound. The quantiles are of all replicas here, always, so what a
dashboard of a large store shows is complete.

Wrong is what an alert names a shard for: halted, stuck, truncation that stands still, records that
a hold keeps back, a follower that is far behind. Not knowing a leader is not in the list: one
replica that knows none says nothing of its shard, and the others of it would have no series that
says otherwise. HAKeeper counts the shards without a leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from logservice import bounds
from logservice.server.monitor.own.status import ReplicaStatus

_QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)


def held_back(replica: ReplicaStatus) -> int:
    """Records that a hold keeps although their truncation was asked for."""
    return max(0, replica.requested_truncation_lsn - replica.truncated_lsn)


def _lag(replica: ReplicaStatus) -> int:
    return max((follower.lag_entries for follower in replica.followers), default=0)


_FIGURES: Final[Mapping[str, tuple[str, Callable[[ReplicaStatus], int]]]] = {
    "follower_lag_entries": ("Entries that the follower furthest behind lacks.", _lag),
    "follower_lag_bytes": (
        "Bytes of log that the follower furthest behind lacks.",
        lambda replica: max((one.lag_bytes for one in replica.followers), default=0),
    ),
    "unapplied_entries": (
        "Entries committed and not applied.",
        lambda replica: max(0, replica.committed_index - replica.applied_index),
    ),
    "retained_records": (
        "Records that can be read.",
        lambda replica: replica.applied_lsn - replica.first_lsn + 1 if replica.first_lsn else 0,
    ),
    "held_back_records": ("Records that a hold keeps although they may go.", held_back),
    "stalled_bytes": (
        "Bytes that truncation should have freed and did not.",
        lambda replica: replica.stalled_bytes,
    ),
}


def shown(replicas: Sequence[ReplicaStatus]) -> list[ReplicaStatus]:
    """The replicas with series of their own, by shard."""
    if len(replicas) > bounds.METRIC_SHARDS_MAX:
        replicas = [replica for replica in replicas if _wrong(replica)]
    return sorted(replicas, key=lambda replica: replica.shard)[: bounds.METRIC_SHARDS_MAX]


def _wrong(replica: ReplicaStatus) -> bool:
    return bool(
        replica.halted
        or replica.stuck
        or replica.stalled
        or held_back(replica)
        or _lag(replica) > bounds.METRIC_LAG_ENTRIES
    )


def quantile_families(replicas: Sequence[ReplicaStatus]) -> Iterator[Metric]:
    """For each figure: what so many of the replicas here do not exceed."""
    for name, (text, figure) in _FIGURES.items():
        family = GaugeMetricFamily(f"logservice_replicas_{name}", text, labels=["quantile"])
        numbers = sorted(map(figure, replicas)) or [0]
        for quantile in _QUANTILES:
            place = max(0, -int(-quantile * len(numbers) // 1) - 1)
            family.add_metric([str(quantile)], numbers[place])
        yield family
