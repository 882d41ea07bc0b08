"""Looks: at which shards a pass looks, from cluster version 2 on.

Theory of operation. A pass that looked at every shard would hold up the event loop for half a
second at 10 000 shards. Only a restless shard can need anything (`holdings`), so only those are
looked at, in rounds. A round begins whenever something changed and whenever a pass is due, and owes
one look to as many shards as are restless then (`looks_left`). A pass looks at most at
HAKEEPER_LOOKS_PER_PASS_MAX of them, in the order of their ids, from behind the one that was looked
at last, and it stops early after HAKEEPER_CHOICES_PER_PASS_MAX choices of a store. The rest of the
round follows tick by tick. Everything is bounded by counts and kept in the replicated state, and
never by a clock, so every replica looks at the same shards at the same tick.

Shard 0 is looked at first in every pass. A round that is begun anew goes on where the last one
stopped, so that no shard has to wait for longer than it takes to look at all others once.

What a look has to say is kept until the next look at the same shard (`noted`), or until the shard
is not restless any more. A shard that cannot get an operator, because as many as may be are under
way, is not asked where a replica could go; what was said of that is kept.

INV-HK-LOOKS: a pass looks at no more shards, and chooses no more stores, than the bounds say.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from logservice import bounds
from logservice.hakeeper.repair import drain, learners, standstill
from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.holdings import holdings, touch
from logservice.hakeeper.stores.turns import stands_still, turn
from logservice.ids import HAKEEPER_SHARD, ShardId
from logservice.invariants import invariant


def begin_round(state: State) -> None:
    """Owe a look to every shard that is restless now, but shard 0, which every pass looks at."""
    restless = holdings(state).restless(state)
    state.looks_left = len(restless) - len(_first(restless))


def look(checkers: Checkers) -> None:
    """Take the next slice of the round; the checkers' flags get all that is noted."""
    state = checkers.state
    restless = holdings(state).restless(state)
    said: dict[ShardId, list[str]] = {}
    for shard_id in _slice(state, restless):
        if checkers.choices >= bounds.HAKEEPER_CHOICES_PER_PASS_MAX:
            break
        said[shard_id] = checkers.look(shard_id)
    invariant(len(said) <= bounds.HAKEEPER_LOOKS_PER_PASS_MAX, "INV-HK-LOOKS", looks=len(said))
    # Repairs come before what drains and learners want, so these have their turn after all looks.
    for shard_id in said:
        said[shard_id] += _unhurried(checkers, shard_id)
    _note(state, said)
    looked = len(said.keys() - {HAKEEPER_SHARD})
    others = len(restless) - len(_first(restless))
    state.looks_left = max(0, min(state.looks_left, others) - looked)
    checkers.flags += [text for shard_id in sorted(state.noted) for text in state.noted[shard_id]]


def observe(state: State) -> None:
    """Look whether replicas catch up, in the shards whose turn it is."""
    known = holdings(state)
    for shard_id in sorted(known.turns.get(turn(state.tick), ())):
        shard = state.shards[shard_id]
        if not shard.initial or shard.deleting_tick:
            continue
        standstill.observe(state, shard)
        if shard_id in known.uneasy or stands_still(state, shard):
            touch(state, shard_id)
            state.dirty = True


def _slice(state: State, restless: list[ShardId]) -> list[ShardId]:
    first = _first(restless)
    most = min(state.looks_left, bounds.HAKEEPER_LOOKS_PER_PASS_MAX - len(first))
    # To copy ten thousand of them three times takes a millisecond.
    after = bisect_right(restless, state.last_look, len(first))
    mine = restless[after : after + most]
    return [*first, *mine, *restless[len(first) : min(after, len(first) + most - len(mine))]]


def _first(restless: list[ShardId]) -> list[ShardId]:
    """Shard 0, if it is among them."""
    return [HAKEEPER_SHARD] if restless[:1] == [HAKEEPER_SHARD] else []


def _unhurried(checkers: Checkers, shard_id: ShardId) -> list[str]:
    shard = checkers.state.shards.get(shard_id)
    if shard is None or checkers.choices >= 2 * bounds.HAKEEPER_CHOICES_PER_PASS_MAX:
        return []
    others, checkers.flags = checkers.flags, []
    drain.look(checkers, shard)
    learners.look(checkers, shard)
    said, checkers.flags = checkers.flags, others
    return said


def _note(state: State, said: dict[ShardId, list[str]]) -> None:
    for shard_id, texts in said.items():
        state.last_look = shard_id or state.last_look
        if texts:
            state.noted[shard_id] = texts
        else:
            state.noted.pop(shard_id, None)
    if state.noted:
        restless = holdings(state).restless(state)
        for shard_id in [one for one in state.noted if not _has(restless, one)]:
            del state.noted[shard_id]


def _has(restless: list[ShardId], one: ShardId) -> bool:
    at = bisect_left(restless, one)
    return at < len(restless) and restless[at] == one
