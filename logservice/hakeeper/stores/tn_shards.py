"""TN shards: units of the database's work, each served by one service of the kind ``tn`` at a time.

Theory of operation. A TN shard belongs to one log, and a log has at most one. HAKeeper gives it to
one process of a service; the answers to that process's heartbeats name it (`serve`), and its
heartbeats say what it serves (`serving`). Each time it is given away it gets a larger replica
number, so of two the larger is the newer. It goes to the working service that has the fewest, ties
by name, among those that take TN shards, were heard a moment ago, and are of the identity that the
TN shard names, if it names one. It stays where it is until

- the process gives it up: it said that it serves it, and says so no more, or it takes none now;
- its service drains, or the process does not begin within HAKEEPER_TN_MOVE_TICKS. Then it is
  *withdrawn*: the answers do not name it any more, and it waits for the process to say so;
- the process was not heard for HAKEEPER_TN_ALIVE_TICKS.

Nothing is moved to even out the numbers: to move a TN shard costs its users more than that gains.

INV-HK-TN: no two processes serve a TN shard at one time, as far as their clocks measure a time span
rightly. HAKeeper gives it to another process only when

1. the answers to the heartbeats of the process that had it do not name it any more, and a later
   heartbeat of that process does not say that it serves it. A process sends a heartbeat only when
   the one before was answered or given up for good, and late ones are not taken. So what it says is
   all that earlier answers could lead to. For a process that says it takes none any more, or that
   says no more that it serves it, that heartbeat is enough: it begins nothing after it.
2. or that process was not heard for HAKEEPER_TN_ALIVE_TICKS. It stops by itself
   HAKEEPER_TN_STOP_TICKS after it *sent* the newest heartbeat that was answered, which is before
   that heartbeat was applied here. The store that answers says how many milliseconds that is, so a
   tick has to be as long on every store (`hakeeper.tick_ms`). Ticks come late but never early, as
   far as the leader's clock is right, and half as much again is left for that.

A process that another one followed under the same name is refused from then on, and is not heard
any more: its TN shards wait for rule 2, since the other one's heartbeats say nothing about it.

What a process writes after it should have stopped (its clock stood still, its handler did not stop)
is fenced by the log: whoever serves a TN shard acquires the writer's epoch of its log first (G9).

All of this exists from cluster version 2 on.

Reference: MatrixOne's checkers of TN shards, where a larger replica id is the newer one, and where
two may serve until the older one hears of it.
"""

from __future__ import annotations

from collections import Counter

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.proposals import ServiceHeartbeat
from logservice.hakeeper.commands.replies import ServedTnShard
from logservice.hakeeper.commands.verbs import CreateTnShard, DeleteTnShard, WorkState
from logservice.hakeeper.state import ServiceState, State, TnShard
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.outcome import Applied, Outcome, Rejected

_KIND = "tn"
_FLAG = "TN shard "


def apply_create(state: State, verb: CreateTnShard) -> Outcome:
    """A TN shard for a log; `value` of the outcome is its id. A log that has one keeps that one.

    Rejected: SHARD_NOT_FOUND, INVALID_ARGUMENT when the one that is there is for another identity,
    BUSY when there are HAKEEPER_TN_SHARDS_MAX.
    """
    log = state.shards.get(verb.shard)
    if verb.shard == HAKEEPER_SHARD or log is None or log.deleting_tick:
        return Rejected(Reason.SHARD_NOT_FOUND, {"shard": str(verb.shard)})
    known = of_log(state, verb.shard)
    if known:
        identity = state.tn_shards[known].identity
        if identity != verb.identity:
            why = (
                f"shard {verb.shard} has TN shard {known}, for services of {identity or 'anybody'}"
            )
            return Rejected(Reason.INVALID_ARGUMENT, {"field": "identity", "why": why})
        return Applied(value=known, duplicate=True)
    if len(state.tn_shards) >= bounds.HAKEEPER_TN_SHARDS_MAX:
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_TN_SHARDS_MAX)})
    number = state.next_tn_shard
    state.next_tn_shard += 1
    state.tn_shards[number] = TnShard(verb.shard, verb.identity, free_tick=state.tick)
    _tell(state, number, "created")
    return Applied(value=number)


def apply_delete(state: State, verb: DeleteTnShard) -> Outcome:
    """Nobody shall serve it any more; to delete a deleted one changes nothing.

    Rejected: INVALID_ARGUMENT for one that never was.
    """
    if not 0 < verb.tn_shard < state.next_tn_shard:
        why = f"there never was a TN shard {verb.tn_shard}"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "tn_shard_id", "why": why})
    if verb.tn_shard not in state.tn_shards:
        return Applied(value=verb.tn_shard, duplicate=True)
    _tell(state, verb.tn_shard, "deleted")
    del state.tn_shards[verb.tn_shard]
    return Applied(value=verb.tn_shard)


