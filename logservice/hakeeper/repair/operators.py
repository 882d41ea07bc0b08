"""Operators: what a repair wants next, as a pure function of the reported state.

Theory of operation. `plan` looks at the newest known membership and reports, and says what the
operator wants now: to finish, to wait (and for what), or one command for one store. It remembers no
steps: the state tells how far the repair has come, whoever brought it there. So no special
case is needed for a lost command, a repeated one, a leader change of HAKeeper or of the shard, or a
race with another change.

    REPLACE, ADD   replica not in the membership   add it as a learner
                   learner, not reported           start it on its store
                   learner, reported               wait until it is caught up, then swap: the new
                                                   one in and the old one out in one joint change
                   joint                           wait until Raft has left it
                   voter, old one gone             finished
    REPLACE on the old one's own store             one joint change swaps them; a START follows
    REMOVE         old one in the membership       remove it
    START          not reported                    start it in its own data directory
    KILL           reported or stored, no member   remove its data

As long as its replica is no voter, a REPLACE or ADD is given up if the target store is lost or
cannot start the replica, if the old replica came back to stay, or if the new one is no longer
needed. The learner is then removed again. The race between a swap under way and that removal is
decided by the epoch: one of them wins, the other changes nothing, and the next plan sees which.

The swap waits until a majority of the new configuration, the new replica included, is recently
active and caught up by the leader's fresh report. A store cannot hold two replicas of a shard. So
when a voter is replaced in place, the new one comes empty, and that majority must be there without
it. Reference: Raft thesis 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds
from logservice.config_change import ChangeKind
from logservice.hakeeper.commands.store_commands import (
    ChangeMembership,
    RemoveReplica,
    StartReplica,
    Step,
    StoreCommand,
)
from logservice.hakeeper.repair.safety import alive, lowers_tolerance
from logservice.hakeeper.state import Operator, Repair, ShardState, State
from logservice.hakeeper.stores.health import (
    REPLACEABLE,
    Health,
    health,
    keeping_up,
    leader_report,
    live_store,
    majority,
    report_of,
    settled,
)
from logservice.ids import NO_REPLICA, Incarnation, ReplicaId, StoreId
from logservice.membership import Membership


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do."""

    why: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The operator waits; `step` says for what."""

    step: str


@dataclass(frozen=True, slots=True)
class Send:
    """`command` should be with `target` until its effect is reported."""

    step: str
    target: StoreId
    command: StoreCommand


Plan = Finish | Wait | Send


def plan(state: State, operator: Operator) -> Plan:
    """What the operator wants now."""
    shard = state.shards.get(operator.shard)
    if shard is None or not shard.initial:
        return Finish("the shard is gone")
    if operator.kind is Repair.START:
        return _plan_start(state, shard, operator)
    if operator.kind is Repair.KILL:
        return _plan_kill(state, shard, operator)
    if operator.kind is Repair.REMOVE:
        return _plan_remove(state, shard, operator)
    return _plan_arrival(state, shard, operator)


def _plan_arrival(state: State, shard: ShardState, operator: Operator) -> Plan:
    """REPLACE and ADD: make `replica` a voter, and remove `old` with the same change."""
    members = shard.members
    new, old = operator.replica, operator.old
    if members.joint:
        return Wait("leaving the joint configuration")
    if new in members.voters:
        return Finish("done")
    if new in members.removed:
        return Finish("given up")
    reason = _given_up(state, shard, operator)
    if new not in members.learners:
        if reason:
            return Finish(reason)
        if _in_place(members, operator):
            return _plan_in_place(state, shard, operator)
        addition = Step(ChangeKind.ADD_LEARNER, new, operator.store, operator.incarnation)
        return _change(state, shard, "add the learner", addition)
    if reason:
        return _change(state, shard, f"remove the learner: {reason}", Step(ChangeKind.REMOVE, new))
    store = state.stores[operator.store]
    report = store.replicas.get(shard.shard)
    if report is None or report.replica != new:
        return _start(shard, new, operator.store, operator.incarnation)
    leaving = old if members.contains(old) else NO_REPLICA
    why_not = swap_refusal(state, shard, new, leaving)
    if why_not:
        return Wait(why_not)
    steps = [Step(ChangeKind.ADD_VOTER, new, operator.store, operator.incarnation)]
    if leaving != NO_REPLICA:
        steps.append(Step(ChangeKind.REMOVE, leaving))
    return _change(state, shard, "swap" if leaving else "promote", *steps)


def _in_place(members: Membership, operator: Operator) -> bool:
    old = members.member(operator.old)
    return old is not None and old.store_id == operator.store


def _plan_in_place(state: State, shard: ShardState, operator: Operator) -> Plan:
    """Swap a voter that cannot help for an empty one on the same store.

    The shard needs as many of its other voters as before. While the new voter copies the log, it
    can already vote for one of them, which the old one could not.
    """
    old = shard.members.member(operator.old)
    if old is None or health(state, shard, old) not in REPLACEABLE:
        return Finish("the old replica is back")
    why_not = swap_refusal(state, shard, operator.replica, old.replica_id, empty=True)
    if why_not:
        return Wait(why_not)
    return _change(
        state,
        shard,
        "swap in place",
        Step(ChangeKind.ADD_VOTER, operator.replica, operator.store, operator.incarnation),
        Step(ChangeKind.REMOVE, old.replica_id),
    )


def swap_refusal(
    state: State,
    shard: ShardState,
    arriving: ReplicaId,
    leaving: ReplicaId,
    *,
    empty: bool = False,
) -> str:
    """Why the voters may not change yet; empty if they may. Either replica may be NO_REPLICA.
    `empty`: the arriving replica need not be caught up.

    Safety argument (G8): by the leader's fresh report, the majority that the new configuration
    needs is connected to the leader and at most HAKEEPER_CAUGHT_UP_ENTRIES behind. So the change
    neither stops the shard nor makes it depend on a replica that has yet to copy the log.
    """
    members = shard.members
    after = tuple(voter for voter in members.voters if voter != leaving)
    if arriving != NO_REPLICA:
        after = (*after, arriving)
    good = keeping_up(state, shard)
    if not good:
        return "waiting for the leader's report"
    if arriving != NO_REPLICA and not empty and arriving not in good:
        return "catching up"
    if sum(1 for voter in after if voter in good) < majority(len(after)):
        return "waiting for a majority of the new configuration to be active and caught up"
    if lowers_tolerance(members, after, alive(state, shard)):
        return "waiting: it would lower the fault tolerance"
    return ""


def _given_up(state: State, shard: ShardState, operator: Operator) -> str:
    """Why the replica is no longer wanted; empty if it is."""
    store = live_store(state, operator.store)
    if store is None:
        return "its store is lost"
    if not store.uses(operator.incarnation):
        return "its data directory is lost"
    report = store.replicas.get(shard.shard)
    if report is not None and report.replica == operator.replica and report.halted:
        return "it halted"
    if operator.replica in shard.lost:
        return "its data is gone"
    if operator.failures >= bounds.HAKEEPER_STEP_FAILURES_MAX:
        return "its store cannot start it"
    members = shard.members
    if any(
        member.store_id == operator.store
        for member in members.members
        if member.replica_id not in (operator.replica, operator.old)
        and members.contains(member.replica_id)
    ):
        return "its store holds another replica of the shard"
    old = members.member(operator.old)
    if operator.kind is Repair.ADD or old is None or operator.old not in members.voters:
        return "enough voters" if len(members.voters) >= shard.wanted else ""
    if health(state, shard, old) is Health.ALIVE and settled(state, state.stores[old.store_id]):
        return "the old replica is back"
    return ""


def _plan_remove(state: State, shard: ShardState, operator: Operator) -> Plan:
    members, old = shard.members, operator.old
    if members.joint:
        return Wait("leaving the joint configuration")
    if not members.contains(old):
        return Finish("done")
    if old in members.voters:
        member = members.member(old)
        if member is not None and health(state, shard, member) not in REPLACEABLE:
            return Finish("the replica is back")
        why_not = swap_refusal(state, shard, NO_REPLICA, old)
        if why_not:
            return Wait(why_not)
    return _change(state, shard, "remove", Step(ChangeKind.REMOVE, old))


def _plan_start(state: State, shard: ShardState, operator: Operator) -> Plan:
    member = shard.members.member(operator.replica)
    if member is None or not shard.members.contains(operator.replica):
        return Finish("no member any more")
    if health(state, shard, member) is not Health.MISSING:
        return Finish("done")
    store = live_store(state, member.store_id)
    before = None if store is None else store.replicas.get(shard.shard)
    if before is not None and not before.halted:
        return Wait("the replica that runs there is being removed")
    return _start(shard, operator.replica, member.store_id, member.incarnation)


def _plan_kill(state: State, shard: ShardState, operator: Operator) -> Plan:
    store = live_store(state, operator.store)
    if store is None:
        return Finish("its store is lost")
    if shard.members.contains(operator.replica):
        return Finish("it is a member")
    report = store.replicas.get(shard.shard)
    runs = report is not None and report.replica == operator.replica
    if not runs and (shard.shard, operator.replica) not in store.stored:
        return Finish("done")
    if not _removal_is_known(state, shard):
        # A removed leader may be the only one that knows that its removal is committed, and its log
        # may be the newest. The others could not elect a leader without it.
        return Wait("a leader of the new membership, or all that is left, knows of the removal")
    return Send("kill", operator.store, RemoveReplica(shard.shard, operator.replica))


def _removal_is_known(state: State, shard: ShardState) -> bool:
    """Whether the leader has applied the newest membership.

    Without a leader every voter that is up must have applied it. This matters when a voter that was
    swapped in place runs again and is in the way of its successor, whose vote a leader needs.
    """
    epoch = shard.members.change_epoch
    leader = leader_report(state, shard)
    if leader is not None:
        return leader[1].epoch >= epoch
    up = alive(state, shard)
    reports = [
        report_of(state, shard, member)
        for member in shard.members.members
        if member.replica_id in up and member.replica_id in shard.members.voters
    ]
    return bool(reports) and all(one is not None and one.epoch >= epoch for one in reports)


def _start(shard: ShardState, replica: ReplicaId, store: StoreId, incarnation: Incarnation) -> Send:
    """Start a replica: an initial member begins with the recorded initial membership, and a later
    one waits for a snapshot.
    """
    initial = replica in Membership.decode(shard.initial).voters
    command = StartReplica(
        shard.shard,
        replica,
        incarnation,
        shard.initial if initial else shard.membership,
        join=not initial,
        fresh=replica not in shard.started,
    )
    return Send("start", store, command)


def _change(state: State, shard: ShardState, step: str, *steps: Step) -> Plan:
    """One membership change for the leader's store or, without a leader, any live voter's store."""
    found = leader_report(state, shard)
    if found is not None:
        target = found[0].store
    else:
        up = alive(state, shard)
        voters = [
            member.store_id
            for member in shard.members.members
            if member.replica_id in up and member.replica_id in shard.members.voters
        ]
        if not voters:
            return Wait("no live voter")
        target = voters[0]
    change = ChangeMembership(shard.shard, shard.members.change_epoch, steps)
    return Send(step, target, change)
