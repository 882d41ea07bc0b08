"""Beginning: the first record of a replica.

A shard begins as an installed snapshot at index 1, term 1 with the initial membership on every
initial replica; so a replica that joins later with an empty log always gets a snapshot, with the
membership, first.
"""

from __future__ import annotations

from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.membership import Membership
from logservice.snapshot import Snapshot

_FIRST_INDEX, _FIRST_TERM, _FIRST_LSN = Index(1), Term(1), Lsn(1)


def first_update(
    shard: ShardId, replica: ReplicaId, membership: Membership, *, join: bool
) -> Update:
    """What makes the replica durable. `join`: it waits for its leader's snapshot, and until then
    hears the members that are named here.
    """
    if join:
        return Update(shard, replica, bootstrap=Bootstrap(membership, True))
    first = Snapshot(_FIRST_INDEX, _FIRST_TERM, _FIRST_LSN, membership, b"")
    return Update(
        shard,
        replica,
        hard_state=HardState(_FIRST_TERM, NO_REPLICA, _FIRST_INDEX),
        snapshot=InstalledSnapshot(first, Lsn(0)),
        bootstrap=Bootstrap(membership, False),
    )
