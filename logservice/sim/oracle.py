"""Oracle: what really is, as an all-knowing observer sees it; the checkers compare claims with it.

Kept per shard: every entry that was ever durable anywhere and where, what was applied anywhere,
who led which term, every membership that came to be. It only grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logservice.checksum import crc32
from logservice.entry import Entry, EntryKind
from logservice.ids import Incarnation, ReplicaId, ShardId
from logservice.membership import Membership


class EntryFacts(NamedTuple):
    """What identifies an entry's content, and its place in the order of LSNs."""

    kind: EntryKind
    lsn: int
    record_count: int
    digest: int
    """Of the payload; UNKNOWN where only a witness has the entry."""

    def agrees(self, other: EntryFacts) -> bool:
        """Whether both may be facts of one entry."""
        alike = UNKNOWN in (self.digest, other.digest) or self.digest == other.digest
        return alike and self[:3] == other[:3]


UNKNOWN: Final = -1


def facts_of(entry: Entry, *, witness: bool = False) -> EntryFacts:
    """The facts of an entry in the log of a full replica or of a witness, which has no payloads but
    those of membership changes.
    """
    known = entry.kind is EntryKind.CONFIG or not witness
    digest = crc32(entry.payload) if known else UNKNOWN
    return EntryFacts(entry.kind, entry.lsn, entry.record_count, digest)


@dataclass(slots=True)
class ShardOracle:
    """One shard. Indexes and terms are plain numbers here."""

    entries: dict[tuple[int, int], EntryFacts] = field(default_factory=dict)
    """(index, term) -> content."""
    before: dict[tuple[int, int], int] = field(default_factory=dict)
    """(index, term) -> term of the entry before it."""
    holders: dict[tuple[int, int], set[ReplicaId]] = field(default_factory=dict)
    """(index, term) -> replicas that have had it durable."""
    committed: dict[int, int] = field(default_factory=dict)
    """index -> term, of entries that were applied anywhere."""
    committed_through: int = 0
    leaders: dict[int, ReplicaId] = field(default_factory=dict)
    """term -> leader."""
    memberships: list[Membership] = field(default_factory=list)
    """In the order in which they came to be known; the newest last."""
    truncated_lsn: int = 0
    """The highest truncation LSN that any replica has applied."""
    counted: set[tuple[int, int]] = field(default_factory=set)
    """(index, term) whose majority was looked at."""
    incarnations: dict[ReplicaId, Incarnation] = field(default_factory=dict)
    """replica -> the data directory that speaks for it."""


class Oracle:
    """All shards."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.shards: dict[ShardId, ShardOracle] = {}

    def shard(self, shard: ShardId) -> ShardOracle:
        """What it knows of a shard."""
        found = self.shards.get(shard)
        if found is None:
            found = self.shards[shard] = ShardOracle()
        return found
