"""A few whole worlds among the ordinary tests; `make sim` and `make nightly-sim` run many more."""

from __future__ import annotations

import pytest

from logservice.sim.campaign import Totals, ledger_line, run_seed
from logservice.sim.config import SHORT_S, draw

CALM = next(seed for seed in range(1, 100) if draw(seed).calm and draw(seed).shards <= 2)


@pytest.mark.parametrize("seed", [CALM, 5, 8, 10, 16, 19, 20])
def test_a_seed(seed: int) -> None:
    result = run_seed(seed)
    assert result.ok, (result.config, result.report.violations)
    totals = Totals()
    totals.add(ledger_line(result))
    assert totals.operations > 0
    assert totals.counts["entries applied"] > 0


def test_a_short_seed_lives_as_long_as_it_has_to() -> None:
    result = run_seed(3, short=True)
    assert result.ok, (result.config, result.report.violations)
    assert result.report.virtual_s >= SHORT_S
    assert ledger_line(result)["short"] is True


def test_a_draw_is_a_function_of_the_seed() -> None:
    assert [draw(seed).text() for seed in range(50)] == [draw(seed).text() for seed in range(50)]
    assert 3 <= sum(draw(seed).calm for seed in range(50)) <= 20
