"""Every bit of a segment flips, one at a time: ``python -m tests.crash.every_bit --kib 64``.

A segment is written with every kind of record; its newest commit group has a durable mark behind
it, or has none. Recovery then reads the segment once for each flipped bit. It must say the same as
without the flip, or find the damage and its one owner. In the newest group, and only without a
mark, it may instead drop that group whole. It must never take an entry whose bytes changed for
good.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass

import click

from logservice.logdb.format.record import RECORD_HEADER_BYTES
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.logdb.io.survey import Survey
from logservice.logdb.options import LogDbOptions
from logservice.logdb.recovery.recovery import Recovered, recover
from tests.logdb.helpers import World, commit_many_kinds, entries, log_of, update

Picture = dict[tuple[int, int], object]


class OneSegment(SegmentFiles):
    """A segment in memory."""

    def __init__(self, data: bytes, incarnation: int) -> None:
        self.incarnation = incarnation
        self.sizes = {1: len(data)}
        self._seeds = {}


class InMemory(Survey):
    """Reads a segment from memory."""

    def __init__(self, data: bytes, incarnation: int) -> None:
        super().__init__(OneSegment(data, incarnation))
        self._data = data

    def read(self, segment: int, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


@dataclass(frozen=True, slots=True)
class Written:
    """A segment. newest: where its newest group lies (from, to); marks do not count."""

    data: bytes
    incarnation: int
    newest: tuple[int, int]
    before_newest: Picture
    marked: bool


def write(size: int, *, mark: bool) -> Written:
    """Fill a segment of `size` bytes with groups of all kinds of records."""
    options = LogDbOptions(segment_bytes=size, entry_cache_bytes=0, ballast_bytes=0)
    world = World(options=options)
    db = world.open()
    commit_many_kinds(db)
    db.commit([update(1, 1, entries(8, 12, term=3), hard=(3, 3, 6))])
    db.commit([update(1, 1, snapshot=4, snapshot_term=1)])
    ends: list[int] = []
    newest = 0
    while not ends or ends[-1] + (ends[-1] - newest) + 256 < size:
        newest = 64 + db.stats().bytes_written
        before = bytes(world.memory._files[world.segments()[0]].cached)
        last1, last2 = log_of(db, 1, 1).last_index(), log_of(db, 2, 5).last_index()
        db.commit(
            [
                update(2, 5, entries(last2 + 1, last2 + 2, size=size // 40)),
                update(1, 1, entries(last1 + 1, last1 + 1, term=3, size=size // 16)),
            ]
        )
        ends.append(64 + db.stats().bytes_written)
    if mark:
        db.mark_durable()
    data = bytes(world.memory._files[world.segments()[0]].cached)
    assert len(world.segments()) == 1
    assert len(data) == size
    earlier = picture(recover(InMemory(before, world.incarnation), None))
    return Written(data, world.incarnation, (newest, ends[-1]), earlier, mark)


def picture(recovered: Recovered) -> Picture:
    """What recovery says of each replica; None when it is faulty."""
    return {key: _replica(state) for key, state in recovered.states.items()}


def _replica(state: ReplicaState) -> object:
    if state.faulty:
        return None
    hard, index = state.hard_state, state.index
    columns = tuple(
        (c.first, c.last, c.first_lsn, c.next_lsn, bytes(index.columns(c).offsets))
        for c in index.chunks
    )
    return (
        hard.term,
        hard.vote,
        state.bootstrap,
        state.installed,
        state.removed,
        index.floor_index,
        columns,
    )


def live_bytes(recovered: Recovered) -> dict[int, tuple[int, int]]:
    """The replica of each byte of a live entry, by offset."""
    owners: dict[int, tuple[int, int]] = {}
    for key, state in recovered.states.items():
        for chunk in state.index.chunks:
            run = state.index.columns(chunk).keep(
                max(chunk.first, state.index.floor_index + 1), chunk.last
            )
            for offset, length in zip(run.offsets, run.lengths, strict=True):
                for position in range(offset, offset + RECORD_HEADER_BYTES + length):
                    owners[position] = key
    return owners


def judge(written: Written, first: int = 0, last: int | None = None, step: int = 1) -> Counter[str]:
    """Flip every step-th bit of bytes first .. last; count the outcomes.

    Raises AssertionError with the place of the first flip that recovery judges wrongly.
    """
    good = recover(InMemory(written.data, written.incarnation), None)
    whole, owners = picture(good), live_bytes(good)
    low, high = written.newest
    found: Counter[str] = Counter()
    for bit in range(first * 8, (len(written.data) if last is None else last) * 8, step):
        offset = bit >> 3
        data = bytearray(written.data)
        data[offset] ^= 1 << (bit & 7)
        recovered = recover(InMemory(bytes(data), written.incarnation), None)
        seen = picture(recovered)
        where = f"bit {bit & 7} of byte {offset}"
        if seen == whole:
            assert offset not in owners, f"{where}: a damaged entry counts as good"
            found["no effect"] += 1
        elif low <= offset < high and not written.marked:
            assert seen == written.before_newest, f"{where}: half of a group"
            assert recovered.report.torn_bytes, where
            found["newest group dropped"] += 1
        else:
            lost = [key for key, value in seen.items() if value is None]
            assert len(lost) == 1, f"{where}: {len(lost)} replicas are faulty"
            healthy = {key: value for key, value in seen.items() if value is not None}
            assert healthy.items() <= whole.items(), f"{where}: another replica changed"
            assert owners.get(offset, lost[0]) == lost[0], f"{where}: blamed on {lost[0]}"
            assert any(damage.key == lost[0] for damage in recovered.report.damages), where
            found["one replica faulty"] += 1
    return found


@click.command()
@click.option("--kib", default=64, show_default=True, help="Size of the segment.")
@click.option("--first", default=0, help="First byte.")
@click.option("--step", default=1, show_default=True, help="Every how manieth bit.")
def main(kib: int, first: int, step: int) -> None:
    """Flip every bit of a segment, without and with a durable mark."""
    started = time.monotonic()
    for mark in (False, True):
        found = judge(write(kib * 1024, mark=mark), first, step=step)
        text = ", ".join(f"{count:,} {what}" for what, count in sorted(found.items()))
        print(f"{'with' if mark else 'without'} a mark: {sum(found.values()):,} bits: {text}")
        sys.stdout.flush()
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
