"""Tests of the tester: seeded bugs must raise an alarm. Some run here, `make mutants` has all."""

from __future__ import annotations

import pytest

from logservice.sim.mutants import Killed, hunt_all
from logservice.sim.mutations import MUTATIONS

QUICK = {
    "no-fsync": "durability",
    "commits-with-a-minority": "commit-quorum",
    "lsn-of-an-entry-given-twice": "",
}


def test_quick_mutants_die() -> None:
    seen: list[Killed] = []
    killed = hunt_all(list(QUICK), 1, 8, 1, seen.append)
    assert [one.name for one in killed if not one.seeds] == []
    assert all(QUICK[one.name] in ("", one.checker) for one in killed)
    assert seen == killed


@pytest.mark.parametrize("name", MUTATIONS)
def test_names_are_names(name: str) -> None:
    assert name.replace("-", "").isalpha()


def test_there_are_enough_of_them() -> None:
    assert len(MUTATIONS) >= 30
