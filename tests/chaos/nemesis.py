"""Nemesis: which store is killed or paused, when, and for how long. Only the seed decides the plan.

Each step is one disturbance and what it waits for afterwards. Between steps the run demands that
appends make progress again: a fault in a cluster that does nothing tests nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What is done to the stores. The values are shown to people."""

    KILL = "kill a store"
    KILL_LEADER = "kill the leader"
    KILL_TWO = "kill two stores"
    KILL_ALL = "kill all stores"
    KILL_LEADER_LAST = "kill the leader last"
    """All other stores are killed first, and the leader comes back last: a record that it acked
    alone would be lost."""
    KILL_RESTARTED = "kill again while starting"
    PAUSE = "pause a store"
    PAUSE_LEADER = "pause the leader"
    STOP = "stop a store"
    REPLACE = "lose a store for good"


KILLS = {
    Fault.KILL: 1,
    Fault.KILL_LEADER: 1,
    Fault.KILL_TWO: 2,
    Fault.KILL_RESTARTED: 2,
}
"""How many SIGKILLs each of these costs; the other kinds cost none, or one per store."""

_WEIGHTS = {
    Fault.KILL: 8,
    Fault.KILL_LEADER: 6,
    Fault.KILL_TWO: 2,
    Fault.KILL_ALL: 1,
    Fault.KILL_LEADER_LAST: 2,
    Fault.KILL_RESTARTED: 2,
}


_EVERYBODY = (Fault.KILL_ALL, Fault.KILL_LEADER_LAST)
_STORES_MIN = {Fault.KILL_TWO: 3, Fault.KILL_LEADER_LAST: 2}


@dataclass(frozen=True, slots=True)
class Step:
    """One disturbance.

    `victims`: indices of stores in random order; where the leader is the victim, it is looked up
    when the step begins. `before_s`: the undisturbed time before the step. `down_s`: how long a
    killed or paused store stays away.
    """

    fault: Fault
    victims: tuple[int, ...]
    before_s: float
    down_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many SIGKILLs, SIGSTOPs, SIGTERMs, and stores that are lost with their disks."""

    kills: int
    pauses: int = 0
    stops: int = 0
    replacements: int = 0


def plan(seed: int, wanted: Wanted, stores: int) -> list[Step]:
    """Steps that have exactly the wanted counts, in random order."""
    chance = random.Random(f"nemesis/{seed}")
    faults: list[Fault] = []
    left = wanted.kills
    while left:
        fitting = [
            fault
            for fault in _WEIGHTS
            if kills_of(fault, stores) <= left and stores >= _STORES_MIN.get(fault, 1)
        ]
        fault = chance.choices(fitting, [_WEIGHTS[one] for one in fitting])[0]
        faults.append(fault)
        left -= kills_of(fault, stores)
    pauses = (Fault.PAUSE, Fault.PAUSE_LEADER)
    faults += [chance.choice(pauses) for _ in range(wanted.pauses)]
    faults += [Fault.STOP] * wanted.stops + [Fault.REPLACE] * wanted.replacements
    chance.shuffle(faults)
    steps = []
    for fault in faults:
        victims = tuple(chance.sample(range(stores), stores))
        down_s = (
            chance.uniform(0.5, 4.0) if fault in pauses else chance.choice((0.0, 0.3, 1.0, 2.5))
        )
        steps.append(Step(fault, victims, chance.uniform(0.3, 1.5), down_s))
    return steps


def kills_of(fault: Fault, stores: int) -> int:
    """How many SIGKILLs the fault costs."""
    return stores if fault in _EVERYBODY else KILLS.get(fault, 0)
