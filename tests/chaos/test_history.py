"""Tests of the checker: good histories pass, and every way of being wrong is named."""

from __future__ import annotations

import random

import pytest

from logservice.sim.history import Append, Outcome, check
from tests.chaos import bad_answers, bad_contents
from tests.chaos.good_histories import good_history
from tests.chaos.mutations import MUTATIONS, History

REGISTERED = (bad_answers, bad_contents)
"""Importing these modules registers their mutations."""


@pytest.mark.parametrize("seed", range(60))
def test_good_histories_are_accepted(seed: int) -> None:
    verdict = check(good_history(seed))
    assert verdict.violations == []
    assert verdict.counts["acked records"] > 0
    assert verdict.counts["final reads"] == 3


def test_there_are_enough_ways_to_be_wrong() -> None:
    assert len(MUTATIONS) >= 40


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_bad_histories_are_rejected(name: str) -> None:
    mutate, rules = MUTATIONS[name]
    broken = 0
    for seed in range(200):
        history = good_history(seed)
        if not mutate(history, random.Random(seed)):
            continue
        broken += 1
        verdict = check(history)
        assert verdict.rules & rules, (seed, verdict.violations)
        if broken == 5:
            return
    pytest.fail(f"only {broken} histories could be broken this way")


def test_an_empty_history_is_right() -> None:
    assert check([]).ok


def test_violations_are_counted_but_not_all_kept() -> None:
    history: History = [
        Append("c", f"b{number}", 1, 0.0, 1.0, Outcome.OK, 7) for number in range(100)
    ]
    verdict = check(history)
    assert verdict.counts["violations OVERLAP"] == 99
    assert len(verdict.violations) == 20
