"""Tests of the tester: seeded bugs must raise an alarm. Some run here, `make mutants` has all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from logservice.rsm.sessions import Session
from logservice.sim.mutants import Killed, hunt_all
from logservice.sim.mutations import MUTATIONS
from logservice.sim.mutations.registry import wrap

QUICK = {
    "no-fsync": "durability",
    "commits-with-a-minority": "commit-quorum",
    "lsn-of-an-entry-given-twice": "",
}

EACH = """
import os
from logservice.sim.mutations import MUTATIONS
fit = 0
for name, mutate in MUTATIONS.items():
    child = os.fork()
    if not child:
        status = 1
        try:
            mutate()
            status = 0
        except Exception as error:
            os.write(2, f"{name}: {error!r}".encode())
        finally:
            os._exit(status)
    fit += os.waitpid(child, 0)[1] == 0
print(fit, "fit")
"""


def test_quick_mutants_die() -> None:
    seen: list[Killed] = []
    killed = hunt_all(list(QUICK), 1, 8, 1, seen.append)
    assert [one.name for one in killed if not one.seeds] == []
    assert all(QUICK[one.name] in ("", one.checker) for one in killed)
    assert seen == killed


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutant_has_a_name_of_plain_words(name: str) -> None:
    assert name.replace("-", "").isalpha()


def test_every_mutation_takes_what_its_function_takes() -> None:
    """In a process that forks for each, because a mutation stays for the life of its process."""
    found = subprocess.run(
        [sys.executable, "-c", EACH], capture_output=True, text=True, timeout=300
    )
    assert (found.returncode, found.stdout) == (0, f"{len(MUTATIONS)} fit\n"), found.stderr


def test_a_mutation_with_other_arguments_is_no_mutant() -> None:
    with pytest.raises(TypeError):
        wrap(Session, "repetition", lambda _: lambda _self, _sequence: None)


def test_there_are_enough_of_them() -> None:
    assert len(MUTATIONS) >= 30
