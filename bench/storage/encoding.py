"""The processor time of checksums and encoding; it needs neither a disk nor a quiet machine.

python -m bench.storage.encoding
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from unittest.mock import patch

from logservice import checksum
from logservice.bounds import LOGDB_ENTRY_CACHE_BYTES
from logservice.entry import Entry, EntryKind
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format import group_encoder
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.update import Update
from logservice.logdb.index.entry_cache import CachedEntries, EntryCache
from logservice.logdb.index.index import SegmentUsage
from logservice.logdb.index.replica_state import ReplicaState
from logservice.logdb.plan import plan_run
from logservice.server.process import tune_interpreter

BYTES = 20_000_000
"""Bytes that are worked on for each figure, within bounds on how often a piece is measured."""

ROUNDS = 7

GROUP_SHARDS = 1000
GROUPS = 150
"""Groups of a run. The first half fills the entry cache, so that it has to make room during the
half that is measured."""


def best_us(work: Callable[[], object], times: int) -> float:
    """Microseconds of processor time of one call, the best of the rounds."""
    spent = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        for _ in range(times):
            work()
        spent.append(time.thread_time() - started)
    return min(spent) / times * 1e6


def encode_us(count: int, size: int) -> float:
    """Microseconds for one entry, when `count` of them are encoded together."""
    payload = b"x" * size
    entries = tuple(
        Entry(Term(1), Index(n), Lsn(n), 1, EntryKind.BLOCK, payload) for n in range(1, count + 1)
    )
    times = max(1, min(4000, BYTES // size) // count)
    runs = [RecordRun(1, 1, 1, [], entries)]
    return best_us(lambda: group_encoder.encode_runs([], runs, 7, 1, 64), times) / count


def group_us(*, commits: bool) -> dict[str, float]:
    """Microseconds for one shard in a group of a thousand shards with an entry of 1 KiB each, by
    the work that is done for it; the best of many groups. `commits`: each shard also says which
    entries are committed.
    """
    usage, cache = SegmentUsage(), EntryCache(LOGDB_ENTRY_CACHE_BYTES)
    states = [ReplicaState(shard, 1, HardState(Term(1))) for shard in range(GROUP_SHARDS)]
    for state in states:
        state.index.attach(usage, None)
        state.cached = CachedEntries()
    best: dict[str, float] = {}
    payload = b"x" * 1024
    for number in range(1, GROUPS):
        entry = Entry(Term(1), Index(number), Lsn(number), 1, EntryKind.BLOCK, payload)
        hard = HardState(Term(1), NO_REPLICA, Index(number - 1)) if commits else None
        update = Update(ShardId(0), ReplicaId(1), hard, (entry,))
        started = [time.thread_time()]
        planned = [plan_run(state, update, number) for state in states]
        started.append(time.thread_time())
        runs = [run for run in planned if run is not None]
        group_encoder.encode_runs([], runs, 7, 1, number << 20)
        started.append(time.thread_time())
        for state, run in zip(states, runs, strict=True):
            state.apply(run)
        started.append(time.thread_time())
        for state, run in zip(states, runs, strict=True):
            assert state.cached is not None
            cache.put(state.cached, run.entries, run.size)
        started.append(time.thread_time())
        parts = ("check", "encode", "index", "cache")
        if number < GROUPS // 2:
            continue
        for part, (begin, end) in zip(parts, pairwise(started), strict=True):
            best[part] = min(best.get(part, 1e9), (end - begin) / GROUP_SHARDS * 1e6)
    return best


def main() -> None:
    """Print the tables."""
    tune_interpreter()
    for size in (68, 1024, 64 * 1024, 1024 * 1024):
        data, times = b"x" * size, max(20, min(20_000, BYTES // size))
        slow = best_us(lambda: zlib.crc32(data, 7), times)  # noqa: B023
        fast = best_us(lambda: checksum.crc32(data, 7), times)  # noqa: B023
        print(f"CRC-32 of {size:8} B: zlib {slow:7.2f} us, ISA-L {fast:6.2f} us")
    for count, size in ((1000, 1024), (20, 1024), (1, 1024), (16, 64 * 1024)):
        ours = encode_us(count, size)
        with patch.object(group_encoder, "crc32", zlib.crc32):
            with_zlib = encode_us(count, size)
        print(
            f"an entry of {size:6} B, {count:4} together: with zlib {with_zlib:6.2f} us, "
            f"with ISA-L {ours:5.2f} us"
        )
    for commits in (False, True):
        what = "an entry and a commit index" if commits else "an entry"
        parts = ", ".join(f"{part} {us:.2f} us" for part, us in group_us(commits=commits).items())
        print(f"a shard of {GROUP_SHARDS} with {what}: {parts}")


if __name__ == "__main__":
    main()
