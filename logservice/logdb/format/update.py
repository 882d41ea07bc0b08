"""Update: what one replica wants durable in a commit group."""

from __future__ import annotations

from logservice_wire.value import value

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import Lsn, ReplicaId, ShardId
from logservice.logdb.format.fault import Fault
from logservice.membership import Membership
from logservice.snapshot import Snapshot


@value
class InstalledSnapshot:
    """The snapshot behind which the log is compacted, with its justification.

    `truncation_lsn` is the truncation LSN at install (invariant T1: snapshot.next_lsn - 1 <= it);
    after a restart the RSM may know an older one until it has caught up. For shard 0, which has no
    user records, and for a snapshot received from the leader, it is the sender's.
    """

    snapshot: Snapshot
    truncation_lsn: Lsn


@value
class Bootstrap:
    """Written once per replica before its first start. `join`: wait for the leader's snapshot."""

    membership: Membership
    join: bool

    def of_witness(self, replica: ReplicaId) -> bool:
        """Whether `replica`, whose record this is, stores no records."""
        return replica in self.membership.witnesses


@value
class Update:
    """All fields optional; those given become durable together, or not at all.

    entries: replace everything at and after the first one's index. snapshot: entries at or below
    its index go; if `reset_log` (a snapshot received from the leader) all entries go. remove:
    forget the replica and leave a tombstone: this replica id never starts here again. repair: the
    fault of the replica, for which these are committed entries of a peer, or its snapshot. This is
    the one case in which committed entries are written over. The update that completes the repair
    takes the fault away, unless more damage was found meanwhile.
    """

    shard: ShardId
    replica: ReplicaId
    hard_state: HardState | None = None
    entries: tuple[Entry, ...] = ()
    snapshot: InstalledSnapshot | None = None
    reset_log: bool = False
    bootstrap: Bootstrap | None = None
    remove: bool = False
    repair: Fault | None = None


def merge(earlier: Update, later: Update) -> Update | None:
    """One update of a replica with the effect of the two, one after the other; None if there is no
    such update.

    Only entries and hard states merge: a snapshot, a bootstrap or a removal keeps its own group, in
    order. Entries of `later` replace those of `earlier` at and after their first index.
    """
    for update in (earlier, later):
        if update.snapshot is not None or update.bootstrap is not None:
            return None
        if update.remove or update.repair:
            return None
    entries = later.entries
    if not entries:
        entries = earlier.entries
    elif earlier.entries:
        keep = entries[0].index - earlier.entries[0].index
        if keep > len(earlier.entries):
            return None
        entries = earlier.entries[: max(keep, 0)] + entries
    return Update(
        earlier.shard,
        earlier.replica,
        hard_state=later.hard_state or earlier.hard_state,
        entries=entries,
    )
