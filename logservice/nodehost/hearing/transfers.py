"""Transfers: which candidate may pass by leader stickiness, because the leader asked for it.

Theory of operation. A vote request with the transfer flag is looked at although a leader is alive
(thesis 4.2.3), so whoever may set the flag can depose the leader. Only the leader may have it set:
its shell announces the target to the voters before it sends TimeoutNow (`vouching`). The flag is
honoured from that target, for the term after the leader's, for one election timeout. In any other
request it is cleared, and then stickiness applies.

The candidate's request may be faster than the announcement: both leave the leader at once, and take
different ways. So the newest such request is kept, for an election timeout, and heard when it is
announced (`Hearing`). To Raft that is a delay as any network may make it: the core judges the
request when it is heard, by the term, the vote and the log of then. It is kept no longer, because
its candidate has given that term up by then, and whoever heard it would leave the leader for a term
without a candidate. One small message is kept, whoever sends many. An announcement that is lost
costs the vote of that voter. The votes of the old leader, and of the voters that heard the
announcement, remain.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, ReplicaId, Term


class Transfers:
    """The transfer that one replica was told of last."""

    def __init__(self, election_timeout_s: float) -> None:
        """No transfer is announced yet."""
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
