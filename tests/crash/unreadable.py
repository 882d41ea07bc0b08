"""Every sector of a store cannot be read, one at a time: ``python -m tests.crash.unreadable``.

A store of several segments, with every kind of record, is killed or stopped. Then the disk fails to
read one of its sectors (512 bytes or 4 KiB): each in turn, with the derived index and without it.
The directory must open. A replica that is not called faulty must have everything: term and vote,
snapshot, every entry. Only owners of bytes in that sector may be faulty, unless recovery says that
nobody knows whose the damage is: then all are, and nothing of the newest group is dropped
(INV-REC-4). Opened again without its index, the directory must say the same.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import click

from logservice.logdb.format.commit_group import (
    DIRECTORY_HEADER_BYTES,
    DIRECTORY_ROW_BYTES,
    GROUP_HEADER_BYTES,
    decode_directory,
)
from logservice.logdb.format.record import SEGMENT_HEADER_BYTES
from logservice.logdb.format.segment_scan import scan_segment
from logservice.logdb.index.replica_state import Key
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.log_db import LogDb
from logservice.logdb.options import LogDbOptions
from tests.logdb.dying import dying
from tests.logdb.helpers import World, commit_many_kinds, entries, log_of, update, visible

OPTIONS = LogDbOptions(
    segment_bytes=32 * 1024,
    entry_cache_bytes=0,
    ballast_bytes=0,
    reserve_bytes=0,
    spare_segments_max=0,
)
Picture = dict[Key, object]
Owned = list[tuple[int, int, Key]]
"""Ranges of bytes of a segment: from, to, and whose records they are."""


def write(*, stopped: bool) -> World:
    """Write groups of all kinds, small and large, in several segments; then kill or stop the
    store.
    """
    world = World(options=OPTIONS)
    db = world.open()
    commit_many_kinds(db)
    for step in range(14):
        first, other = log_of(db, 1, 1).last_index() + 1, log_of(db, 2, 5).last_index() + 1
        db.commit(
            [
                update(1, 1, entries(first, first + 1, term=3 + step, size=900 + 500 * step)),
                update(2, 5, entries(other, other, size=3000)),
            ]
        )
        db.commit([update(4, 1, hard=(step + 2, 1 + step % 2, 1))])
        if step % 5 == 1:
            db.commit([update(1, 1, entries(first, first + 3, term=4 + step, size=700))])
            db.commit([update(5 + step, 1, entries(1, 3, size=2500), bootstrap=True)])
    db.commit([update(1, 1, snapshot=5)])
    db.commit([update(2, 5, entries(log_of(db, 2, 5).last_index() + 1, 60, size=5000 // 45))])
    assert len(world.segments()) > 4
    if stopped:
        world.close(db)
    else:
        world.memory.kill()
    return world


def known(db: LogDb) -> Picture:
    """What can be read of each replica (`visible`), and which replicas were removed."""
    removed: Picture = dict.fromkeys(db.removed(), "removed")
    return visible(db) | removed


def owners(world: World) -> dict[str, Owned]:
    """The owners of the bytes of each segment, by its path."""
    files = SegmentFiles(world.vfs, "/data/segments", world.incarnation)
    found: dict[str, Owned] = {}
    for segment in files.ids():
        view, seed = files.read_all(segment), files.seed(segment)
        owned = found.setdefault(files.path(segment), [])
        for group in scan_segment(view, segment, SEGMENT_HEADER_BYTES, seed).groups():
            start = group.position.offset + GROUP_HEADER_BYTES
            directory = decode_directory(view, start, seed)
            assert group.intact
            assert directory is not None
            start += DIRECTORY_HEADER_BYTES + DIRECTORY_ROW_BYTES * len(directory.rows)
            for row in directory.rows:
                owned.append((start, start + row.size, (row.shard, row.replica)))
                start += row.size
    files.close()
    return found


def judge(world: World, *, index: bool, sector: int, every: int = 1) -> Counter[str]:
    """Make every `every`-th sector unreadable in turn; count the outcomes.

    Raises AssertionError with the first sector that recovery judges wrongly.
    """
    whole = known(world.copy().open())
    owned = owners(world)
    found: Counter[str] = Counter()
    for path in world.segments():
        size = world.vfs.size(world.vfs.open_read(path))
        for start in range(0, size, sector * every):
            where = f"{path} at {start}, index {index}"
            found[_one(world, whole, owned[path], path, start, sector, where, index=index)] += 1
    return found


def _one(
    world: World,
    whole: Picture,
    owned: Owned,
    path: str,
    start: int,
    sector: int,
    where: str,
    *,
    index: bool,
) -> str:
    hurt, vfs = dying(world, index=index, sector=sector)
    vfs.kill_bytes(path, start, start + 1)
    db = hurt.open()
    report = db.recovery_report
    assert not report.torn_bytes, f"{where}: a group was dropped"
    seen = known(db)
    lost = {key for key in whole if seen.get(key) is None}
    for key in whole.keys() - lost:
        assert seen[key] == whole[key], f"{where}: {key} is another one"
    if report.unattributed_loss:
        alive = [key for key, value in seen.items() if value not in (None, "removed")]
        assert not alive, f"{where}: {alive} are not faulty"
    else:
        assert lost <= seen.keys(), f"{where}: {lost - seen.keys()} are forgotten"
        page = start // 4096 * 4096
        mine = {key for low, high, key in owned if low < page + 4096 and page < high}
        assert lost <= mine, f"{where}: {lost - mine} are faulty, and have nothing there"
        for key in whole.keys() - lost:
            if whole[key] != "removed":
                last = log_of(db, *key).last_index()
                db.commit([update(*key, hard=(99, 1, last))])
    # The marks are durable, so the segments alone must say the same.
    vfs.kill()
    again, vfs_again = dying(hurt, index=False, sector=sector)
    vfs_again.dead = {name: set(dead) for name, dead in vfs.dead.items()}
    later = known(again.open())
    for key in whole:
        assert (later.get(key) is None) >= (key in lost), f"{where}: {key} is trusted again"
    if report.unattributed_loss:
        return "nobody knows whose"
    return f"{min(len(lost), 2)}{'+' if len(lost) > 1 else ''} faulty"


@click.command()
@click.option("--every", default=1, show_default=True, help="Only every n-th sector.")
def main(every: int) -> None:
    """Let every sector of a small store be unreadable."""
    started = time.monotonic()
    for stopped in (False, True):
        world = write(stopped=stopped)
        for sector in (4096, 512):
            for index in (True, False):
                found = judge(world, index=index, sector=sector, every=every)
                text = ", ".join(f"{count:,} {what}" for what, count in sorted(found.items()))
                print(
                    f"{'stopped' if stopped else 'killed'}, sectors of {sector},"
                    f" {'with' if index else 'without'} the index: {found.total():,}: {text}"
                )
                sys.stdout.flush()
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
