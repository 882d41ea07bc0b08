"""Invariants that every moment of a simulation is held against, one class each, by subject.

A checker imports `interfaces` and `oracle` and changes neither store nor world; `world` alone
makes them. Start with `checker.py` (what a checker is told, and by whom), then `catching_up.py`,
`drives.py`, `ends.py`, `holds.py`, `leaders.py`, `logs.py`, `memory.py`, `named.py`, `promises.py`,
`restores.py`, `retention.py`, `segments.py`, `snapshots.py`, `stores.py`, `stuck.py` and
`times.py`.
"""

from __future__ import annotations

from logservice.sim.checkers.catching_up import CatchUpRate
from logservice.sim.checkers.checker import Checker
from logservice.sim.checkers.drives import Drives
from logservice.sim.checkers.ends import Closed, Deleted
from logservice.sim.checkers.holds import HoldsStand, ReadersHolds
from logservice.sim.checkers.leaders import ElectionSafety, LeaderCommit, LeaderCompleteness
from logservice.sim.checkers.logs import CommitQuorum, LogLsn, LogMatching, StateMachineSafety
from logservice.sim.checkers.memory import UnwrittenBytes
from logservice.sim.checkers.named import Named
from logservice.sim.checkers.promises import (
    Acknowledgements,
    Damaged,
    Durability,
    Promises,
    Zombies,
)
from logservice.sim.checkers.restores import Restores
from logservice.sim.checkers.retention import Retained
from logservice.sim.checkers.segments import SegmentsGo
from logservice.sim.checkers.snapshots import EqualSnapshots, Truncation
from logservice.sim.checkers.stores import DiskRoom, HAKeeperView, Queues
from logservice.sim.checkers.stuck import GivesWay
from logservice.sim.checkers.times import AppendTimes

ALL: tuple[type[Checker], ...] = (
    ElectionSafety,
    LogMatching,
    LogLsn,
    Durability,
    Promises,
    Acknowledgements,
    Zombies,
    Damaged,
    StateMachineSafety,
    CommitQuorum,
    LeaderCompleteness,
    LeaderCommit,
    Truncation,
    EqualSnapshots,
    HAKeeperView,
    Queues,
    DiskRoom,
    Closed,
    Deleted,
    GivesWay,
    CatchUpRate,
    HoldsStand,
    ReadersHolds,
    Named,
    AppendTimes,
    Restores,
    Drives,
    Retained,
    SegmentsGo,
    UnwrittenBytes,
)
"""In the order in which they look; those that others rest on come first."""
