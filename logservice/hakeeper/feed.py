"""Feed: the events of the cluster, as a part of the replicated state.

Theory of operation. Whoever changes the state in a way that people watch tells it here, while the
entry is applied. So every replica of shard 0 has the same events under the same revisions, and a
watcher that goes to another store, or stays while HAKeeper's leader changes, goes on where it was.
The newest HAKEEPER_FEED_EVENTS_MAX events are kept. A watcher that fell further behind is told so,
with the oldest revision there is; it looks at the state, which names the revision that it is of,
and watches from there.

INV-HK-FEED: revisions are dense. The kept events are the last ones, in order, and none is missing
between them.

What can change at any rate is told at a bounded one. Truncations are gathered for each log, and
told HAKEEPER_FEED_TRUNCATION_TICKS apart, so many logs at a time. A pass of the checkers tells at
most HAKEEPER_FEED_FLAGS_PER_PASS flags, and says how many more there are.

At cluster version 1 nothing is told, because the state has no place for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from logservice import bounds
from logservice.hakeeper.commands import proposals, verbs
from logservice.hakeeper.commands.cluster_events import ClusterEvent, EventKind, EventPage
from logservice.hakeeper.spoken import spoken
from logservice.hakeeper.state import Operator, State
from logservice.ids import Lsn, ReplicaId, ShardId
from logservice.invariants import invariant
from logservice.membership import Membership
from logservice.outcome import Applied, Outcome

_FEEDS = 2
"""The first cluster version whose state has a feed."""


class Mark(NamedTuple):
    """What of the state may change with any proposal, cheap to look at before and after it."""

    phase: str
    version: int
    settings: tuple[object, ...]


def tell(
    state: State,
    kind: EventKind,
    *,
    shard: int = 0,
    replica: int = 0,
    store: str = "",
    text: str = "",
) -> None:
    """One event more."""
    if state.cluster_version < _FEEDS:
        return
    feed = state.feed
    invariant(not feed.ring or feed.ring[-1].revision == feed.last, "INV-HK-FEED", last=feed.last)
    feed.last += 1
    feed.ring.append(
        ClusterEvent(
            feed.last,
            state.tick,
            kind.value,
            ShardId(shard),
            replica,
            store,
            text[: bounds.HAKEEPER_FEED_TEXT_MAX],
        )
    )
    del feed.ring[: -bounds.HAKEEPER_FEED_EVENTS_MAX]


def operator_begun(state: State, operator: Operator) -> None:
    """An operator is under way."""
    _tell_operator(state, EventKind.OPERATOR_BEGUN, operator, operator.cause.value)


def operator_ended(state: State, operator: Operator, why: str) -> None:
    """An operator is over, with that result."""
    _tell_operator(state, EventKind.OPERATOR_ENDED, operator, why)


def _tell_operator(state: State, kind: EventKind, operator: Operator, text: str) -> None:
    tell(
        state,
        kind,
        shard=operator.shard,
        replica=operator.replica,
        store=operator.store,
        text=f"{operator.id} {operator.kind.value}: {text}",
    )


def truncated(state: State, shard: ShardId, lsn: Lsn) -> None:
    """A log was truncated; it is told with the next ones."""
    if state.cluster_version >= _FEEDS:
        state.feed.truncations[shard] = lsn


def tell_truncations(state: State) -> None:
    """Time went on by one tick."""
    waiting = state.feed.truncations
    if not waiting or state.tick % bounds.HAKEEPER_FEED_TRUNCATION_TICKS:
        return
    for shard in list(waiting)[: bounds.HAKEEPER_FEED_TRUNCATIONS_MAX]:
        lsn = waiting.pop(shard)
        if shard in state.shards:
            tell(state, EventKind.TRUNCATED, shard=shard, text=str(lsn))


def tell_flags(state: State, before: Collection[str], after: Collection[str]) -> None:
    """A pass of the checkers found other flags than the one before it."""
    for kind, flags in (
        (EventKind.FLAG_RAISED, sorted(set(after) - set(before))),
        (EventKind.FLAG_CLEARED, sorted(set(before) - set(after))),
    ):
        for flag in flags[: bounds.HAKEEPER_FEED_FLAGS_PER_PASS]:
            tell(state, kind, text=flag)
        more = len(flags) - bounds.HAKEEPER_FEED_FLAGS_PER_PASS
        if more > 0:
            tell(state, kind, text=f"and {more} more")


def mark(state: State) -> Mark:
    """What `tell_outcome` compares with."""
    return Mark(
        state.phase.value,
        state.cluster_version,
        (
            state.store_timeout_ticks,
            state.default_replicas,
            state.joining,
            state.balance.replicas,
            state.balance.leaders,
            state.replace_stuck,
            state.catch_up_bytes_per_s,
            state.tail_read_bytes_per_s,
            state.catch_up_read_bytes_per_s,
        ),
    )


def _settings_text(state: State) -> str:
    """The settings in force, for people, in the words of `logctl cluster settings`."""
    return (
        f"store timeout {spoken(state.store_timeout_ticks)}, {state.default_replicas} replicas,"
        f" stores join {state.joining.value}, replica balance {state.balance.replicas.value},"
        f" leader balance {state.balance.leaders.value},"
        f" replace stuck {'on' if state.replace_stuck else 'off'},"
        f" catch-up {_rate(state.catch_up_bytes_per_s)},"
        f" tail reads {_rate(state.tail_read_bytes_per_s)},"
        f" catch-up reads {_rate(state.catch_up_read_bytes_per_s)}"
    )


def _rate(rate: int) -> str:
    return f"{rate} bytes/s" if rate else "as configured"


def _why(text: str, reason: str) -> str:
    """What was asked for, and the reason that was given, if one was."""
    return f"{text}: {reason}" if reason else text


def tell_outcome(
    state: State, before: Mark, proposal: proposals.Proposal, outcome: Outcome
) -> None:
    """A proposal was applied: tell what its kind, and no rule of its own, makes worth telling."""
    after = mark(state)
    if after.version != before.version:
        tell(state, EventKind.VERSION, text=str(after.version))
    if after.phase != before.phase:
        tell(state, EventKind.PHASE, text=after.phase)
    if after.settings != before.settings:
        tell(state, EventKind.SETTINGS, text=_settings_text(state))
    if not isinstance(outcome, Applied) or outcome.duplicate:
        return
    if isinstance(proposal, proposals.CreateShard):
        tell(state, EventKind.LOG_CREATED, shard=outcome.value, text=proposal.name)
    elif isinstance(proposal, proposals.ChangeShard):
        tell(state, EventKind.LOG_CHANGED, shard=proposal.shard, text=f"revision {outcome.value}")
    elif isinstance(proposal, proposals.DeleteShard):
        tell(state, EventKind.LOG_DELETED, shard=proposal.shard, text=proposal.name)
    elif isinstance(proposal, verbs.ForgetStore):
        tell(state, EventKind.STORE_FORGOTTEN, store=proposal.store)
    elif isinstance(proposal, verbs.SetStoreMode):
        text = f"{proposal.mode.value} {proposal.reason}".rstrip()
        tell(state, EventKind.VERB, store=proposal.store, text=text)
    elif isinstance(proposal, verbs.DrainDirectory):
        text = f"{'undrain' if proposal.undo else 'drain'} directory {proposal.incarnation}"
        tell(state, EventKind.VERB, store=proposal.store, text=text)
    elif isinstance(proposal, verbs.SetRepair):
        off = _why(f"repair off for {spoken(proposal.off_ticks)}", proposal.reason)
        text = off if proposal.off_ticks else "repair on"
        tell(state, EventKind.VERB, store=proposal.store, text=text)
    elif isinstance(proposal, verbs.WishReplica):
        text = f"wish {outcome.value}: {proposal.errand.value} {proposal.source}".rstrip()
        tell(state, EventKind.VERB, shard=proposal.shard, store=proposal.target, text=text)
    elif isinstance(proposal, verbs.SetLeader):
        stays = _why(f"leader stays for {spoken(proposal.ticks)}", proposal.reason)
        text = stays if proposal.ticks else "leader is free"
        tell(state, EventKind.VERB, shard=proposal.shard, store=proposal.store, text=text)
    elif isinstance(proposal, verbs.Rebalance):
        named = (("replicas", proposal.replicas), ("leaders", proposal.leaders))
        what = " and ".join(name for name, wished in named if wished)
        ended = " is ended" if proposal.stop else ""
        tell(state, EventKind.VERB, text=f"rebalance of {what}{ended}")
    elif isinstance(proposal, verbs.SetQuota):
        who = proposal.quota.identity or "every identity"
        tell(state, EventKind.VERB, text=f"quota of {who} is changed")
    elif isinstance(proposal, verbs.SkipNumbers):
        tell(state, EventKind.VERB, text="numbers of another cluster are skipped")
    elif isinstance(proposal, verbs.CancelWish):
        tell(state, EventKind.VERB, text=f"wish {proposal.wish} is withdrawn")
    elif isinstance(proposal, verbs.CancelOperator):
        tell(state, EventKind.VERB, text=f"operator {proposal.operator} is given up")


def members_text(members: Membership) -> str:
    """A membership in one line, for people."""
    stores = {member.replica_id: member.store_id for member in members.members}

    def named(replicas: Sequence[ReplicaId]) -> str:
        return ", ".join(f"{one} on {stores.get(one, '?')}" for one in replicas)

    roles: list[tuple[str, Sequence[ReplicaId]]]
    roles = [("voters", members.full_voters), ("leaving", members.outgoing)]
    witnesses = [one for one in members.witnesses if members.contains(one)]
    roles += [("learners", members.learners), ("witnesses", witnesses)]
    return "; ".join(f"{role} {named(found)}" for role, found in roles if found)


def page(state: State, after: int, limit: int) -> EventPage:
    """The first `limit` events behind `after`."""
    feed = state.feed
    oldest = feed.ring[0].revision if feed.ring else feed.last + 1
    first = max(after + 1 - oldest, 0)
    found = tuple(feed.ring[first : first + limit]) if after >= oldest - 1 else ()
    return EventPage(found, oldest, feed.last)
