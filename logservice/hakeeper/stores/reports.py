"""Reports: what is counted of a store's reports, kept up to date instead of counted again.

Theory of operation. Each heartbeat is judged by how many bytes the store's reports take, and
answered by what is held in the logs that the store leads. A store with 10 000 replicas reports one
or two changes a second, so to look at all of its reports each time is most of what idle logs cost
shard 0. What is counted belongs to one dictionary of reports, and no such dictionary is changed
once it was counted: a heartbeat makes another one (`stores.heartbeats`). So it can be counted from
any state, and is no part of it: a replica that recovered from a snapshot counts once, and decides
as all others do.

INV-HK-REPORTS: what is kept of a store's reports is what would be counted from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import force_setattr

from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.state import ShardState, State, StoreState
from logservice.ids import ShardId, StoreId

_NAME = "reports"
"""The attribute of a `State` that is no field, and so in no snapshot."""

_REPORT_BYTES = 128
"""About what the numbers of one report take."""


class Counted:
    """Of the reports of one store. `size`: about how many bytes they take in the state. `held`: the
    shards in which services hold something, as the leader's store says.
    """

    __slots__ = ("_of", "held", "size")

    def __init__(self, reports: Mapping[ShardId, ReplicaReport]) -> None:
        """Count all of them."""
        self._of = reports
        self.size = sum(map(size_of, reports.values()))
        self.held = {shard for shard, one in reports.items() if one.service_holds}

    def are_of(self, reports: Mapping[ShardId, ReplicaReport]) -> bool:
        """Whether it is these that were counted."""
        return self._of is reports

    def follow(self, reports: Mapping[ShardId, ReplicaReport], changed: Iterable[ShardId]) -> None:
        """These came in their place, and differ from them in nothing but `changed`."""
        before, self._of = self._of, reports
        for shard in set(changed):
            self.size -= size_of(before[shard]) if shard in before else 0
            now = reports.get(shard)
            self.held.discard(shard)
            if now is not None:
                self.size += size_of(now)
                if now.service_holds:
                    self.held.add(shard)


def size_of(report: ReplicaReport) -> int:
    """About how many bytes it takes in the state."""
    return (
        _REPORT_BYTES
        + len(report.membership)
        + len(report.halted)
        + 32 * len(report.match)
        + 16 * len(report.recently_active)
        + sum(16 + len(name) for name, _ in report.service_holds)
    )


def share(report: ReplicaReport, shard: ShardState) -> None:
    """Make what is equal in a report and in the row of its shard one object. Each log is reported
    by three stores, and each report was read from bytes of its own.
    """
    if report.membership == shard.membership:
        force_setattr(report, "membership", shard.membership)
        force_setattr(report, "shard", shard.shard)
        member = shard.members.member(report.replica)
        if member is not None and member.incarnation == report.incarnation:
            force_setattr(report, "replica", member.replica_id)
            force_setattr(report, "incarnation", member.incarnation)


def counted(state: State, store: StoreState) -> Counted:
    """What is counted of the store's reports. They are counted when that is asked first."""
    kept: dict[StoreId, Counted] = state.__dict__.setdefault(_NAME, {})
    found = kept.get(store.store)
    if found is None or not found.are_of(store.replicas):
        for name in kept.keys() - state.stores.keys():
            del kept[name]
        found = kept[store.store] = Counted(store.replicas)
    return found


def replace_reports(
    state: State,
    store: StoreState,
    reports: dict[ShardId, ReplicaReport],
    changed: Iterable[ShardId] | None,
) -> None:
    """Give the store other reports, which differ in `changed`; None: in anything."""
    known = counted(state, store) if changed is not None else None
    store.replicas = reports
    if known is not None and changed is not None:
        known.follow(reports, changed)
