"""Membership: who is in a shard, in the joint-consensus form, with what makes it safe to change.

The same value is carried by snapshots, the bootstrap record, heartbeats and HAKeeper's state.
`change_epoch` is the index of the entry that produced it: changes are compare-and-swap on it.
`removed` grows only: a removed replica id never comes back. A member is bound to the store *and*
the incarnation of the data directory, so that an emptied disk cannot vote under its old id.

`encode` describes the byte form (little-endian). It is part of the snapshot format, so changing it
is a format change.

Python's collector does not look at memberships (`gc=False`): HAKeeper keeps one for each of 10 000
logs, and none leads back to itself. What is equal in them is one object where that is cheap: store
ids, incarnations, and the ids of replicas that are named twice.
"""

from __future__ import annotations

import functools
import struct
import sys
from typing import Final

from msgspec import Struct

from logservice import bounds
from logservice.ids import Incarnation, Index, ReplicaId, StoreId

_HEAD = struct.Struct("<BBQ7I")
_ID = struct.Struct("<Q")
_MEMBER = struct.Struct("<QQH")
_VERSION = 1


class MembershipCorrupt(ValueError):
    """The bytes are not a membership."""


class Member(Struct, frozen=True, gc=False):
    """Where one replica lives."""

    replica_id: ReplicaId
    store_id: StoreId
    incarnation: Incarnation


class Membership(Struct, frozen=True, gc=False):
    """Replica ids are sorted tuples without repeats; `members` is sorted by replica id.

    voters: the incoming (or only) majority; outgoing: the other half while a joint change is under
    way, else empty; learners_next: voters of `outgoing` that become learners when it ends;
    witnesses: the replicas that store no records: voters, learners that are to be such, and removed
    ones (no log shard has any unless its guarantee is waived).
    """

    voters: tuple[ReplicaId, ...] = ()
    outgoing: tuple[ReplicaId, ...] = ()
    learners: tuple[ReplicaId, ...] = ()
    learners_next: tuple[ReplicaId, ...] = ()
    witnesses: tuple[ReplicaId, ...] = ()
    removed: tuple[ReplicaId, ...] = ()
    auto_leave: bool = False
    change_epoch: Index = Index(0)
    members: tuple[Member, ...] = ()

    @property
    def joint(self) -> bool:
        """True while two majorities must agree."""
        return bool(self.outgoing)

    @property
    def full_voters(self) -> tuple[ReplicaId, ...]:
        """The voters that store records. They alone may lead."""
        if not self.witnesses:
            return self.voters
        return tuple(voter for voter in self.voters if voter not in self.witnesses)

    def contains(self, replica_id: ReplicaId) -> bool:
        """Voter (of either half) or learner."""
        return (
            replica_id in self.voters
            or replica_id in self.outgoing
            or replica_id in self.learners
            or replica_id in self.learners_next
        )

    def others(self, besides: ReplicaId) -> tuple[ReplicaId, ...]:
        """Voters and learners besides the replica `besides`, which sends to them when it leads. A
        joint membership has another half, too, which is not among them.
        """
        return tuple(one for one in (*self.voters, *self.learners) if one != besides)

    def member(self, replica_id: ReplicaId) -> Member | None:
        """The address record of a replica, None when unknown."""
        for member in self.members:
            if member.replica_id == replica_id:
                return member
        return None

    def is_strange(self, other: Membership) -> bool:
        """Whether no voter of `other` is, or ever was, a member here. Two memberships of one
        history have that in common only when many changes lie between them. One id in two data
        directories is two replicas: of histories that parted before either got it.
        """
        voters = {*other.voters, *other.outgoing}
        return bool(voters) and not any(self._knows(one, other.member(one)) for one in voters)

    def _knows(self, replica_id: ReplicaId, theirs: Member | None) -> bool:
        ours = self.member(replica_id)
        if ours is None or theirs is None:
            return ours is not None or replica_id in self.removed
        return ours.incarnation == theirs.incarnation

    def encode(self) -> bytes:
        """``version u8, auto_leave u8, epoch u64, 7 list lengths u32``, then six id lists as u64
        and the members as ``replica u64, incarnation u64, length u16, store id utf-8``.
        """
        lists = (
            self.voters,
            self.outgoing,
            self.learners,
            self.learners_next,
            self.witnesses,
            self.removed,
        )
        parts = [
            _HEAD.pack(
                _VERSION, self.auto_leave, self.change_epoch, *map(len, lists), len(self.members)
            )
        ]
        parts += [_ID.pack(replica_id) for ids in lists for replica_id in ids]
        for member in self.members:
            name = member.store_id.encode()
            parts.append(_MEMBER.pack(member.replica_id, member.incarnation, len(name)) + name)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes) -> Membership:
        """Inverse of `encode`; raises MembershipCorrupt for anything else."""
        try:
            version, auto_leave, epoch, *lengths = _HEAD.unpack_from(data)
            if version != _VERSION or auto_leave > 1:
                raise MembershipCorrupt(f"membership version {version}")
            position = _HEAD.size
            lists: list[tuple[ReplicaId, ...]] = []
            for length in lengths[:6]:
                if length > (len(data) - position) // _ID.size:
                    raise MembershipCorrupt("membership list longer than its bytes")
                ids = struct.unpack_from(f"<{length}Q", data, position)
                lists.append(tuple(ReplicaId(replica_id) for replica_id in ids))
                position += length * _ID.size
            members: list[Member] = []
            named = {one: one for ids in lists for one in ids}
            for _ in range(lengths[6]):
                replica_id, incarnation, size = _MEMBER.unpack_from(data, position)
                position += _MEMBER.size
                name = data[position : position + size]
                if len(name) != size:
                    raise MembershipCorrupt("membership store id cut short")
                position += size
                members.append(
                    Member(
                        named.get(replica_id, ReplicaId(replica_id)),
                        StoreId(sys.intern(name.decode())),
                        _shared(Incarnation(incarnation)),
                    )
                )
        except (struct.error, UnicodeDecodeError) as error:
            raise MembershipCorrupt(str(error)) from error
        if position != len(data):
            raise MembershipCorrupt("membership has trailing bytes")
        voters, outgoing, learners, learners_next, witnesses, removed = lists
        return cls(
            voters=voters,
            outgoing=outgoing,
            learners=learners,
            learners_next=learners_next,
            witnesses=witnesses,
            removed=removed,
            auto_leave=bool(auto_leave),
            change_epoch=Index(epoch),
            members=tuple(members),
        )


@functools.lru_cache(maxsize=bounds.HAKEEPER_STORES_MAX * bounds.DATA_DIRECTORIES_MAX)
def _shared(incarnation: Incarnation) -> Incarnation:
    """The equal one that was there first."""
    return incarnation


@functools.lru_cache(maxsize=bounds.HAKEEPER_SHARDS_MAX)
def shared(data: bytes) -> Membership:
    """`Membership.decode` with a cache: HAKeeper's row of a log and the log's replica here have the
    same membership, and so share it.
    """
    return Membership.decode(data)


def decoded(membership: bytes) -> Membership:
    """The same, and an empty one of no bytes. HAKeeper's state holds bytes, and it asks often."""
    return shared(membership) if membership else _NONE


_NONE: Final = Membership()
