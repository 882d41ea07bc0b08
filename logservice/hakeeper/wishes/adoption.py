"""AdoptShard: a log that lost its majority goes on by force, while HAKeeper lives.

The tool has written a new replica of the log (`nodehost.recover`), and a person names its
membership. It is judged by what HAKeeper knows: while a majority of the log's voters is up, nothing
is lost, and to adopt another membership would give up what they have.
"""

from __future__ import annotations

from logservice_wire.errors import Reason

from logservice.hakeeper.commands.verbs import AdoptShard
from logservice.hakeeper.repair.safety import alive
from logservice.hakeeper.state import State
from logservice.hakeeper.stores.health import tolerance
from logservice.hakeeper.stores.recovered import alone, take_over
from logservice.hakeeper.tombstones import is_deleted
from logservice.hakeeper.wishes.refusal import refused, wrong
from logservice.ids import HAKEEPER_SHARD
from logservice.outcome import Applied, Outcome, Rejected


def apply_adopt(state: State, verb: AdoptShard) -> Outcome:
    """Rejected: SHARD_NOT_FOUND, SHARD_DELETED, INVALID_ARGUMENT for shard 0 and for a membership
    that no recovery makes, VERB_REFUSED while the log has a majority, or went on by force later.
    """
    if verb.shard == HAKEEPER_SHARD:
        return wrong("shard_id", "shard 0 is recovered by the tool alone")
    if is_deleted(state, verb.shard):
        return Rejected(Reason.SHARD_DELETED, {"shard": str(verb.shard)})
    shard = state.shards.get(verb.shard)
    if shard is None:
        return Rejected(Reason.SHARD_NOT_FOUND, {"shard": str(verb.shard)})
    members = alone(verb.membership)
    if members is None:
        return wrong("membership", "no recovery makes it: one voter and nobody else")
    if members.voters[0] == shard.recovered:
        known = shard.members.member(shard.recovered)
        if known is None or known == members.members[0]:
            return Applied(duplicate=True)
        return refused("another replica with that id was adopted: write the log once more")
    others = (*shard.members.voters, *shard.members.learners, *shard.members.removed)
    if members.voters[0] < max((shard.recovered, *others)):
        return refused("the log has newer replicas than the one that was rebuilt")
    if tolerance(shard.members, alive(state, shard)) >= 0:
        return refused("a majority of its voters is up, so it goes on by itself: stop them first")
    take_over(state, shard, members)
    return Applied()
