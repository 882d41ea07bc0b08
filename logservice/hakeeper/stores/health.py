"""Health: which replicas are alive, judged from replicated reports and replicated time only.

Theory of operation. A member of a shard is bound to a store and to an incarnation of its data
directory (a store may have several). Its health follows from the store's last heartbeat:

    store live, has the directory, replica reported     ALIVE, or HALTED if it says so, or
                                                        REPAIRING if its store restores it
    store live, has the directory, not reported         MISSING; LOST if its data is gone
    store live, the directory failed                    HALTED
    store live, has no such directory                   ABSENT, after the store timeout LOST
    store silent for longer than the store timeout      LOST

The store timeout is one for the whole cluster and part of its first configuration.

A REPAIRING replica is neither alive nor to be replaced: it can be back in seconds, with its log,
while a replacement copies everything. Its store bounds the repair: when the repair stands still,
the store reports the replica as HALTED.

A replica is ABSENT before it is LOST, because a store that was started with the wrong disk mounted
usually comes back with the right one. A decision names shard, replica and incarnation exactly, so
both ways are safe, and waiting is cheaper.

Tolerance is what G8 protects: how many more voters may fail before the shard stops. While a joint
change is under way both halves must have a majority, so the smaller tolerance counts.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from logservice import bounds
from logservice.hakeeper.commands.proposals import ReplicaReport
from logservice.hakeeper.state import ShardState, State, StoreState
from logservice.ids import ReplicaId, StoreId
from logservice.membership import Member, Membership


class Health(enum.Enum):
    """See the table above."""

    ALIVE = "alive"
    MISSING = "missing"
    ABSENT = "absent"
    HALTED = "halted"
    REPAIRING = "repairing"
    LOST = "lost"


REPLACEABLE = frozenset({Health.LOST, Health.HALTED})
"""What a voter must be before a checker may replace it."""


def silent(state: State, since: int) -> bool:
    """Whether `since` is more than the store timeout ago (strictly, as in MatrixOne).

    Nothing is silent before the first configuration has set that timeout.
    """
    return state.store_timeout_ticks > 0 and since + state.store_timeout_ticks < state.tick


def live_store(state: State, store: StoreId) -> StoreState | None:
    """The store, unless it is unknown or expired."""
    found = state.stores.get(store)
    return None if found is None or silent(state, found.last_tick) else found


def report_of(state: State, shard: ShardState, member: Member) -> ReplicaReport | None:
    """What the member's live store reports about exactly this replica, in exactly this data
    directory.
    """
    store = live_store(state, member.store_id)
    if store is None or not store.uses(member.incarnation):
        return None
    report = store.replicas.get(shard.shard)
    if report is None or report.replica != member.replica_id:
        return None
    return report if report.incarnation == member.incarnation else None


def health(state: State, shard: ShardState, member: Member) -> Health:
    """The health of one member, by the table above. A pass asks for that of hundreds."""
    store = state.stores.get(member.store_id)
    if store is None:
        return Health.LOST if silent(state, shard.created_tick) else Health.ABSENT
    if silent(state, store.last_tick):
        return Health.LOST
    incarnation = member.incarnation
    for directory in store.directories:
        if directory.incarnation == incarnation:
            break
    else:
        return Health.LOST if silent(state, store.directories_tick) else Health.ABSENT
    if directory.failed:
        return Health.HALTED
    report = store.replicas.get(shard.shard)
    if report is None or report.replica != member.replica_id or report.incarnation != incarnation:
        return Health.LOST if member.replica_id in shard.lost else Health.MISSING
    if not report.halted:
        return Health.ALIVE
    return Health.REPAIRING if report.repairing else Health.HALTED


def stuck_members(state: State, shard: ShardState) -> frozenset[ReplicaId]:
    """The members that apply nothing, as their own stores last said. Their health is another
    matter: they vote and store entries.
    """
    return frozenset(
        member.replica_id
        for member in shard.members.members
        if (store := state.stores.get(member.store_id)) is not None
        and store.stuck
        and (shard.shard, member.replica_id) in store.stuck
    )


def healths(state: State, shard: ShardState) -> dict[ReplicaId, Health]:
    """The health of every member, by ascending replica id. A voter without a member record is
    LOST.
    """
    members = shard.members
    found = {
        member.replica_id: health(state, shard, member)
        for member in members.members
        if members.contains(member.replica_id)
    }
    for voter in (*members.voters, *members.outgoing):
        found.setdefault(voter, Health.LOST)
    return found


def settling_ticks(state: State) -> int:
    """How long a store that was silent must be heard from before it counts as settled."""
    return state.store_timeout_ticks // 2


def settled(state: State, store: StoreState) -> bool:
    """Whether the store does not flap: it was not expired for half a store timeout, or was never
    expired since its first heartbeat.
    """
    return (
        store.live_since == store.first_tick
        or store.live_since + settling_ticks(state) <= state.tick
    )


def majority(voters: int) -> int:
    """How many of so many voters are a majority."""
    return voters // 2 + 1


def tolerance(members: Membership, alive: Iterable[ReplicaId]) -> int:
    """How many voters may still fail before the shard stops; negative when it has stopped."""
    living = set(alive)
    spare = _spare(members.voters, living)
    return min(spare, _spare(members.outgoing, living)) if members.joint else spare


def _spare(half: Sequence[ReplicaId], living: Set[ReplicaId]) -> int:
    return len([voter for voter in half if voter in living]) - majority(len(half))


def leader_report(state: State, shard: ShardState) -> tuple[StoreState, ReplicaReport] | None:
    """The report of the shard's leader, if its store is live.

    When several replicas say that they lead, it is the one that most members follow, and among
    equal ones the one with the highest term. So the claim of one replica, whatever term it names,
    does not hide the leader that the others follow.
    """
    members = shard.members.members
    leading = []
    for member in members:
        store = state.stores.get(member.store_id)
        claim = store.replicas.get(shard.shard) if store is not None else None
        # Most do not lead, and whether their reports count need not be asked.
        if store is None or claim is None or not claim.leads or claim.halted:
            continue
        if report_of(state, shard, member) is claim:
            leading.append((store, claim))
    if len(leading) < 2:
        return leading[0] if leading else None
    reports = [report_of(state, shard, member) for member in members]
    followed = Counter(report.leader for report in reports if report is not None)
    return max(leading, key=lambda one: (followed[one[1].replica], one[1].term))


def fresh_leader(state: State, shard: ShardState) -> ReplicaReport | None:
    """The report of the shard's leader, if its store was heard from lately."""
    found = leader_report(state, shard)
    if found is None or found[0].last_tick + bounds.HAKEEPER_LEADER_FRESH_TICKS < state.tick:
        return None
    return found[1]


def keeping_up(state: State, shard: ShardState) -> frozenset[ReplicaId]:
    """The replicas that are ALIVE, and recently active and caught up by the leader's fresh report.

    The answer is empty without a fresh report, because a stale view decides nothing (G8).
    """
    leader = fresh_leader(state, shard)
    if leader is None:
        return frozenset()
    enough = leader.committed_index - bounds.HAKEEPER_CAUGHT_UP_ENTRIES
    matched = {replica for replica, index in leader.match if index >= enough}
    good = (matched & set(leader.recently_active)) | {leader.replica}
    living = healths(state, shard)
    return frozenset(replica for replica in good if living.get(replica) is Health.ALIVE)
