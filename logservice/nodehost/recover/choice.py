"""Choice: which replica's log a shard is rebuilt from, and what is lost with the others.

Theory of operation. Raft's own rule decides: the log whose last entry has the highest term, and of
those the longest. By that rule every entry that was committed in an earlier term, and is known to
be committed by any replica that is left, is in the chosen log: a leader of the last entry's term
had it. What was committed by replicas of which none is left is unknown: at most everything behind
the last LSN of the chosen log. How much that is nobody can say, because a majority acknowledges
without the others.

INV-RECOVER-2: a log is rebuilt only from the longest usable log of the evidence that is of the
newest lineage in it, and never while the evidence has a majority of the shard's voters: then the
stores are to be started instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from logservice.ids import Lsn, ReplicaId, ShardId, Term
from logservice.membership import Membership
from logservice.nodehost.recover.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Choice:
    """What is known of one shard. `chosen`: None when no log can be used. `whole_majority`: the
    evidence has a majority, so nothing is lost.
    """

    shard: ShardId
    found: tuple[Evidence, ...]
    chosen: Evidence | None
    whole_majority: bool

    @property
    def last_lsn(self) -> Lsn:
        """The last LSN that is kept."""
        return Lsn(self.chosen.next_lsn - 1) if self.chosen is not None else Lsn(0)

    @property
    def term(self) -> Term:
        """The highest term that any of them has seen."""
        return max(max(one.term, one.last_term) for one in self.found)

    @property
    def known_lost(self) -> Lsn:
        """The last LSN that is known to have been given out, by a witness's positions or by a log
        that is not used; at or below `last_lsn` when none is.
        """
        return Lsn(max(one.next_lsn for one in self.found) - 1)


def choose(evidence: Iterable[Evidence]) -> list[Choice]:
    """One choice per shard, in their order."""
    shards: dict[ShardId, list[Evidence]] = {}
    for one in evidence:
        shards.setdefault(one.shard, []).append(one)
    return [_choose(shard, shards[shard]) for shard in sorted(shards)]


def _choose(shard: ShardId, found: list[Evidence]) -> Choice:
    usable = [one for one in found if one.usable]
    chosen = max(
        usable,
        key=lambda one: (one.lineage.number, one.last_term, one.last_index, one.commit),
        default=None,
    )
    return Choice(shard, tuple(found), chosen, chosen is not None and _majority(chosen, found))


def _majority(chosen: Evidence, found: list[Evidence]) -> bool:
    membership = chosen.membership
    here = {
        one.replica for one in found if one.usable and not one.damage and _is_bound(membership, one)
    }
    return all(
        len(here & set(voters)) > len(voters) // 2
        for voters in (membership.voters, membership.outgoing)
        if voters
    )


def _is_bound(membership: Membership, one: Evidence) -> bool:
    member = membership.member(ReplicaId(one.replica))
    return member is not None and member.incarnation == one.identity.incarnation
