"""Change: a log gets another name, policy, labels or number of replicas while it is in use.

Theory of operation. A change replaces what is wanted of the log, as a whole or not at all. What it
leaves out stays. `repair/` carries the rest out, step by step and always within its own safety
rules. Two people who change a log at once do not overwrite each other if they name the revision
that they saw.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice import bounds
from logservice.hakeeper.commands.phase import Phase
from logservice.hakeeper.commands.policy import Policy
from logservice.hakeeper.commands.proposals import ChangeShard
from logservice.hakeeper.marks import mark
from logservice.hakeeper.state import ShardState, State
from logservice.hakeeper.stores import limits
from logservice.hakeeper.stores.holdings import holdings
from logservice.hakeeper.stores.services import text_bytes
from logservice.hakeeper.tombstones import is_deleted
from logservice.ids import HAKEEPER_SHARD
from logservice.outcome import Applied, Outcome, Rejected


def apply_change(state: State, proposal: ChangeShard) -> Outcome:
    """`value` of the outcome is the log's revision afterwards.

    Rejected: NOT_READY before the cluster runs, SHARD_NOT_FOUND, SHARD_DELETED, SHARD_EXISTS{shard}
    for a name that is taken, STALE_EPOCH{epoch} for another revision, INVALID_ARGUMENT{field}.
    """
    if state.phase not in (Phase.COMMANDS_RECEIVED, Phase.RUNNING):
        return Rejected(Reason.NOT_READY, {"phase": state.phase.value})
    if is_deleted(state, proposal.shard):
        return Rejected(Reason.SHARD_DELETED, {"shard": str(proposal.shard)})
    shard = state.shards.get(proposal.shard)
    if shard is None:
        return Rejected(Reason.SHARD_NOT_FOUND, {"shard": str(proposal.shard)})
    refused = _refusal(state, shard, proposal)
    if refused is not None:
        return refused
    policy = shard.policy
    before = (shard.name, shard.wanted, shard.policy, shard.labels)
    shard.name = proposal.name or shard.name
    shard.wanted = proposal.replicas or shard.wanted
    if proposal.policy is not None:
        shard.policy = proposal.policy
    if proposal.labels is not None:
        shard.labels = dict(sorted(proposal.labels.items()))
    if before == (shard.name, shard.wanted, shard.policy, shard.labels):
        return Applied(value=shard.revision, duplicate=True)
    limits.changed(state, policy, shard)
    if shard.name != before[0]:
        # Grants speak of names. Stores take what they decided for undecided once the list is newer.
        state.access_version += 1
    shard.revision += 1
    mark(state, shard)
    state.dirty = True
    return Applied(value=shard.revision)


def named(state: State, name: str) -> ShardState | None:
    """The living log of that name."""
    found = holdings(state).named.get(name)
    return state.shards[found[0]] if found else None


def wrong_wish(
    replicas: int, labels: dict[str, str] | None, policy: Policy | None
) -> Rejected | None:
    """INVALID_ARGUMENT{field, why} for what no log can have, None if nothing is wrong. An even
    number of replicas survives no more failures than the odd number below it.
    """
    learners = policy.learners if policy is not None else ()
    zones = {one.zone for one in learners}
    if len(zones) < len(learners) or (
        sum(one.count for one in learners) > bounds.HAKEEPER_LEARNERS_MAX
    ):
        return _wrong("learners", f"each zone once, {bounds.HAKEEPER_LEARNERS_MAX} in all at most")
    if replicas and replicas % 2 == 0:
        return _wrong("replicas", "an odd number")
    if labels is not None and text_bytes(labels) > bounds.HAKEEPER_SHARD_LABEL_BYTES_MAX:
        return _wrong("labels", f"{bounds.HAKEEPER_SHARD_LABEL_BYTES_MAX} bytes at most")
    return None


def _wrong(field: str, why: str) -> Rejected:
    return Rejected(Reason.INVALID_ARGUMENT, {"field": field, "why": why})


def _refusal(state: State, shard: ShardState, proposal: ChangeShard) -> Rejected | None:
    if proposal.revision not in (None, shard.revision):
        return Rejected(Reason.STALE_EPOCH, {"epoch": str(shard.revision)})
    if shard.witnesses and proposal.replicas not in (0, shard.wanted):
        return _wrong("replicas", "a log with witnesses keeps its number of replicas")
    if shard.shard == HAKEEPER_SHARD and (proposal.name or proposal.labels is not None):
        return _wrong("shard_id", "shard 0 keeps its name and has no labels")
    if shard.shard == HAKEEPER_SHARD and proposal.policy is not None and proposal.policy.learners:
        return _wrong("learners", "shard 0 has none")
    problem = wrong_wish(proposal.replicas, proposal.labels, proposal.policy)
    if problem is not None:
        return problem
    taken = named(state, proposal.name) if proposal.name else None
    if taken is not None and taken is not shard:
        return Rejected(Reason.SHARD_EXISTS, {"shard": str(taken.shard), "name": proposal.name})
    if proposal.policy is not None:
        return limits.refusal(state, shard.shard, proposal.policy)
    return None
