"""Following: what a proposal changed of the things that `holdings` are made of.

Theory of operation. The proposals that stores and clients send all the time say themselves what
they changed, or change nothing of it. The verbs of people are rare, and name the log that they are
about. Whatever is not known here may have changed anything, so the holdings are built anew: that
costs time, and is right.
"""

from __future__ import annotations

from typing import Final

from logservice.hakeeper.commands import proposals, verbs
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.holdings import forget, touch, touch_store
from logservice.ids import ShardId, StoreId
from logservice.outcome import Applied, Outcome

_BY_THEMSELVES: Final = (
    proposals.Tick,
    proposals.StoreHeartbeat,
    proposals.AckCommands,
)
"""They call `touch` where they change something."""

_NOTHING: Final = (
    proposals.ServiceHeartbeat,
    proposals.AllocateIds,
    proposals.ScheduleCommands,
    proposals.ChangeAccess,
    proposals.AdmitStore,
    proposals.SendOrder,
    proposals.SetJoining,
    proposals.SetPhase,
    verbs.SetStoreMode,
    verbs.DrainDirectory,
    verbs.SetRepair,
    verbs.WishReplica,
    verbs.CancelWish,
    verbs.CancelOperator,
    verbs.ChangeSettings,
    verbs.Rebalance,
    verbs.SetWorkState,
    verbs.CreateTnShard,
    verbs.DeleteTnShard,
)
"""They change nothing that is counted. The mode of a store is asked for, not kept."""

_ONE_LOG: Final = (proposals.ChangeShard, proposals.DeleteShard, verbs.SetLeader)


def follow(state: State, proposal: proposals.Proposal, outcome: Outcome) -> None:
    """Bring the holdings up to date after a proposal was applied."""
    if isinstance(proposal, (*_BY_THEMSELVES, *_NOTHING)) or not isinstance(outcome, Applied):
        return
    if isinstance(proposal, proposals.CreateShard):
        touch(state, ShardId(outcome.value))
    elif isinstance(proposal, _ONE_LOG):
        touch(state, proposal.shard)
    elif isinstance(proposal, proposals.RaiseVersion):
        # The version decides as of when replicas that are behind are judged (`turns`), and whether
        # learners may stand. To count everything again would take a sixth of a second.
        for shard in state.shards.values():
            if shard.behind or shard.members.learners:
                touch(state, shard.shard)
    elif isinstance(proposal, verbs.ForgetStore):
        touch_store(state, StoreId(proposal.store))
    else:
        forget(state)
