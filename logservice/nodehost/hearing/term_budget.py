"""TermBudget: how far, and how often, the word of one member raises the term here.

Theory of operation. A higher term deposes: a leader that hears of one follows, a follower forgets
its leader. Raft needs that, because a member that was away may have it honestly, and then once is
enough: afterwards both are in the same term. So the first time is free, and from then on each rise
by the word of the same member costs it a wait, which doubles; quiet time takes doublings off again.

While a leader is heard of (or this replica leads) the wait begins with many election timeouts and
grows to more, so that one member costs a shard a bounded number of elections an hour. While none
is, terms must be able to move, because an election that split needs the next term; a wait of a few
election timeouts is enough for the others to finish one in between, which a member that calls
without pause would never let them.

INV-HEAR-2: by a word that nobody else confirms a term rises by at most TERM_STEP at a time. From
the first term to the largest number that is 2^42 such steps, which the waits make longer than any
cluster lives.
"""

from __future__ import annotations

from dataclasses import dataclass

from logservice import bounds
from logservice.ids import ReplicaId


@dataclass(slots=True)
class _Spent:
    """By one member. at_s: the newest rise; doublings: of the wait behind it."""

    at_s: float
    doublings: int


class TermBudget:
    """Of one replica, for all its peers."""

    def __init__(self, election_timeout_s: float) -> None:
        """Nobody has spent anything."""
        self._election_s = election_timeout_s
        self._spent: dict[ReplicaId, _Spent] = {}

    def spend(self, sender: ReplicaId, now_s: float, *, led: bool) -> bool:
        """Whether the word of `sender` may raise the term now; if so it is counted."""
        spent = self._spent.get(sender)
        if spent is None:
            self._spent[sender] = _Spent(now_s, 0)
            return True
        quiet = (now_s - spent.at_s) / self._election_s
        if quiet < _wait(spent.doublings, led=led):
            return False
        forgiven = int(quiet / bounds.TERM_WAIT_ELECTIONS_MAX)
        top = bounds.TERM_WAIT_ELECTIONS_MAX.bit_length() - 1
        spent.doublings = min(max(0, spent.doublings - forgiven) + 1, top)
        spent.at_s = now_s
        return True


def _wait(doublings: int, *, led: bool) -> int:
    """Election timeouts until the next rise."""
    if led:
        return max(1 << doublings, bounds.TERM_WAIT_ELECTIONS_MIN)
    return min(1 << doublings, bounds.TERM_WAIT_ELECTIONS_LEADERLESS)
