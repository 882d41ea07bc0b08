"""Check: one pass of HAKeeper's reasoning, run inside the state machine when a tick is applied.

Theory of operation. The alternative would be a leader that looks at its state, decides and proposes
the result. It would have to fence that result against everything committed in between. Here the
decision *is* the application of an entry. So the view is exact by construction, and every replica
comes to the same result. A deposed leader can decide nothing, because all it can do is propose a
tick, which counts only in the term of its entry. The price is that the pass must be deterministic
and cheap. It runs at the next tick after a report changed something (`dirty`), every
HAKEEPER_OPERATOR_CHECK_TICKS while operators are under way, when the next look of balancing is due
(`rebalance`), and else every HAKEEPER_IDLE_CHECK_TICKS.

A pass notices expired stores, advances the first start, drives operators under way (`drives` says
which), lets the checkers begin new ones, and collects the flags. To drive an operator is to keep
its wanted command queued until its effect is reported, to send it again when it was acknowledged
and had no effect, and to replace it when another one is wanted. `safety.objection` is asked before
a command is queued.
"""

from __future__ import annotations

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.logs.deletion import sweep
from logservice.hakeeper.repair import bootstrap, errands, looks, rebalance, safety, stuck, wishes
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.operators import Finish, Send, Wait, plan
from logservice.hakeeper.state import BRINGS_REPLICA, Operator, State
from logservice.hakeeper.stores import (
    delivery,
    drives,
    enrolment,
    service_holds,
    services,
    standing,
    tn_shards,
)
from logservice.hakeeper.stores.health import settling_ticks, silent
from logservice.hakeeper.stores.heartbeats import learn_again
from logservice.hakeeper.stores.holdings import touch

_IN_SLICES = 2
"""From this cluster version on a pass looks at a slice of the restless shards (`looks`)."""


def on_tick(state: State) -> None:
    """Run a pass if one is due. The caller has already advanced `state.tick`."""
    _expire(state)
    busy = state.operators or state.phase is not Phase.RUNNING
    due = bounds.HAKEEPER_OPERATOR_CHECK_TICKS if busy else bounds.HAKEEPER_IDLE_CHECK_TICKS
    if state.cluster_version >= _IN_SLICES and state.phase is Phase.RUNNING:
        looks.observe(state)
    if state.dirty or state.tick % due == 0:
        run(state)
    elif state.looks_left or state.last_wish or drives.overdue(state) or rebalance.due(state):
        _pass(state)


def quiet(state: State) -> bool:
    """Whether nothing waits for the next tick: nothing changed, is under way or is wished, every
    store was heard lately, and there is no service, whose times are short. Then ticks may come
    several at a time: they do the same, up to a second later.

    A heartbeat counts from the last tick that was applied, so saved ticks make a store look silent
    for longer than it is. Under a short store timeout a store that lives would be missed for that,
    so none are saved there.
    """
    return (
        state.phase is Phase.RUNNING
        and state.store_timeout_ticks >= bounds.HAKEEPER_QUIET_TIMEOUT_TICKS
        and not (state.dirty or state.operators or state.wishes or state.services)
        and not (state.tn_shards or state.looks_left or state.last_wish)
        and not any(
            store.queue or state.tick - store.last_tick > bounds.HAKEEPER_QUIET_SILENCE_TICKS
            for store in state.stores.values()
        )
    )


def run(state: State) -> None:
    """Run a pass that looks at everything, due or not; what it leaves over follows in others."""
    state.dirty = False
    if state.cluster_version >= _IN_SLICES:
        looks.begin_round(state)
        rebalance.owe(state)
    _pass(state)


