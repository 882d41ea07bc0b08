"""Transfers: which candidate may pass by leader stickiness, because the leader asked for it.

Theory of operation. A vote request with the transfer flag is looked at although a leader is alive
(thesis 4.2.3), so whoever may set the flag deposes the leader. Only the leader may: its shell
announces the target to the voters before it sends TimeoutNow (`vouching`), and the flag is honoured
from that target, for the term behind the leader's, for one election timeout. In any other request
it is cleared, and then stickiness applies.

An announcement that is late, or lost, costs that vote; the old leader's own, and that of any other
voter that heard it, are there.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, ReplicaId, Term


class Transfers:
    """As one replica has heard of them."""

    def __init__(self, election_timeout_s: float) -> None:
        """None is announced."""
        self._lasts_s = election_timeout_s
        self._term = Term(0)
        self._target = NO_REPLICA
        self._until_s = 0.0

    def announced(self, term: Term, target: ReplicaId, now_s: float) -> None:
        """The leader of `term` hands over to `target`."""
        self._term, self._target, self._until_s = term, target, now_s + self._lasts_s

    def allowed(self, term: Term, candidate: ReplicaId, now_s: float) -> bool:
        """Whether a campaign for `term` is the announced one."""
        return candidate == self._target and term == self._term + 1 and now_s <= self._until_s
