"""Operators: what a repair wants next, as a pure function of the reported state.

Theory of operation. `plan` looks at the newest known membership and reports, and says what the
operator wants now: to finish, to wait (and for what), or one command for one store. It remembers no
steps: the state tells how far the repair has come, whoever brought it there. So no special
case is needed for a lost command, a repeated one, a leader change of HAKeeper or of the shard, or a
race with another change.

    REPLACE, ADD,  replica not in the membership   add it as a learner
    MOVE
                   learner, not reported           start it on its store
                   learner, reported               wait until it is caught up, hand the leadership
                                                   over if the old one has it, then swap: the new
                                                   one in and the old one out in one joint change
                   joint                           wait until Raft has left it
                   voter, old one gone             finished
    REPLACE on the old one's own store             one joint change swaps them; a START follows
    REMOVE         old one in the membership       remove it
    START          not reported                    start it in its own data directory
    KILL           reported or stored, no member   remove its data
    LEAD           another one leads               ask the leader to hand over
    LEARN          replica not in the membership   add it as a learner
                   learner, not reported           start it on its store
                   learner, reported               finished

As long as its replica is no voter, a REPLACE, ADD or MOVE is given up if the target store is lost,
takes no more replicas or cannot start the replica, if the old replica came back to stay (except for
a MOVE), if nobody wishes it any more, or if the new one is no longer needed. The learner is then
removed again. The race between a swap under way and that removal is decided by the epoch: one of
them wins, the other changes nothing, and the next plan sees which.

A REPLACE, ADD or MOVE may bring a learner that stood there before (`promotes`). It stays when it is
given up. One that brings a witness goes the same way, with a learner that stores no records
(`rsm.witness`).

The swap waits until a majority of the new configuration, the new replica included, is recently
active and caught up by the leader's fresh report. A voter that is well is removed only while there
are more voters than wanted, or for one that takes its place, and as the last leader only when no
other voter can lead. A store cannot hold two replicas of a shard. So
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
    TransferLeader,
)
from logservice.hakeeper.repair.safety import alive, lowers_tolerance, strands
from logservice.hakeeper.state import (
    Cause,
    Operator,
    Repair,
    ShardState,
    State,
    StoreState,
)
from logservice.hakeeper.stores import standing
from logservice.hakeeper.stores.health import (
    REPLACEABLE,
    Health,
    health,
    healths,
    keeping_up,
    leader_report,
    live_store,
    majority,
    report_of,
    settled,
    stuck_members,
)
from logservice.hakeeper.stores.holdings import holdings
from logservice.ids import NO_REPLICA, Incarnation, ReplicaId, StoreId
from logservice.membership import Member, Membership, decoded

_VERBS = 2
"""From this cluster version on people wish for stores, replicas and leaders."""


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
    if operator.kind is Repair.LEAD:
        return _plan_lead(state, shard, operator)
    if operator.kind is Repair.LEARN:
        return _plan_learner(state, shard, operator)
    return _plan_arrival(state, shard, operator)


def _plan_arrival(state: State, shard: ShardState, operator: Operator) -> Plan:
    """REPLACE, ADD and MOVE: make `replica` a voter, and remove `old` with the same change."""
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
        if operator.promotes:
            return Finish("the learner is gone")
        if _in_place(members, operator):
            return _plan_in_place(state, shard, operator)
        kind = ChangeKind.ADD_WITNESS_LEARNER if operator.witness else ChangeKind.ADD_LEARNER
        addition = Step(kind, new, operator.store, operator.incarnation)
        return _change(state, shard, "add the learner", addition)
    if reason and operator.promotes:
        return Finish(reason)
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
    if state.cluster_version >= _VERBS and leaving != NO_REPLICA:
        handed_over = _hand_over(state, shard, leaving)
        if handed_over is not None:
            return handed_over
    steps = [_vote(operator)]
    if leaving != NO_REPLICA:
        steps.append(Step(ChangeKind.REMOVE, leaving))
    return _change(state, shard, "swap" if leaving else "promote", *steps)


def _plan_learner(state: State, shard: ShardState, operator: Operator) -> Plan:
    """LEARN: make `replica` a learner that runs. How far it has come is its own affair, because
    nothing depends on it: the operator ends, and is in the way of no repair.
    """
    members, new = shard.members, operator.replica
    if members.joint:
        return Wait("leaving the joint configuration")
    if new in members.removed:
        return Finish("given up")
    reason = _given_up(state, shard, operator)
    if new not in members.learners:
        if reason:
            return Finish(reason)
        addition = Step(ChangeKind.ADD_LEARNER, new, operator.store, operator.incarnation)
        return _change(state, shard, "add the learner", addition)
    if reason:
        return _change(state, shard, f"remove the learner: {reason}", Step(ChangeKind.REMOVE, new))
    report = state.stores[operator.store].replicas.get(shard.shard)
    if report is None or report.replica != new:
        return _start(shard, new, operator.store, operator.incarnation)
    return Finish("done")


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
        _vote(operator),
        Step(ChangeKind.REMOVE, old.replica_id),
    )


def _vote(operator: Operator) -> Step:
    """The step that makes a voter of the replica that the operator brings."""
    kind = ChangeKind.ADD_WITNESS if operator.witness else ChangeKind.ADD_VOTER
    return Step(kind, operator.replica, operator.store, operator.incarnation)


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
    if lowers_tolerance(state, shard, after):
        return "waiting: it would lower the fault tolerance"
    if strands(state, shard, after):
        return "waiting: most of the voters that stay apply nothing"
    return ""


def _given_up(state: State, shard: ShardState, operator: Operator) -> str:
    """Why the replica is no longer wanted; empty if it is."""
    store = live_store(state, operator.store)
    if store is None:
        return "its store is lost"
    if not store.uses(operator.incarnation):
        return "its data directory is lost"
    if operator.incarnation in store.drained:
        return "its data directory is drained"
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
    unwished = _unwished(state, members, operator)
    if unwished:
        return unwished
    if operator.kind is Repair.LEARN:
        return "" if shard.policy.learners else "no learner is wanted"
    old = members.member(operator.old)
    if operator.kind is Repair.MOVE and old is not None and operator.old in members.voters:
        applies = operator.cause is Cause.STUCK and operator.old not in stuck_members(state, shard)
        return "the old replica applies again" if applies else ""
    if operator.kind is Repair.ADD or old is None or operator.old not in members.voters:
        return "enough voters" if len(members.voters) >= shard.wanted else ""
    if health(state, shard, old) is Health.ALIVE and settled(state, state.stores[old.store_id]):
        return "the old replica is back"
    return ""


def _unwished(state: State, members: Membership, operator: Operator) -> str:
    """Why a person does not want the replica to come; empty if nobody minds."""
    if operator.cancelled:
        return "cancelled"
    in_place = _in_place(members, operator)
    if not in_place and not standing.takes_replicas(state, operator.store):
        return "its store takes no more replicas"
    old = members.member(operator.old)
    home = old.store_id if old is not None else None
    drains = old is None or standing.is_drained(state, old)
    if operator.cause is Cause.DRAIN and not drains:
        return "its place is not drained any more"
    if operator.cause is Cause.WISH:
        wish = state.wishes.get(operator.wish)
        return "the wish was withdrawn" if wish is None or wish.ended_tick else ""
    if operator.cause is not Cause.DRAIN and standing.repair_off(state, home):
        return "repair is off"
    return ""


def _hand_over(state: State, shard: ShardState, leaving: ReplicaId) -> Plan | None:
    """Before the leader's replica leaves, another voter that is well takes over; None when the
    leader is another one, or no other voter is there to lead.
    """
    found = leader_report(state, shard)
    if found is None or found[1].replica != leaving:
        return None
    heir = best_heir(state, shard, leaving)
    if heir == NO_REPLICA:
        return None
    transfer = TransferLeader(shard.shard, heir)
    return Send("hand the leadership over", found[0].store, transfer)


def best_heir(state: State, shard: ShardState, leaving: ReplicaId) -> ReplicaId:
    """The voter that shall lead when `leaving` does not any more; NO_REPLICA when none can."""
    good = keeping_up(state, shard) - stuck_members(state, shard)
    wish = standing.leader_wish(state, shard)
    heirs = [
        member
        for member in shard.members.members
        if member.replica_id in shard.members.full_voters
        and member.replica_id in good
        and member.replica_id != leaving
        and standing.may_lead_there(state, member)
    ]

    def order(member: Member) -> tuple[bool, int, ReplicaId]:
        leads = _led_by(state, state.stores[member.store_id])
        return wish is None or member.store_id != wish.store, leads, member.replica_id

    return min(heirs, key=order).replica_id if heirs else NO_REPLICA


def _led_by(state: State, store: StoreState) -> int:
    """How many shards the store leads. Release 0.1.0 counts those whose replica halted, too."""
    if state.cluster_version < 2:
        return sum(report.leads for report in store.replicas.values())
    return len(holdings(state).led.get(store.store, ()))


def _plan_lead(state: State, shard: ShardState, operator: Operator) -> Plan:
    if operator.cancelled:
        return Finish("cancelled")
    found = leader_report(state, shard)
    if found is not None and found[1].replica == operator.replica:
        return Finish("done")
    if operator.created_tick + bounds.HAKEEPER_LEAD_TICKS_MAX < state.tick:
        return Finish("no effect")
    if found is None:
        return Wait("the shard has no leader")
    if shard.members.joint:
        return Wait("leaving the joint configuration")
    member = shard.members.member(operator.replica)
    if member is None or not standing.may_lead_there(state, member):
        return Finish("no leaders are wanted where it is")
    voter = operator.replica in shard.members.voters
    if not voter or operator.replica not in keeping_up(state, shard):
        return Finish("it cannot lead")
    if operator.replica in stuck_members(state, shard):
        return Finish("it applies nothing")
    transfer = TransferLeader(shard.shard, operator.replica)
    return Send("hand the leadership over", found[0].store, transfer)


def _plan_remove(state: State, shard: ShardState, operator: Operator) -> Plan:
    members, old = shard.members, operator.old
    if members.joint:
        return Wait("leaving the joint configuration")
    if not members.contains(old):
        return Finish("done")
    if old in members.voters:
        reason = _stays(state, shard, operator)
        if reason:
            return Finish(reason)
        why_not = swap_refusal(state, shard, NO_REPLICA, old)
        if why_not and _another_goes_first(state, shard, old):
            return Finish("another voter cannot help")
        if why_not:
            return Wait(why_not)
        if state.cluster_version >= _VERBS:
            handed_over = _hand_over(state, shard, old)
            if handed_over is not None:
                return handed_over
    elif operator.cancelled:
        return Finish("cancelled")
    return _change(state, shard, "remove", Step(ChangeKind.REMOVE, old))


def _stays(state: State, shard: ShardState, operator: Operator) -> str:
    """Why a voter that was to be removed is not; empty if it goes."""
    if state.cluster_version >= _VERBS:
        if operator.cancelled:
            return "cancelled"
        if len(shard.members.voters) <= shard.wanted:
            return "as many voters as wanted"
        return ""
    member = shard.members.member(operator.old)
    back = member is not None and health(state, shard, member) not in REPLACEABLE
    return "the replica is back" if back else ""


def _another_goes_first(state: State, shard: ShardState, old: ReplicaId) -> bool:
    """Whether a voter that cannot help is there beside `old`, which can. It is the one to remove
    (`surplus`). To wait for `old` would keep the shard from every repair: the fault tolerance that
    its removal waits for comes back by that repair alone.
    """
    if state.cluster_version < _VERBS:
        return False
    found = healths(state, shard)
    return found.get(old) is Health.ALIVE and any(
        found.get(voter) in REPLACEABLE for voter in shard.members.voters
    )


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
    initial = replica in decoded(shard.initial).voters
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
