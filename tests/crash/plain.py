"""The oracle: what a store must answer, kept in plain dictionaries.

It knows nothing of files. `PlainStore.apply` takes the same updates as `LogDb.commit`. `picture`
gives what `look` reads from a store, so that the two can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from logservice.entry import Entry
from logservice.ids import ReplicaId, ShardId
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.logdb.log_db import LogDb
from tests.logdb.helpers import all_entries

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a reader sees of one replica. The commit index is not part of it: it may be lost."""

    term: int
    vote: int
    bootstrap: Bootstrap | None
    installed: InstalledSnapshot | None
    first_index: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """What a reader sees of a store."""

    removed: frozenset[Key]
    replicas: dict[Key, Seen]
    commits: dict[Key, int] = field(default_factory=dict, compare=False)


@dataclass
class PlainReplica:
    """One replica."""

    term: int = 0
    vote: int = 0
    commit: int = 0
    bootstrap: Bootstrap | None = None
    installed: InstalledSnapshot | None = None
    floor: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)

    def apply(self, update: Update) -> None:
        if update.bootstrap is not None:
            self.bootstrap = update.bootstrap
        if update.snapshot is not None:
            index = update.snapshot.snapshot.index
            if update.reset_log:
                self.entries.clear()
            if update.reset_log or index >= self.floor:
                self.installed = update.snapshot
                self.floor = index
                self.entries = {i: e for i, e in self.entries.items() if i > index}
        for entry in update.entries:
            self.entries = {i: e for i, e in self.entries.items() if i < entry.index}
            self.entries[entry.index] = entry
        if update.hard_state is not None:
            hard = update.hard_state
            self.term, self.vote, self.commit = hard.term, hard.vote, hard.commit

    @property
    def last(self) -> int:
        """Index of the last entry; the floor when there is none."""
        return max(self.entries, default=self.floor)


@dataclass
class PlainStore:
    """All replicas of a store."""

    replicas: dict[Key, PlainReplica] = field(default_factory=dict)
    removed: set[Key] = field(default_factory=set)

    def replica(self, key: Key) -> PlainReplica:
        """A replica; an empty one if nothing was written yet."""
        return self.replicas.get(key) or PlainReplica()

    def apply(self, updates: Iterable[Update]) -> None:
        """Do what `LogDb.commit` does."""
        for update in updates:
            key = (int(update.shard), int(update.replica))
            if update.remove:
                self.replicas.pop(key, None)
                self.removed.add(key)
            else:
                self.replicas.setdefault(key, PlainReplica()).apply(update)

    def picture(self) -> Picture:
        """What a reader must see of the store."""
        replicas = {
            key: Seen(
                found.term,
                found.vote,
                found.bootstrap,
                found.installed,
                found.floor + 1,
                tuple(found.entries[index] for index in sorted(found.entries)),
            )
            for key, found in self.replicas.items()
        }
        commits = {key: found.commit for key, found in self.replicas.items()}
        return Picture(frozenset(self.removed), replicas, commits)


def look(db: LogDb, *, may_be_faulty: bool = False) -> Picture:
    """What a reader of the store sees. A faulty replica is an error, or left out if it may be."""
    replicas, commits = {}, {}
    for shard, replica in db.replicas():
        log = db.log(ShardId(shard), ReplicaId(replica))
        assert may_be_faulty or not log.faulty, log.faulty
        if log.faulty:
            continue
        hard = log.hard_state
        replicas[int(shard), int(replica)] = Seen(
            hard.term, hard.vote, log.bootstrap, log.installed, log.first_index(), all_entries(log)
        )
        commits[int(shard), int(replica)] = int(hard.commit)
    removed = frozenset((int(shard), int(replica)) for shard, replica in db.removed())
    return Picture(removed, replicas, commits)