def of_log(state: State, shard: ShardId) -> int:
    """The id of the TN shard of that log; 0 when it has none."""
    return next((number for number, one in state.tn_shards.items() if one.shard == shard), 0)


def end_of_log(state: State, shard: ShardId) -> None:
    """The log is deleted: its TN shard ends with it."""
    number = of_log(state, shard)
    if number:
        _tell(state, number, "deleted with its log")
        del state.tn_shards[number]


def take(state: State, service: ServiceState, beat: ServiceHeartbeat) -> None:
    """Take in what a process serves. `service` has its `boot_id` and `sequence` already."""
    service.takes_tn_shards = beat.takes_tn_shards and beat.boot_id > 0
    if not state.tn_shards or not beat.boot_id:
        return
    serving = dict(beat.serving)
    for number, one in sorted(state.tn_shards.items()):
        if (one.service, one.boot_id) != (service.service, beat.boot_id):
            continue
        one.heard_tick = state.tick
        if serving.get(number) == one.replica:
            if not one.serving:
                one.serving = True
                _tell(state, number, f"served by {one.service}")
        elif one.withdrawn_tick or one.serving or not beat.takes_tn_shards:
            _free(state, number, f"left by {one.service}")


def serve(state: State, service: ServiceState) -> tuple[ServedTnShard, ...]:
    """What the newest process of the service shall serve; the answer that is being made says it."""
    found = []
    for number, one in sorted(state.tn_shards.items()):
        mine = (one.service, one.boot_id) == (service.service, service.boot_id)
        if mine and not one.withdrawn_tick:
            found.append(ServedTnShard(number, one.shard, one.replica))
    return tuple(found)


def check(state: State) -> None:
    """Withdraw, take back and give away what is due. It looks once a second."""
    if not state.tn_shards or state.tick % bounds.HAKEEPER_TICKS_PER_S:
        return
    for number, one in sorted(state.tn_shards.items()):
        if not one.service:
            continue
        if one.heard_tick + bounds.HAKEEPER_TN_ALIVE_TICKS < state.tick:
            _free(state, number, f"{one.service} is silent")
            continue
        service = state.services.get(one.service)
        drains = service is not None and service.work_state is not WorkState.WORKING
        late = not one.serving and one.placed_tick + bounds.HAKEEPER_TN_MOVE_TICKS < state.tick
        if (drains or late) and not one.withdrawn_tick:
            one.withdrawn_tick = state.tick
            one.avoid = "" if drains else one.service
            _tell(state, number, f"withdrawn from {one.service}")
    _place(state)
    wanted = set(flags(state))
    if wanted != {flag for flag in state.flags if flag.startswith(_FLAG)}:
        state.dirty = True


def flags(state: State) -> list[str]:
    """Flags of TN shards that nobody serves, or that were withdrawn and are still served."""
    since = state.tick - bounds.HAKEEPER_TN_MOVE_TICKS
    found = []
    for number, one in sorted(state.tn_shards.items()):
        if not one.service and one.free_tick < since:
            found.append(f"{_FLAG}{number} of shard {one.shard}: no tn service takes it")
        elif one.serving and 0 < one.withdrawn_tick < since:
            found.append(f"{_FLAG}{number} of shard {one.shard}: {one.service} does not leave it")
    return found


def _place(state: State) -> None:
    free = [number for number, one in sorted(state.tn_shards.items()) if not one.service]
    if not free:
        return
    fresh = state.tick - bounds.HAKEEPER_TN_ALIVE_TICKS // 3
    takers = [
        one
        for _, one in sorted(state.services.items())
        if one.kind == _KIND
        and one.takes_tn_shards
        and one.work_state is WorkState.WORKING
        and one.last_tick >= fresh
    ]
    counts = Counter(one.service for one in state.tn_shards.values())
    for number in free:
        one = state.tn_shards[number]
        fit = [each for each in takers if one.identity in ("", each.owner)]
        # One that did not begin the last time is asked only when there is no other.
        fit = [each for each in fit if each.service != one.avoid] or fit
        if not fit:
            continue
        service = min(fit, key=lambda each: (counts[each.service], each.service))
        counts[service.service] += 1
        one.service, one.boot_id = service.service, service.boot_id
        one.replica += 1
        one.placed_tick, one.heard_tick = state.tick, service.last_tick
        one.serving, one.withdrawn_tick = False, 0
        _tell(state, number, f"given to {one.service}")


def _free(state: State, number: int, why: str) -> None:
    one = state.tn_shards[number]
    _tell(state, number, why)
    one.service, one.boot_id, one.serving, one.withdrawn_tick = "", 0, False, 0
    one.free_tick = state.tick


def _tell(state: State, number: int, text: str) -> None:
    one = state.tn_shards[number]
    feed.tell(
        state,
        EventKind.TN_SHARD,
        shard=one.shard,
        replica=one.replica,
        store=one.service,
        text=f"{number} {text}",
    )
