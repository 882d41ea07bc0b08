"""The entry cache by itself: it gives the entries that were written last, and the oldest writes of
all replicas make room.
"""

from __future__ import annotations

import random

import pytest

from logservice.entry import Entry
from logservice.logdb.format.record import record_bytes
from logservice.logdb.index.entry_cache import CachedEntries, EntryCache
from tests.logdb.helpers import entries

MUCH = 1 << 20


def size_of(some: tuple[Entry, ...]) -> int:
    return sum(record_bytes(len(entry.payload)) for entry in some)


@pytest.mark.parametrize("first", range(1, 12))
def test_what_is_written_replaces_what_is_at_and_after_it(first: int) -> None:
    """New entries come before, inside or right behind the old ones, or leave a hole: then the old
    ones are of no use.
    """
    cached = CachedEntries()
    cached.put(entries(4, 8))
    cached.put(entries(first, first + 1, term=2))
    expected = {entry.index: entry for entry in entries(4, 8) if 4 <= first <= 9}
    expected = {index: entry for index, entry in expected.items() if index < first}
    expected |= {entry.index: entry for entry in entries(first, first + 1, term=2)}
    for index in range(1, 16):
        found = cached.get(index, index + 1, MUCH)
        assert found == ((expected[index],) if index in expected else None)


def test_an_emptied_cache_takes_any_entries() -> None:
    cached = CachedEntries()
    cached.put(entries(4, 8))
    cached.drop_through(8)
    for first in (9, 3, 20):
        cached.put(entries(first, first))
        assert cached.get(first, first + 1, MUCH) == entries(first, first)
        cached.cut(first)
        assert len(cached) == 0


def test_the_oldest_writes_go_first_and_the_bound_holds() -> None:
    rng = random.Random(5)
    bound = 20_000
    cache = EntryCache(bound)
    replicas = [CachedEntries() for _ in range(5)]
    following = [1] * 5
    written: list[tuple[int, int]] = []
    for _ in range(300):
        owner = rng.randrange(5)
        first = following[owner]
        some = entries(first, first + rng.randrange(3), size=rng.choice((1, 10, 100)))
        following[owner] = some[-1].index + 1
        cache.put(replicas[owner], some, size_of(some))
        written += [(owner, entry.index) for entry in some]
        there = [replicas[who].get(index, index + 1, MUCH) is not None for who, index in written]
        assert there == sorted(there), "a suffix of what was written"
        assert there[-1]
        held = sum(len(entry.payload) for one in replicas for entry in one._entries)
        assert held <= bound
    assert not all(there)


def test_no_room_is_no_cache() -> None:
    cache, cached = EntryCache(0), CachedEntries()
    cache.put(cached, entries(1, 3), size_of(entries(1, 3)))
    assert len(cached) == 0
