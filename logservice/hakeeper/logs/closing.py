"""Closing: what HAKeeper knows of the Close of a log, from the reports of its replicas.

Theory of operation. The Close is an entry of the log, and only the log decides it (`rsm.log_rsm`).
HAKeeper keeps no copy: it asks the reports that it has. The leader's word counts, or that of a
majority of the voters, as they last reported. So one store that lies cannot close a log that is
open in the eyes of the others, and a lie is gone when that store reports something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores.health import leader_report, majority
from logservice.ids import Index, Lsn


class Closed(NamedTuple):
    """The index of the Close, and the LSN behind the last record; (0, 0) for an open log."""

    at: Index
    end_lsn: Lsn


OPEN = Closed(Index(0), Lsn(0))


def close_of(state: State, shard: ShardState) -> Closed:
    """The Close of the log, as far as it is reported."""
    found = leader_report(state, shard)
    if found is not None and found[1].closed_index:
        return Closed(found[1].closed_index, found[1].closed_lsn)
    said = Counter(
        Closed(report.closed_index, report.closed_lsn)
        for report in _last_reports(state, shard)
        if report.closed_index
    )
    enough = majority(len(shard.members.voters))
    return next((closed for closed, count in sorted(said.items()) if count >= enough), OPEN)


def holds_of(state: State, shard: ShardState) -> int:
    """How many holds the log has; without a leader the most that a voter last reported."""
    found = leader_report(state, shard)
    if found is not None:
        return found[1].holds
    return max((report.holds for report in _last_reports(state, shard)), default=0)


def _last_reports(state: State, shard: ShardState) -> Iterator[ReplicaReport]:
    """What the stores of the voters, live or not, last reported of them."""
    members = shard.members
    for member in members.members:
        store = state.stores.get(member.store_id)
        report = store.replicas.get(shard.shard) if store is not None else None
        if (
            report is not None
            and member.replica_id in members.voters
            and (report.replica, report.incarnation) == (member.replica_id, member.incarnation)
        ):
            yield report
