"""One file per invariant that every moment of a simulation is held against."""

from __future__ import annotations

from logservice.sim.checkers.acknowledgements import Acknowledgements
from logservice.sim.checkers.commit_quorum import CommitQuorum
from logservice.sim.checkers.damaged import Damaged
from logservice.sim.checkers.disk_room import DiskRoom
from logservice.sim.checkers.durability import Durability
from logservice.sim.checkers.election_safety import ElectionSafety
from logservice.sim.checkers.equal_snapshots import EqualSnapshots
from logservice.sim.checkers.hakeeper_view import HAKeeperView
from logservice.sim.checkers.leader_commit import LeaderCommit
from logservice.sim.checkers.leader_completeness import LeaderCompleteness
from logservice.sim.checkers.log_lsn import LogLsn
from logservice.sim.checkers.log_matching import LogMatching
from logservice.sim.checkers.promises import Promises
from logservice.sim.checkers.queues import Queues
from logservice.sim.checkers.state_machine_safety import StateMachineSafety
from logservice.sim.checkers.truncation import Truncation
from logservice.sim.checkers.zombies import Zombies
from logservice.sim.checks import Checker

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
)
"""In the order in which they look; those that others rest on come first."""