def _pass(state: State) -> None:
    flags: list[str] = []
    sweep(state)
    goes_on_failed = state.phase is Phase.BOOTSTRAP_FAILED and state.cluster_version >= 2
    if state.phase is Phase.BOOTSTRAPPING:
        flags.append(bootstrap.place_first_shards(state))
    if state.phase is Phase.COMMANDS_RECEIVED or goes_on_failed:
        flags.append(bootstrap.judge(state))
    if state.phase is Phase.BOOTSTRAP_FAILED:
        ends = "it ends when a majority of each shard runs, or by `logctl cluster phase`"
        then = ends if goes_on_failed else "then set the phase to commands_received"
        flags.append(f"bootstrap failed: look at the stores, {then}")
    flags += _full_disks(state)
    flags += enrolment.flags(state)
    flags += standing.flags(state).keys()
    flags += stuck.flags(state)
    flags += service_holds.flags(state) if state.cluster_version >= 2 else []
    flags += tn_shards.flags(state)
    for operator in drives.choose(state):
        shard = state.shards.get(operator.shard)
        if shard is not None and shard.initial:
            learn_again(state, shard)
        flags += _drive(state, operator)
    if state.phase in (Phase.COMMANDS_RECEIVED, Phase.RUNNING) or goes_on_failed:
        checkers = Checkers(state)
        if state.phase is Phase.RUNNING:
            if state.cluster_version >= _IN_SLICES:
                looks.look(checkers)
            else:
                checkers.check_all()
            wishes.carry_out(checkers)
        else:
            checkers.check_starts()
        flags += checkers.flags
        for operator in drives.choose_new(state, checkers.found):
            flags += _drive(state, operator)
    flags += drives.flags(state)
    before = state.flags
    state.flags = {flag: before.get(flag, state.tick) for flag in dict.fromkeys(flags) if flag}
    feed.tell_flags(state, before, state.flags)


def _full_disks(state: State) -> list[str]:
    """Flags of full disks. HAKeeper cannot repair them: a person must truncate or make room."""
    return [
        f"disk full: {store.store} {directory.path}"
        for store in state.sorted_stores()
        if not silent(state, store.last_tick)
        for directory in store.directories
        if directory.full and not directory.failed
    ]


def _expire(state: State) -> None:
    """Notice what only the passing of time changes. The order of the stores does not matter."""
    enrolment.expire(state)
    services.expire(state)
    tn_shards.check(state)
    fell_silent = []
    for store in state.stores.values():
        if not store.expired and silent(state, store.last_tick):
            store.expired = True
            state.dirty = True
            fell_silent.append(store.store)
        if state.tick in (
            store.directories_tick + state.store_timeout_ticks + 1,
            store.live_since + settling_ticks(state),
        ):
            state.dirty = True
    for name in sorted(fell_silent):
        feed.tell(state, EventKind.STORE_DOWN, store=name)


def _drive(state: State, operator: Operator) -> list[str]:
    """Bring one operator a step further and return its flags."""
    flags = _go_on(state, operator)
    drives.driven(state, operator, flags)
    return flags


def _go_on(state: State, operator: Operator) -> list[str]:
    wanted = plan(state, operator)
    if isinstance(wanted, Finish):
        _finish(state, operator, wanted.why)
        return []
    flags = []
    if operator.created_tick + bounds.HAKEEPER_SLOW_OPERATOR_TICKS < state.tick:
        flags.append(
            f"shard {operator.shard}: {operator.kind} of replica {operator.old or operator.replica}"
            f" is slow: {wanted.step}"
        )
    operator.step = wanted.step
    if isinstance(wanted, Wait):
        delivery.recall(state, operator)
        operator.command = None
        return flags
    if operator.command == wanted.command and operator.target == wanted.target:
        if delivery.pending(state, operator):
            return flags
        if operator.issued_tick + bounds.HAKEEPER_COMMAND_RETRY_TICKS > state.tick:
            return flags
    return flags + _send(state, operator, wanted)


def _send(state: State, operator: Operator, wanted: Send) -> list[str]:
    objection = safety.objection(state, wanted.target, wanted.command)
    if objection:
        delivery.recall(state, operator)
        operator.command = None
        return [f"shard {operator.shard}: {wanted.step} was refused: {objection}"]
    delivery.send(state, operator, wanted.target, wanted.command)
    return []


def _finish(state: State, operator: Operator, why: str) -> None:
    delivery.recall(state, operator)
    del state.operators[operator.id]
    feed.operator_ended(state, operator, why)
    errands.ended(state, operator, why)
    shard = state.shards.get(operator.shard)
    if shard is None or operator.kind not in BRINGS_REPLICA:
        return
    members = shard.members
    if operator.failures >= bounds.HAKEEPER_STEP_FAILURES_MAX:
        shard.avoid[operator.store] = state.tick + bounds.HAKEEPER_AVOID_TICKS
    known = members.contains(operator.replica) or operator.replica in members.removed
    if operator.command_id and not known:
        # The change that adds it may still be on its way. It names this epoch, so that it changes
        # nothing once the epoch is a later one.
        shard.abandoned[operator.replica] = members.change_epoch
        touch(state, shard.shard)
