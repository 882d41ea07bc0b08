"""Members: who is in a shard, for the question who may speak.

Theory of operation. Three words say it, and any of them is enough to be *heard*, which is much less
than to be believed:

- the membership in force here, that of the applied entries;
- the one before it, of the leader alone and until an entry of a later term is applied: a leader
  that was taken out goes on until those that stay know of it (`raft.leading.hand_over`);
- a newer one that HAKeeper names. It is what a replica has that joins and knows nothing yet (the
  command that started it names the members), and one that was away while everybody else was
  replaced.

INV-HEAR-1: a message is heard only from the store and data directory that a known membership binds
its sender to; a binding never changes, so the replica's own membership wins over any other word.
"""

from __future__ import annotations

from logservice.ids import NO_REPLICA, ReplicaId, StoreId, Term
from logservice.membership import Member, Membership
from logservice.nodehost.transport.seam import PeerIdentity


class Members:
    """Those of one shard, as its replica here knows them."""

    def __init__(self, own: Membership, named: Membership) -> None:
        """`own`: in force here; empty while it is not known. `named`: by HAKeeper, if it did."""
        self._own = own
        self._named = named
        self._departing: tuple[Member, ...] = ()
        self._departing_term = Term(0)
        self._known: dict[ReplicaId, Member] = {}
        self._know()

    @property
    def named(self) -> Membership | None:
        """HAKeeper's word when it is newer than the one in force here."""
        newer = self._named.change_epoch > self._own.change_epoch or not self._own.voters
        return self._named if newer and self._named.voters else None

    def get(self, replica: ReplicaId) -> Member | None:
        """Where a member lives; None for who is none."""
        return self._known.get(replica)

    def store_of(self, replica: ReplicaId) -> StoreId | None:
        """The store it lives on."""
        known = self._known.get(replica)
        return known.store_id if known is not None else None

    def have(self, peer: PeerIdentity) -> bool:
        """The store has one of them, in a data directory that it states; not who is departing."""
        named = self.named
        both = (self._own, *([named] if named is not None else []))
        return any(peer.may_speak_for(member) for one in both for member in one.members)

    def changed(self, own: Membership, term: Term, leader: ReplicaId) -> None:
        """Another membership is in force here, since an entry of `term`, which `leader` leads."""
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
        """An entry of `term` is applied: who left in an earlier one leads no more."""
        if self._departing and term > self._departing_term:
            self._departing = ()
            self._know()

    def name(self, membership: Membership) -> bool:
        """Take HAKeeper's word; False when it says nothing newer than what is known."""
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
