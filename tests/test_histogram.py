"""Tally and quantile: the edges of buckets, and what stands for figures above all of them."""

from __future__ import annotations

import pytest

from logservice.histogram import LATENCY_BUCKETS_US, Tally, quantile


def test_a_figure_is_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    tally = Tally((10, 20))
    for figure in (-1, 0, 10, 11, 20, 21, 10_000):
        tally.add(figure)
    found = tally.histogram()
    assert found.bounds == (10, 20)
    assert found.counts == (3, 2, 2)
    assert found.total == -1 + 0 + 10 + 11 + 20 + 21 + 10_000


def test_one_figure_many_times_is_many_figures() -> None:
    once, each, together = (Tally(LATENCY_BUCKETS_US) for _ in range(3))
    once.add(700, 3)
    for _ in range(3):
        each.add(700)
    together.add_all([700] * 3)
    assert once.histogram() == each.histogram() == together.histogram()


def test_many_figures_are_counted_as_one_by_one() -> None:
    each, together = Tally((10, 20)), Tally((10, 20))
    for figure in (0, 10, 11, 20, 21):
        each.add(figure)
    together.add_all([0, 10, 11, 20, 21])
    together.add_all([])
    assert each.histogram() == together.histogram()


def test_a_histogram_stays_as_it_is() -> None:
    tally = Tally((10,))
    before = tally.histogram()
    tally.add(5)
    assert before.counts == (0, 0)
    assert tally.histogram().counts == (1, 0)


def test_bounds_of_latencies_ascend() -> None:
    assert list(LATENCY_BUCKETS_US) == sorted(set(LATENCY_BUCKETS_US))


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ((), 0.5, 0.0),
        ((0, 0, 0), 0.5, 0.0),
        ((4, 0, 0), 0.5, 5.0),
        ((4, 0, 0), 1.0, 10.0),
        ((0, 4, 0), 0.0, 10.0),
        ((0, 4, 0), 0.5, 15.0),
        ((1, 1, 0), 0.5, 10.0),
        ((1, 1, 0), 0.75, 15.0),
        ((0, 0, 4), 0.5, 20.0),  # above all bounds: the last one, as Prometheus says it
        ((99, 0, 1), 0.99, 10.0),
        ((99, 0, 1), 0.995, 20.0),
    ],
)
def test_quantiles(counts: tuple[int, ...], share: float, expected: float) -> None:
    assert quantile((10, 20), counts, share) == pytest.approx(expected)
