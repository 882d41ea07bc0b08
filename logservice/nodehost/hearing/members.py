"""Members: who is in a shard, and so may speak for it.

Theory of operation. There are three memberships, and being in any of them is enough to be *heard*,
which is much less than to be believed:

- the membership in force here, which is that of the applied entries;
- the one before it, for the leader alone and until an entry of a later term is applied: a leader
  that was taken out goes on until those that stay know of it (`raft.leading.hand_over`);
- a newer one that HAKeeper names. A replica that joins and knows nothing yet has only that (the
  command that started it names the members), and so has a replica that was away while everybody
  else was replaced.

INV-HEAR-1: a message is heard only from the store and data directory that a known membership binds
its sender to; a binding never changes, so the replica's own membership wins over the others.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, ReplicaId, StoreId, Term
from logservice.membership import Member, Membership
from logservice.nodehost.transport.seam import PeerIdentity


class Members:
    """The members of one shard, as its replica here knows them."""

    def __init__(self, own: Membership, named: Membership) -> None:
        """`own` is in force here, and empty while that is not known. `named` is the one that
        HAKeeper named, and empty if it named none.
        """
        self._own = own
        self._named = named
        self._departing: tuple[Member, ...] = ()
        self._departing_term = Term(0)
        self._known: dict[ReplicaId, Member] = {}
        self._know()

    @property
    def named(self) -> Membership | None:
        """The membership that HAKeeper named, when it is newer than the one in force here."""
        newer = self._named.change_epoch > self._own.change_epoch or not self._own.voters
        return self._named if newer and self._named.voters else None

    def get(self, replica: ReplicaId) -> Member | None:
        """Where a member lives; None for a replica that is no member."""
        return self._known.get(replica)

    def store_of(self, replica: ReplicaId) -> StoreId | None:
        """The store that `replica` lives on, None when it is no member."""
        known = self._known.get(replica)
        return known.store_id if known is not None else None

    def have(self, peer: PeerIdentity) -> bool:
        """Whether the store has a member in a data directory that it states. A leader that was
        taken out does not count.
        """
        named = self.named
        both = (self._own, *([named] if named is not None else []))
        return any(peer.may_speak_for(member) for one in both for member in one.members)

    def changed(self, own: Membership, term: Term, leader: ReplicaId) -> None:
        """`own` is in force here now, by an entry of `term`, which `leader` leads."""
        if own is self._own:
            return
        self._departing = tuple(
            member
            for member in self._own.members
            if not own.contains(member.replica_id) and leader in (member.replica_id, NO_REPLICA)
        )
        self._departing_term = term
        self._own = own
        self._know()

    def applied(self, term: Term) -> None:
        """An entry of `term` is applied: a leader that left in an earlier term leads no more."""
        if self._departing and term > self._departing_term:
            self._departing = ()
            self._know()

    def name(self, membership: Membership) -> bool:
        """Take the membership that HAKeeper names; False when it is no newer than what is known."""
        newest = max(self._own.change_epoch, self._named.change_epoch)
        if membership.change_epoch <= newest or not membership.voters:
            return False
        self._named = membership
        self._know()
        return True

    def _know(self) -> None:
        named = self.named
        known: dict[ReplicaId, Member] = {}
        for members in (named.members if named is not None else (), self._departing):
            known.update((member.replica_id, member) for member in members)
        known.update((member.replica_id, member) for member in self._own.members)
        self._known = known
