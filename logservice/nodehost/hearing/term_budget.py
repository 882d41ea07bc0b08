"""TermBudget: how far, and how often, messages of one member raise the term here.

Theory of operation. A higher term deposes: a leader that hears of one becomes a follower, a
follower forgets its leader. Raft needs that, because a member that was away may honestly have a
higher term. Such a member needs it once: afterwards both are in the same term. So a member's first
rise is free. From then on each rise by a message of the same member costs it a wait, which doubles;
quiet time takes doublings off again.

While a leader is heard of (or this replica leads) the wait begins with many election timeouts and
grows to more, so that one member costs a shard a bounded number of elections an hour. While there
is no leader, terms must be able to move, because an election that split needs the next term. Then a
wait of a few election timeouts lets the others finish an election in between; a member that
campaigns without pause would never let them. During such a wait its pre-votes are not answered
either (`allows`), so an honest candidate keeps its term and asks again.

INV-HEAR-2: by a message that nobody else confirms a term rises by at most TERM_STEP at a time. From
the first term to the largest number there are 2^42 such steps, which the waits make longer than any
cluster lives.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds
from logservice.ids import ReplicaId


@dataclass(slots=True)
class _Spent:
    """What one member spent: when its newest rise was, and how often the wait has doubled."""

    at_s: float
    doublings: int


class TermBudget:
    """The budget of one replica, for all its peers."""

    def __init__(self, election_timeout_s: float) -> None:
        """Nobody has spent anything."""
        self._election_s = election_timeout_s
        self._spent: dict[ReplicaId, _Spent] = {}

    def spend(self, sender: ReplicaId, now_s: float, *, led: bool) -> bool:
        """Whether a message of `sender` may raise the term now; if so the rise is counted."""
        if not self.allows(sender, now_s, led=led):
            return False
        spent = self._spent.get(sender)
        if spent is None:
            self._spent[sender] = _Spent(now_s, 0)
            return True
        quiet = (now_s - spent.at_s) / self._election_s
        forgiven = int(quiet / bounds.TERM_WAIT_ELECTIONS_MAX)
        top = bounds.TERM_WAIT_ELECTIONS_MAX.bit_length() - 1
        spent.doublings = min(max(0, spent.doublings - forgiven) + 1, top)
        spent.at_s = now_s
        return True

    def allows(self, sender: ReplicaId, now_s: float, *, led: bool) -> bool:
        """Whether `spend` would say yes."""
        spent = self._spent.get(sender)
        if spent is None:
            return True
        return (now_s - spent.at_s) / self._election_s >= _wait(spent.doublings, led=led)


def _wait(doublings: int, *, led: bool) -> int:
    """Election timeouts until the next rise."""
    if led:
        return max(1 << doublings, bounds.TERM_WAIT_ELECTIONS_MIN)
    return min(1 << doublings, bounds.TERM_WAIT_ELECTIONS_LEADERLESS)
