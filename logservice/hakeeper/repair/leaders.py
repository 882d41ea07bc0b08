"""Leaders: a leader that a person wants on a store goes there, and comes back from elsewhere.

Theory of operation. A wish about a leader holds until a tick. While it holds, HAKeeper hands the
leadership to the voter on that store whenever another voter has it and that one keeps up. It never
takes a leadership away from a leader that works to give it to a voter that does not, nor to one
that applies nothing (`stuck`); the wish waits for it. A wish without
a store keeps the leader where it is, as far as HAKeeper moves leaders at all: nothing begins here,
and who balances leaders asks `standing.leader_frozen`. Elections go their own way; a wish is no
lock. Draining a store comes before a wish to lead there.

A wish that has run out is removed at the next pass.

Every pass goes through all wishes, so most of them are passed over by what is known already: that
the store says it leads the shard (`holdings`), or is silent, or that as many leaderships are handed
over as may be at once.
"""

from __future__ import annotations

from logservice.hakeeper.repair.checkers import Checkers
from logservice.hakeeper.repair.errands import voter_on
from logservice.hakeeper.state import Cause, ShardState
from logservice.hakeeper.stores import standing
from logservice.hakeeper.stores.health import (
    keeping_up,
    leader_report,
    live_store,
    stuck_members,
)
from logservice.hakeeper.stores.holdings import holdings, touch
from logservice.ids import StoreId


def carry_out(checkers: Checkers) -> None:
    """Begin to hand over what is led elsewhere."""
    state = checkers.state
    known = holdings(state)
    for shard in [state.shards[one] for one in sorted(known.led_by_wish)]:
        if shard.leader_wish is None or shard.deleting_tick:
            continue
        store = shard.leader_wish.store
        if standing.leader_wish(state, shard) is None:
            shard.leader_wish = None
            touch(state, shard.shard)
        elif not store or shard.shard in known.led.get(store, ()):
            continue
        elif live_store(state, store) is not None and checkers.may_lead():
            _bring_home(checkers, shard, store)


def _bring_home(checkers: Checkers, shard: ShardState, store: StoreId) -> None:
    state = checkers.state
    voter, leader = voter_on(shard, store), leader_report(state, shard)
    if voter is None or leader is None or leader[1].replica == voter.replica_id:
        return
    if not standing.may_lead_there(state, voter) or shard.members.joint:
        return
    good = keeping_up(state, shard) - stuck_members(state, shard)
    if voter.replica_id in good & set(shard.members.full_voters):
        checkers.lead(shard, voter.replica_id, Cause.WISH)
