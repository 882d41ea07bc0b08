"""MemoryPart: bounded, fair to those who hold little, and never closed to what is large."""

from __future__ import annotations

import random

import pytest

from logservice.invariants import InvariantViolation
from logservice.memory_part import UNBOUNDED, MemoryPart


def test_a_holder_gets_as_much_as_is_left_free() -> None:
    part = MemoryPart(100)
    assert part.take("a", 10)
    assert not part.take("a", 41)
    assert part.take("a", 40)
    assert not part.take("a", 1)
    assert (part.used, part.held("a"), part.refused) == (50, 50, 2)


def test_holders_that_give_nothing_back_leave_room_for_others() -> None:
    """INV-MEM-1. Each takes all it can, byte by byte; the next one still finds its share."""
    part = MemoryPart(1000)
    for number in range(1, 10):
        while part.take(number, 1):
            pass
        assert part.used <= 1000
        free = 1000 - part.used
        assert free >= 1000 // 2**number
        assert part.take("newcomer", free // 2)
        part.give_back("newcomer", free // 2)


def test_holders_that_compete_get_equal_shares() -> None:
    part = MemoryPart(1000)
    for _ in range(1000):
        for number in range(4):
            part.take(number, 1)
    assert [part.held(number) for number in range(4)] == [200] * 4
    assert 1000 - part.used == 200


def test_what_is_too_large_goes_alone() -> None:
    """INV-MEM-1"""
    part = MemoryPart(100)
    assert part.room("a") == UNBOUNDED
    assert part.take("a", 500)
    assert not part.take("b", 1)
    part.give_back("a", 500)
    assert part.take("b", 1)
    assert not part.take("a", 500)


def test_room_is_what_can_be_taken() -> None:
    """Any order of takes and returns keeps the bound, and `room` says what `take` does."""
    chance = random.Random(7)
    for _ in range(200):
        part = MemoryPart(chance.randrange(1, 100))
        kept: list[tuple[int, int]] = []
        for _ in range(100):
            holder, size = chance.randrange(4), chance.randrange(1, 60)
            if kept and chance.random() < 0.5:
                part.give_back(*kept.pop(chance.randrange(len(kept))))
                continue
            expected = size <= part.room(holder)
            assert part.take(holder, size) is expected
            if expected:
                kept.append((holder, size))
            assert part.used == sum(size for _, size in kept)
            assert (
                part.used <= part.limit
                or len(kept) <= 1
                or part.used <= max(size for _, size in kept)
            )
        for holder, size in kept:
            part.give_back(holder, size)
        assert part.used == 0
        assert not any(part.held(holder) for holder in range(4))


def test_nobody_gives_back_what_he_does_not_hold() -> None:
    part = MemoryPart(100)
    part.take("a", 10)
    with pytest.raises(InvariantViolation, match="INV-MEM-1"):
        part.give_back("b", 1)
