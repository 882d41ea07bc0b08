"""Learners: which of a log's replicas have no vote, and what each of them is for.

Theory of operation. Raft has one kind of learner, and HAKeeper uses it for two things.

    arriving     an operator brings it as a voter: it copies the log, and is promoted then
    standing     the log's policy wants a copy there for readers, and it stays a learner

Nothing is written down about a learner to tell them apart. An operator that brings a voter is in
the replicated state for as long as its replica may become one, and names the replica; a replica id
is never used twice. So a learner that such an operator names is arriving, and all others stand,
whoever added them. One more kind is soon gone: a learner whose operator was given up while its
addition was under way (`ShardState.abandoned`).

A standing learner counts in no quorum, in no zone's majority and in no number of replicas. A policy
wants so many of them in each of some zones, or anywhere. `match` compares: the most exact wish
takes first, so that a learner in zone `a` serves the wish for `a` before that for anywhere.

Before cluster version 2 no learner stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logservice.hakeeper.state import BRINGS_VOTER, ShardState, State
from logservice.hakeeper.stores.zones import NO_ZONE, is_in, zone_of
from logservice.ids import ReplicaId, ShardId
from logservice.membership import Member


@dataclass(frozen=True, slots=True)
class Match:
    """`lacking`: the zones of learners that are wanted and not there, once for each. `extra`: those
    that are there and not wanted.
    """

    lacking: tuple[str, ...]
    extra: tuple[Member, ...]


def arriving(state: State, shard: ShardId) -> frozenset[ReplicaId]:
    """The replicas that operators bring as voters of the shard."""
    return frozenset(
        operator.replica
        for operator in state.operators.values()
        if operator.shard == shard and operator.kind in BRINGS_VOTER
    )


def standing(state: State, shard: ShardState) -> list[Member]:
    """The standing learners, by replica id."""
    members = shard.members
    if state.cluster_version < 2 or not members.learners:
        return []
    others = arriving(state, shard.shard) | shard.abandoned.keys()
    return [
        member
        for member in members.members
        if member.replica_id in members.learners
        and member.replica_id not in others
        and member.replica_id not in members.witnesses
    ]


def covers(wanted: str, zone: str) -> bool:
    """Whether a store in `zone` is where a learner is wanted; NO_ZONE wants it anywhere."""
    return wanted == NO_ZONE or is_in(zone, wanted)


def match(state: State, shard: ShardState, there: Iterable[Member]) -> Match:
    """What the policy wants, and the learners that are there."""
    room = {one.zone: one.count for one in shard.policy.learners}
    extra = []
    for member in there:
        store = state.stores.get(member.store_id)
        zone = zone_of(store) if store is not None else NO_ZONE
        exact = [zone, *reversed(zone.split("/", 1)), NO_ZONE]
        wish = next((one for one in exact if room.get(one)), None)
        if wish is None:
            extra.append(member)
        else:
            room[wish] -= 1
    lacking = tuple(zone for zone in sorted(room) for _ in range(room[zone]))
    return Match(lacking, tuple(extra))


def settled(state: State, shard: ShardState) -> bool:
    """Whether the shard has exactly the learners that its policy wants, all of them counted."""
    members = shard.members
    if not members.learners and not shard.policy.learners:
        return True
    all_learners = [one for one in members.members if one.replica_id in members.learners]
    return match(state, shard, all_learners) == Match((), ()) and len(all_learners) == len(
        members.learners
    )
