"""Recovery: HAKeeper goes on by force, from a copy of itself that may be old.

Theory of operation. A person rebuilt shard 0 from what was left (`nodehost.recover`). What HAKeeper
decided in its last entries may be missing here, while stores have done it, and people rely on it.
So:

- what was wished or under way is withdrawn: it was planned on knowledge that is gone;
- every number that is given out only once goes on far above what was given out (`given_out`), and
  so do the processes of TN shards;
- of the shards that were rebuilt with it HAKeeper takes over the new membership, and nothing is
  removed before everybody has reported (`stores.recovered`).
"""

from __future__ import annotations

from logservice_wire.errors import Reason
from msgspec.structs import replace

from logservice import bounds
from logservice.hakeeper import feed
from logservice.hakeeper.commands.cluster_events import EventKind
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.recovery import RecoverCluster
from logservice.hakeeper.commands.verbs import StoreMode
from logservice.hakeeper.given_out import given_out, go_on_above
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.holdings import forget
from logservice.hakeeper.stores.recovered import alone, take_over
from logservice.ids import ReplicaId, ShardId
from logservice.membership import Membership
from logservice.outcome import Applied, Outcome, Rejected


def apply_recover(state: State, recover: RecoverCluster) -> Outcome:
    """Rejected: NOT_READY before the first configuration, INVALID_ARGUMENT for a membership that no
    recovery makes.
    """
    if state.phase is Phase.CREATED:
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    found: dict[ShardId, Membership] = {}
    for row in recover.shards:
        members = alone(row.membership)
        if members is None:
            return Rejected(Reason.INVALID_ARGUMENT, {"field": "membership"})
        found[row.shard] = members
    _withdraw(state)
    _raise_allocators(state, max(members.voters[0] for members in found.values()))
    for number, members in sorted(found.items()):
        shard = state.shards.get(number)
        if shard is not None and not shard.deleting_tick:
            take_over(state, shard, members)
    # What is heard from now on is heard later than that.
    state.tick += 1
    state.recovered_tick = state.tick
    forget(state)
    feed.tell(state, EventKind.VERB, text=f"recovered by {recover.person}")
    return Applied(count=len(found))


def _withdraw(state: State) -> None:
    state.operators = {}
    state.repair_off_until, state.repair_off_reason = 0, ""
    for store in state.stores.values():
        store.queue = []
        store.mode, store.mode_reason = StoreMode.OPEN, ""
        store.repair_off_until, store.repair_off_reason = 0, ""
    for wish in state.wishes.values():
        if not wish.ended_tick:
            wish.ended_tick, wish.result = max(state.tick, 1), "shard 0 was recovered"
    for shard in state.shards.values():
        shard.leader_wish = None


def _raise_allocators(state: State, newest: ReplicaId) -> None:
    known = given_out(state)
    go_on_above(state, replace(known, next_replica_id=max(known.next_replica_id, newest)))
    for tn_shard in state.tn_shards.values():
        tn_shard.replica += bounds.RECOVERED_NUMBER_STEP
