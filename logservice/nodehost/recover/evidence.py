"""Evidence: what one replica has on the disk of a store that does not run.

Theory of operation. The log is read from its installed snapshot on, and applied once more by the
state machine of the shard, so that what is shown (writer's epoch, truncation LSN, membership) is
what the replica would have if all of its entries were committed. Which of them were is not known:
the newest commit index on the disk may be old. What counts is therefore the last entry that can be
read. Behind the first one that cannot, or that does not continue the one before, nothing is used.

INV-RECOVER-1: nothing is written into a directory that is read here, and none is read that a store
has open (`logdb.recovery.offline`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from logservice_wire.errors import Halted

from logservice.entry import Entry, EntryKind
from logservice.hakeeper.rsm import HAKeeperRsm
from logservice.ids import HAKEEPER_SHARD, Index, Lsn, ReplicaId, ShardId, Term
from logservice.invariants import InvariantViolation
from logservice.lineage import FIRST, Lineage
from logservice.logdb.io.data_directory import Identity
from logservice.logdb.io.vfs import Vfs
from logservice.logdb.recovery.offline import StoredLog, stored_logs
from logservice.membership import Membership
from logservice.nodehost.hearing.contents import state_problem
from logservice.raft.membership.change import membership_after
from logservice.rsm.log_rsm import LogRsm
from logservice.sealing_keys import Keys
from logservice.snapshot import Snapshot

Progress = Callable[[str], None]
"""Told, in words, what is being done."""

_ENTRIES_PER_WORD = 100_000
"""Entries between two reports of progress: a few seconds of reading."""


class Unusable(ValueError):
    """The log cannot be used from here on; the text says why."""


class Walk:
    """The state of a shard behind an installed snapshot, moved on entry by entry."""

    def __init__(self, shard: ShardId, base: Snapshot) -> None:
        """Raises Unusable for a state that no replica would start from."""
        self.machine: LogRsm | HAKeeperRsm = HAKeeperRsm() if shard == HAKEEPER_SHARD else LogRsm()
        if problem := state_problem(base, self.machine):
            raise Unusable(f"the installed snapshot: {problem}")
        self.machine.recover_from_snapshot(base.state)
        self.index: Index = base.index
        self.term: Term = base.term
        self.next_lsn: Lsn = base.next_lsn
        self.membership: Membership = base.membership

    def take(self, entry: Entry) -> None:
        """Apply the next entry. Raises Unusable."""
        if entry.index != self.index + 1 or entry.lsn != self.next_lsn or entry.term < self.term:
            raise Unusable(f"entry {entry.index} does not continue what is before it")
        try:
            self.machine.update(entry)
        except (InvariantViolation, Exception) as error:
            raise Unusable(f"entry {entry.index} cannot be applied: {error!r}") from error
        if entry.kind is EntryKind.CONFIG:
            self.membership = membership_after(self.membership, entry)
        self.index, self.term, self.next_lsn = entry.index, entry.term, entry.next_lsn


@dataclass(frozen=True, slots=True)
class Evidence:
    """One replica. term: of its hard state. last_index, last_term, next_lsn: behind the last entry
    that can be used. walk: the state there; None when nothing can be used. damage: what cannot be
    read or trusted, empty for a log that is whole.
    """

    directory: str
    identity: Identity
    shard: ShardId
    replica: ReplicaId
    witness: bool
    term: Term
    last_index: Index
    last_term: Term
    next_lsn: Lsn
    commit: Index
    installed: Index
    walk: Walk | None
    damage: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether a shard can be rebuilt from it: a witness has no records."""
        return self.walk is not None and not self.witness

    @property
    def membership(self) -> Membership:
        """The membership at its end."""
        return self.walk.membership if self.walk is not None else Membership()

    @property
    def log(self) -> LogRsm | None:
        """The state of a log shard at its end."""
        machine = self.walk.machine if self.walk is not None else None
        return machine if isinstance(machine, LogRsm) else None

    @property
    def lineage(self) -> Lineage:
        """The history that it is of."""
        return self.log.state.lineage if self.log is not None else FIRST

    @property
    def hakeeper(self) -> HAKeeperRsm | None:
        """The state of shard 0 at its end."""
        machine = self.walk.machine if self.walk is not None else None
        return machine if isinstance(machine, HAKeeperRsm) else None


def read_directory(
    vfs: Vfs, path: str, progress: Progress, keys: Keys | None = None
) -> list[Evidence]:
    """What every replica in the data directory has. Raises as `offline.check`; KeysMissing when an
    entry is encrypted with a key that is not among `keys`.
    """
    with stored_logs(vfs, path, keys) as (identity, logs):
        return [_read(path, identity, log, progress) for log in logs]


def usable_entries(log: StoredLog, through: Index) -> Iterator[Entry]:
    """The entries of the log up to `through`, which a `Walk` has taken. Raises Unusable when one
    cannot be read any more.
    """
    at = log.snapshot.index if log.snapshot is not None else Index(0)
    items = log.entries()
    while at < through:
        item = next(items, "the log ends before what was found in it")
        if isinstance(item, str):
            raise Unusable(item)
        yield item
        at = item.index


def _read(path: str, identity: Identity, log: StoredLog, progress: Progress) -> Evidence:
    shard, replica = ShardId(log.shard), ReplicaId(log.replica)
    progress(f"{path}: shard {shard} replica {replica}, entries up to {log.last_index}")
    damage = [log.faulty] if log.faulty else []
    walk: Walk | None = None
    witness_at: tuple[Index, Term, Lsn] | None = None
    base = log.snapshot
    if base is None:
        damage.append("it has no installed snapshot: it never began, or lost it")
    elif log.witness:
        witness_at = (base.index, base.term, base.next_lsn)
    else:
        try:
            walk = Walk(shard, base)
        except Unusable as error:
            damage.append(str(error))
    if base is not None and (walk is not None or witness_at is not None):
        try:
            for entry in _whole(log.entries()):
                if walk is not None:
                    walk.take(entry)
                else:
                    witness_at = (entry.index, entry.term, entry.next_lsn)
                if entry.index % _ENTRIES_PER_WORD == 0:
                    progress(f"{path}: shard {shard}, read up to entry {entry.index}")
        except (Unusable, Halted) as error:
            damage.append(str(error))
    at = (walk.index, walk.term, walk.next_lsn) if walk is not None else witness_at
    last_index, last_term, next_lsn = at if at is not None else (Index(0), Term(0), Lsn(0))
    return Evidence(
        path,
        identity,
        shard,
        replica,
        log.witness,
        log.hard_state.term,
        last_index,
        last_term,
        next_lsn,
        log.commit,
        base.index if base is not None else Index(0),
        walk,
        tuple(damage),
    )


def _whole(items: Iterator[Entry | str]) -> Iterator[Entry]:
    for item in items:
        if isinstance(item, str):
            raise Unusable(item)
        yield item
