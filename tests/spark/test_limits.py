"""Limits of a micro-batch: used up, fair, never exceeded by records; sizes from samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_logservice.limits import Backlog, shares, within_bytes, within_records
from pyspark_logservice.sizes import SAMPLES, Outline, Sample, outline, reach


@given(st.dictionaries(st.integers(1, 9), st.integers(1, 1000), min_size=1), st.integers(1, 2000))
def test_a_limit_by_records_is_kept_and_used_up(sizes: dict[int, int], most: int) -> None:
    backlogs = {shard: Backlog(10, 10 + size) for shard, size in sizes.items()}
    ends = within_records(backlogs, most)
    taken = {shard: ends[shard] - 10 for shard in sizes}
    assert all(0 <= taken[shard] <= sizes[shard] for shard in sizes)
    assert sum(taken.values()) == min(most, sum(sizes.values()))
    even = most // len(sizes)
    assert all(taken[shard] >= min(even, sizes[shard]) for shard in sizes)


def test_every_log_comes_to_its_turn_under_a_limit_below_their_number() -> None:
    left = {1: 3, 2: 3, 3: 3}
    for _ in range(9):
        ends = within_records({s: Backlog(1, 1 + n) for s, n in left.items() if n}, 1)
        for shard, end in ends.items():
            left[shard] -= end - 1
    assert left == {1: 0, 2: 0, 3: 0}


def test_shares_leave_to_others_what_is_not_wanted() -> None:
    assert shares({1: 10, 2: 1000, 3: 1000}, 210) == {1: 10, 2: 100, 3: 100}
    assert shares({1: 10, 2: 20}, 1000) == {1: 10, 2: 20}


def log_of(sizes: list[int], block: int = 4) -> Sample:
    """Records of these sizes from LSN 1 on, read in blocks of `block`."""

    def sample(lsn: int) -> tuple[float, int]:
        behind = min(lsn + block, len(sizes) + 1)
        return float(sum(sizes[lsn - 1 : behind - 1])), behind

    return sample


def test_the_size_of_records_of_one_length_is_exact() -> None:
    found = outline(log_of([100] * 1000), 1, 1001, 1000)
    assert found.total == pytest.approx(100_000)
    assert found.lsn_at(50_000) == pytest.approx(501, abs=1)
    assert (found.lsn_at(0), found.lsn_at(found.total)) == (1, 1001)


def test_a_small_range_takes_two_samples() -> None:
    asked = []

    def sample(lsn: int) -> tuple[float, int]:
        asked.append(lsn)
        return 400.0, lsn + 4

    assert outline(sample, 1, 1001, 1_000_000).total == pytest.approx(100_000)
    assert asked == [1, 1000]


def test_sizes_that_change_are_followed() -> None:
    sizes = [10] * 800 + [1000] * 200
    found = outline(log_of(sizes), 1, 1001, 1000)
    assert found.total == pytest.approx(sum(sizes), rel=0.3)
    end = reach(log_of(sizes), 1, 1001, 20_000)
    taken = sum(sizes[: end.lsns[-1] - 1])
    assert 5_000 <= taken <= 40_000
    assert len(end.lsns) <= SAMPLES + 1


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=300), st.integers(1, 5000), st.integers(1, 9)
)
def test_outlines_only_grow_and_stay_in_the_range(
    sizes: list[int], budget: int, block: int
) -> None:
    end = len(sizes) + 1
    for found in (
        outline(log_of(sizes, block), 1, end, budget),
        reach(log_of(sizes, block), 1, end, budget),
    ):
        assert found.lsns[0] == 1
        assert list(found.lsns) == sorted(set(found.lsns))
        assert list(found.bytes_to) == sorted(found.bytes_to)
        assert found.lsns[-1] <= end
        assert 1 <= found.lsn_at(budget) <= end
    assert within_bytes({1: reach(log_of(sizes, block), 1, end, budget)}, budget)[1] >= 2


def test_gaps_have_no_bytes() -> None:
    found = reach(log_of([0] * 100), 1, 101, 1000)
    assert found.total == 0.0
    assert found.lsns[-1] > 2 * SAMPLES
    assert Outline((1, 5), (0.0, 0.0)).lsn_at(3.0) == 5
