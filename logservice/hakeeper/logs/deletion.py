"""Deletion: a log ends for ever, and its space comes back on every store.

Theory of operation. A log is deleted in this order:

    closed      nobody can be told "appended" any more; the deletion names this Close
    tombstone   the point of no return, in one entry of shard 0: the id is deleted, the name is
                free, operators and commands about the log are gone
    removal     every store that reports or stores a replica of a deleted id is told so with every
                answer to its heartbeats, until it reports none; so are stores that were away
    gone        no live store has one any more: the log leaves the state; the tombstone stays

Nothing here remembers how far it has come: the reports say so. So a lost answer, a new leader of
HAKeeper and a store that comes back years later need no case of their own.

INV-HK-UNDEAD: nothing is done for a deleted log but to remove it. No replica of it is placed,
started or added, and its name resolves to nobody.

INV-HK-PROTECTED: a log that is protected is not deleted, not even by force: a policy without the
protection comes first, which is another entry.

A log that was not closed, or that has holds or a TN shard, is deleted only by force. Force is for
logs that cannot be closed (their majority is lost), and it must name the log, too. Whether there
are holds is known from reports, so a hold that is set within a heartbeat of the deletion may be
overlooked; whoever closes the log, looks at its holds and then deletes it overlooks none.

A shard that HAKeeper does not know and that has no tombstone is kept and flagged, never removed.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.proposals import DeleteShard
from logservice.hakeeper.commands.store_commands import AnyCommand, ServiceOrder
from logservice.hakeeper.logs.closing import close_of, holds_of
from logservice.hakeeper.marks import mark, unmark
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import tn_shards
from logservice.hakeeper.stores.health import silent
from logservice.hakeeper.stores.holdings import holdings, touch
from logservice.hakeeper.tombstones import bury, has_room, is_deleted
from logservice.ids import HAKEEPER_SHARD, ShardId, StoreId
from logservice.outcome import Applied, Outcome, Rejected


def apply_delete(state: State, proposal: DeleteShard) -> Outcome:
    """Delete a log; to delete a deleted one changes nothing.

    Rejected: NOT_READY before the cluster runs, and while the Close is not reported yet;
    SHARD_NOT_FOUND; INVALID_ARGUMENT{field} for shard 0, another name or another Close;
    DELETE_REFUSED{why}; BUSY when there are HAKEEPER_DELETED_RANGES_MAX ranges of tombstones.
    """
    if state.phase not in (Phase.COMMANDS_RECEIVED, Phase.RUNNING):
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    if proposal.shard == HAKEEPER_SHARD:
        why = "shard 0 is HAKeeper itself"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "shard_id", "why": why})
    if is_deleted(state, proposal.shard):
        return Applied(value=proposal.shard, duplicate=True)
    shard = state.shards.get(proposal.shard)
    if shard is None:
        return Rejected(Reason.SHARD_NOT_FOUND, {"shard": str(proposal.shard)})
    if shard.name != proposal.name:
        why = f"shard {shard.shard} has another name"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "name", "why": why, "name": shard.name})
    if shard.policy.protected:
        return Rejected(Reason.DELETE_REFUSED, {"why": "protected"})
    if not proposal.force:
        refused = _refusal(state, shard, proposal)
        if refused is not None:
            return refused
    if not has_room(state):
        return Rejected(Reason.BUSY, {"limit": str(bounds.HAKEEPER_DELETED_RANGES_MAX)})
    _end(state, shard)
    return Applied(value=shard.shard)


def sweep(state: State) -> None:
    """Let go of the deleted logs that no live store has any more."""
    going = sorted(holdings(state).ending)
    if not going:
        return
    kept: set[ShardId] = set()
    for store in state.stores.values():
        if not silent(state, store.last_tick):
            kept.update(store.replicas.keys() & going, (one for one, _ in store.stored))
    for number in going:
        if number not in kept:
            unmark(state, state.shards[number])
            del state.shards[number]
            touch(state, number)


def holders(state: State, shard: ShardId) -> tuple[StoreId, ...]:
    """The stores that reported a replica of it last, live or not."""
    return tuple(
        store.store
        for store in state.sorted_stores()
        if shard in store.replicas or any(shard == stored for stored, _ in store.stored)
    )


def _refusal(state: State, shard: ShardState, proposal: DeleteShard) -> Rejected | None:
    """Why the log is deleted by force only; None if it need not be."""
    # What nobody can mend by closing the log comes first: a Close is never taken back.
    if tn_shards.of_log(state, shard.shard):
        return Rejected(Reason.DELETE_REFUSED, {"why": "tn-shard"})
    holds = holds_of(state, shard)
    if holds:
        return Rejected(Reason.DELETE_REFUSED, {"why": "holds", "holds": str(holds)})
    if not proposal.closed_index:
        return Rejected(Reason.DELETE_REFUSED, {"why": "open"})
    closed = close_of(state, shard)
    if not closed.at:
        # The caller knows of a Close that no report has told yet.
        return Rejected(Reason.NOT_READY, {"field": "closed_index"})
    if closed.at != proposal.closed_index:
        why = "the log was closed by another entry"
        return Rejected(Reason.INVALID_ARGUMENT, {"field": "closed_index", "why": why})
    return None


def _end(state: State, shard: ShardState) -> None:
    bury(state, shard.shard)
    shard.deleting_tick = max(state.tick, 1)
    mark(state, shard)
    shard.leader_wish = None
    tn_shards.end_of_log(state, shard.shard)
    for wish in state.wishes.values():
        if wish.shard == shard.shard and not wish.ended_tick:
            wish.ended_tick, wish.result = shard.deleting_tick, "the log was deleted"
    state.operators = {
        number: operator
        for number, operator in state.operators.items()
        if operator.shard != shard.shard
    }
    for store in state.stores.values():
        store.queue = [item for item in store.queue if not _about(item.command, shard.shard)]
    state.dirty = True


def _about(command: AnyCommand, shard: ShardId) -> bool:
    return not isinstance(command, ServiceOrder) and command.shard == shard
