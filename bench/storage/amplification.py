"""Write amplification of log storage: bytes written for each byte that somebody wanted written.

    python -m bench.storage.amplification

The part above one is copies that garbage collection makes, and rows of the derived index. It
depends on who truncates when, and not on the disk. So the store is in memory, nothing is timed, and
the figures are the same on every machine. A segment is emptied by copying when at most
`rewrite_live_ratio` of it is alive, an old one at `rewrite_old_live_ratio`. With a ratio of r, each
byte that is freed costs at most r / (1 - r) copied bytes. The patterns try to reach that.

The second table is of deletions: some of the logs, evenly mixed with the others, are removed at
once. It says what the disk holds before and after, and what that cost in copies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console
from rich.table import Table

from logservice.entry import Entry, EntryKind
from logservice.ids import ClusterId, Incarnation, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.logdb.space.stats import LogDbStats
from logservice.membership import Member, Membership
from logservice.snapshot import Snapshot

SHARDS = 48
PAYLOAD = b"x" * 4096
SEGMENT_BYTES = 1 << 20
DELETION_SEGMENT_BYTES = 8 << 20
"""Copies are written half a MiB at a time, and a segment ends before a group that does not fit."""

GROUPS_PER_COLLECTION = 5
"""Groups between two collections: they fill about a segment."""

MEMBERS = Membership(
    voters=(ReplicaId(1),), members=(Member(ReplicaId(1), StoreId("bench"), Incarnation(1)),)
)

Kept = Callable[[int, int], int]
"""Gives, from the shard and the groups so far, how many of its newest entries a truncation leaves.
"""


@dataclass(frozen=True)
class Pattern:
    """A pattern of truncation: who truncates when."""

    name: str
    kept: Kept


def _random_kept(most: int) -> Kept:
    chance = random.Random(1)
    return lambda shard, groups: chance.randrange(most)


PATTERNS = (
    Pattern("all keep the same", lambda shard, groups: 40),
    Pattern("each keeps another length", lambda shard, groups: 5 * shard),
    Pattern("any length, another each time", _random_kept(400)),
    Pattern("one shard of 48 keeps all", lambda shard, groups: groups if shard == 1 else 20),
    Pattern("a fifth keeps 50 times as much", lambda shard, groups: 500 if shard % 5 == 0 else 10),
    Pattern(
        "nearly half keeps 50 times as much", lambda shard, groups: (10, 500)[shard * 9 % 20 < 9]
    ),
)


def measure(pattern: Pattern, groups: int) -> LogDbStats:
    """Write `groups` groups with an entry of each shard, truncating and collecting on the way."""
    db = _open(LogDbOptions(SEGMENT_BYTES, ballast_bytes=0, reserve_bytes=0))
    for number in range(1, groups + 1):
        db.commit([_appended(shard, number) for shard in range(1, SHARDS + 1)])
        if number % GROUPS_PER_COLLECTION == 0:
            for shard in range(1, SHARDS + 1):
                index = number - pattern.kept(shard, number)
                if index >= db.log(ShardId(shard), ReplicaId(1)).first_index():
                    db.commit([_truncated(shard, index)])
            while db.collect_garbage().unlinked:
                pass
    return db.stats()


@dataclass(frozen=True)
class Deleted:
    """What deleting some of the logs did; bytes."""

    before: int
    after: int
    copied: int


def delete(logs: int, groups: int, *, paid: bool = True) -> Deleted:
    """Write `groups` groups with an entry of each shard, remove `logs` shards, and collect.

    paid: whether removals pay for copies; else by the live ratios alone.
    """
    options = LogDbOptions(DELETION_SEGMENT_BYTES, ballast_bytes=0, reserve_bytes=0)
    db = _open(options if paid else replace(options, rewrite_for_removed=0))
    for number in range(1, groups + 1):
        db.commit([_appended(shard, number) for shard in range(1, SHARDS + 1)])
    before = db.stats().segment_bytes
    for shard in range(1, logs + 1):
        db.commit([Update(ShardId(shard), ReplicaId(1), remove=True)])
    while db.collect_garbage().unlinked:
        pass
    stats = db.stats()
    return Deleted(before, stats.segment_bytes, stats.bytes_rewritten)


def _open(options: LogDbOptions) -> LogDb:
    vfs = MemoryVfs()
    identity = DataDirectory.open(
        "/bench", vfs=vfs, cluster_id=ClusterId("bench"), store_id=StoreId("bench")
    )
    return LogDb.open("/bench", identity=identity, vfs=vfs, kv=MemoryKvEngine(), options=options)


def _appended(shard: int, number: int) -> Update:
    entry = Entry(Term(1), Index(number), Lsn(number), 1, EntryKind.BLOCK, PAYLOAD)
    return Update(ShardId(shard), ReplicaId(1), entries=(entry,))


def _truncated(shard: int, index: int) -> Update:
    snapshot = Snapshot(Index(index), Term(1), Lsn(index + 1), MEMBERS, b"")
    return Update(ShardId(shard), ReplicaId(1), snapshot=InstalledSnapshot(snapshot, Lsn(index)))


def table(groups: int) -> Table:
    """A row per pattern."""
    made = Table(title=f"write amplification, {SHARDS} shards, {groups} groups")
    made.add_column("pattern")
    for column in ("written, MiB", "copied, MiB", "index, MiB", "amplification", "live / on disk"):
        made.add_column(column, justify="right")
    for pattern in PATTERNS:
        stats = measure(pattern, groups)
        mib = [
            f"{figure / (1 << 20):.1f}"
            for figure in (stats.bytes_written, stats.bytes_rewritten, stats.index_bytes_written)
        ]
        share = stats.live_bytes / (stats.live_bytes + stats.garbage_bytes)
        made.add_row(pattern.name, *mib, f"{stats.write_amplification:.2f}", f"{share:.0%}")
    return made


def deletions(groups: int) -> Table:
    """A row for each number of deleted logs."""
    made = Table(title=f"deletion, {SHARDS} shards, {groups} groups")
    made.add_column("deleted logs")
    for column in ("before, MiB", "after, MiB", "copied, MiB", "after by live ratios alone, MiB"):
        made.add_column(column, justify="right")
    for logs in (SHARDS // 8, SHARDS // 4, SHARDS // 2, SHARDS * 3 // 4):
        now, alone = delete(logs, groups), delete(logs, groups, paid=False)
        figures = (now.before, now.after, now.copied, alone.after)
        made.add_row(f"{logs} of {SHARDS}", *(f"{figure / (1 << 20):.1f}" for figure in figures))
    return made


if __name__ == "__main__":
    console = Console(width=120)
    console.print(table(2000))
    console.print(deletions(500))
