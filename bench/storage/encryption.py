"""Encrypted segments beside plain ones: commit groups, and reading them back.

    python -m bench.storage.encryption DIRECTORY [--rounds 7] [--mib 64]

Two stores, of which one encrypts its entries, take the same commit groups in turn: ten entries of
100 bytes, of 4 KiB, of 64 KiB, `mib` of payloads in each round (a tenth of that for the smallest).
Then each reads its newest entries back as Read does, a mebibyte at a time and past the entry cache;
the segments are in the page cache, so that the disk is no part of it. Each round begins with the
other side. A figure is the median of all rounds, with the lowest and the highest. *begin* is the
part of a commit on the event loop: planning, checksums, encryption. *ratio*: the median of
encrypted against that of plain.

The directory must be on the file system of interest; the bench removes what it makes there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.storage.logdb import MEMBERS
from logservice import versions
from logservice.bounds import READ_BYTES_DEFAULT
from logservice.entry import Entry, EntryKind
from logservice.ids import ClusterId, Index, Lsn, ReplicaId, ShardId, StoreId, Term
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.io.data_directory import DataDirectory
from logservice.logdb.io.leveldb_kv import LevelDbEngine
from logservice.logdb.io.posix_vfs import PosixVfs
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from logservice.sealing_keys import Keys
from logservice.server.process import tune_interpreter
from logservice.snapshot import Snapshot

ENTRIES = 10
SIZES = {"100 B": 100, "4 KiB": 4096, "64 KiB": 64 * 1024}
PLAIN, ENCRYPTED = "plain", "encrypted"


@dataclass
class Side:
    """One store, and a log in it for each size of entries."""

    db: LogDb
    directory: DataDirectory
    last: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(cls, path: str, keys: Keys | None) -> Side:
        """An empty store."""
        vfs = PosixVfs()
        directory = DataDirectory.open(
            path, vfs=vfs, cluster_id=ClusterId("bench"), store_id=StoreId("bench")
        )
        directory.raise_version(versions.NEWEST)
        options = LogDbOptions(ballast_bytes=0, entry_cache_bytes=0)
        db = LogDb.open(
            path, identity=directory, vfs=vfs, kv=LevelDbEngine(vfs), options=options, keys=keys
        )
        return cls(db, directory)

    def close(self) -> None:
        """End the store."""
        self.db.close()
        self.directory.close()

    def groups(self, name: str, count: int) -> tuple[float, float]:
        """Commit so many groups; returns (seconds, those of them in `begin`)."""
        shard = ShardId(1 + list(SIZES).index(name))
        payloads = [os.urandom(SIZES[name]) for _ in range(ENTRIES)]
        first = self.last.get(name, 0) + 1
        took = begin = 0.0
        for _ in range(count):
            entries = tuple(
                Entry(Term(1), Index(one), Lsn(one), 1, EntryKind.BLOCK, payload)
                for one, payload in enumerate(payloads, first)
            )
            started = time.perf_counter()
            group = self.db.begin([Update(shard, ReplicaId(1), entries=entries)])
            begun = time.perf_counter()
            self.db.write(group)
            self.db.finish(group)
            took += time.perf_counter() - started
            begin += begun - started
            first += ENTRIES
        self.last[name] = first - 1
        return took, begin

    def read(self, name: str, count: int) -> float:
        """Read the newest `count` entries from their segments; returns the seconds."""
        log = self.db.log(ShardId(1 + list(SIZES).index(name)), ReplicaId(1))
        at, end = Index(self.last[name] + 1 - count), Index(self.last[name] + 1)
        started = time.perf_counter()
        while at < end:
            fetch = log.fetch(at, end, READ_BYTES_DEFAULT)
            fetch.run()
            log.end_fetch(fetch)
            at = Index(at + len(log.fetched(fetch)))
        return time.perf_counter() - started


def bench(directory: Path, rounds: int, mib: int) -> None:
    """Measure and print."""
    sides = {
        PLAIN: Side.make(str(directory / PLAIN), None),
        ENCRYPTED: Side.make(str(directory / ENCRYPTED), Keys("k", {"k": os.urandom(32)})),
    }
    found: dict[tuple[str, str, str], list[float]] = {}
    for number in range(rounds):
        order = [PLAIN, ENCRYPTED] if number % 2 else [ENCRYPTED, PLAIN]
        for name, size in SIZES.items():
            wanted = (mib << 20) // (10 if size < 1024 else 1)
            groups = max(1, wanted // (size * ENTRIES))
            for one in order:
                took, begin = sides[one].groups(name, groups)
                read_s = sides[one].read(name, groups * ENTRIES)
                for what, figure in (
                    ("group, us", 1e6 * took / groups),
                    ("begin, us", 1e6 * begin / groups),
                    ("read, MB/s", size * ENTRIES * groups / read_s / 1e6),
                ):
                    found.setdefault((name, what, one), []).append(figure)
        for side in sides.values():
            _truncate(side)
    for side in sides.values():
        side.close()
    print("| entries | | plain | encrypted | ratio |\n|---|---|---|---|---|")
    for name, what in dict.fromkeys((name, what) for name, what, _ in found):
        plain, encrypted = found[name, what, PLAIN], found[name, what, ENCRYPTED]
        ratio = statistics.median(encrypted) / statistics.median(plain)
        print(f"| {ENTRIES} x {name} | {what} | {_row(plain)} | {_row(encrypted)} | {ratio:.2f} |")


def _truncate(side: Side) -> None:
    """Let go of what the next rounds do not read, so that any number of them has room."""
    for name, last in side.last.items():
        index = Index(last)
        snapshot = Snapshot(index, Term(1), Lsn(last + 1), MEMBERS, b"")
        shard = ShardId(1 + list(SIZES).index(name))
        installed = InstalledSnapshot(snapshot, Lsn(last))
        side.db.commit([Update(shard, ReplicaId(1), snapshot=installed)])
    side.db.collect_garbage()


def _row(figures: Sequence[float]) -> str:
    low, high = min(figures), max(figures)
    return f"{statistics.median(figures):.0f} ({low:.0f} to {high:.0f})"


def main() -> None:
    """Run the bench in a folder of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=64)
    given = parser.parse_args()
    tune_interpreter()
    folder = Path(tempfile.mkdtemp(dir=given.directory))
    try:
        bench(folder, given.rounds, given.mib)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
