"""Choice: which replica's log a shard is rebuilt from, and what is lost with the others.

Theory of operation. Raft's own rule decides: the log whose last entry has the highest term, and of
those the longest. By that rule every entry that was committed in an earlier term, and is known to
be committed by any replica that is left, is in the chosen log: a leader of the last entry's term
had it. What was committed by replicas of which none is left is unknown: at most everything behind
the last LSN of the chosen log. How much that is nobody can say, because a majority acknowledges
without the others.

Evidence may be of two histories: of what one operator made of the last disk, and of what another
one made of a copy of it. Raft's rule says nothing about logs that no leader ever compared. Of one
history, each replica knows those of the other: the membership of whichever log is ahead has the
voters of the one behind, as members or as removed, but for a change that was just under way. Two
recoveries make replicas of which the other one has never heard, by their ids or by their data
directories, and lineages of one parent.

INV-RECOVER-5: where a log that is used, and one that is not, are of two histories of which none
continues the other, nothing is rebuilt: a person names the directories of one.

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
    evidence has a majority, so nothing is lost. `stranger`: of another history than the chosen one.
    """

    shard: ShardId
    found: tuple[Evidence, ...]
    chosen: Evidence | None
    whole_majority: bool
    stranger: Evidence | None = None

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
    if chosen is None:
        return Choice(shard, tuple(found), None, whole_majority=False)
    stranger = next((one for one in found if _strange(chosen, one)), None)
    return Choice(shard, tuple(found), chosen, _majority(chosen, found), stranger)


def _strange(chosen: Evidence, other: Evidence) -> bool:
    """INV-RECOVER-5. What cannot be used tells nothing."""
    newer, older = chosen.lineage, other.lineage
    if newer.number == older.number:
        if newer.id != older.id:
            return True
    elif newer.number == older.number + 1 and newer.parent != older.id:
        return True
    return chosen.membership.is_strange(other.membership)


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
