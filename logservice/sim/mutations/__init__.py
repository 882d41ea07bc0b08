"""The seeded bugs, by name: each function breaks one rule of the product, in this process.

Each is a bug that a system like this one has had, or that its design warns of. Only `sim.mutants`
and tests import this package. Start with `registry.py` (how a bug is put in), then the file of the
part that it is in: `consensus.py`, `storage.py`, `machine.py`, `life.py` and the smaller ones.
"""

from __future__ import annotations

from logservice.sim.mutations import (
    catching_up,
    consensus,
    divergence,
    drives,
    encryption,
    garbage,
    holds,
    jobs,
    life,
    machine,
    memory,
    ownership,
    restores,
    retention,
    sleep,
    storage,
    stuck,
    ticks,
    times,
    trust,
)
from logservice.sim.mutations.registry import MUTATIONS, WORLDS

__all__ = [
    "MUTATIONS",
    "WORLDS",
    "catching_up",
    "consensus",
    "divergence",
    "drives",
    "encryption",
    "garbage",
    "holds",
    "jobs",
    "life",
    "machine",
    "memory",
    "ownership",
    "restores",
    "retention",
    "sleep",
    "storage",
    "stuck",
    "ticks",
    "times",
    "trust",
]
