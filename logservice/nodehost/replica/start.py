"""Start: the first record of a replica, and what it starts from at every later start.

A shard begins on every initial replica as an installed snapshot at index 1 and term 1, with the
initial membership. So a replica that joins later with an empty log gets a snapshot first, and with
it the membership.

Raft and the state machine start from the same snapshot: the newest export if the log knows its
entry, else the installed one. The choice also compares two files that were written independently.
An export was made from applied entries, and those were durable in the log before they were applied
(INV-REPLICA-2). So if the log does not reach an export, or has its entry in another term, the log
lost what it had acknowledged, whatever its checksums say. Nobody knows what else it lost; it may
have lost a vote.

INV-START-1: a replica whose log is contradicted by its own export does not run, and is not repaired
in place.
"""

from __future__ import annotations

import logging

from logservice_wire.errors import Halted
from logservice_wire.value import value

from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index, Lsn, ReplicaId, ShardId, Term
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot, Update
from logservice.logdb.read.replica_log import ReplicaLog
from logservice.membership import Membership
from logservice.nodehost.hearing.contents import state_problem
from logservice.snapshot import Snapshot
from logservice.state_machine import StateMachine

logger = logging.getLogger(__name__)

_FIRST_INDEX, _FIRST_TERM, _FIRST_LSN = Index(1), Term(1), Lsn(1)


@value
class ReplicaStart:
    """Where a replica starts: its log, and the snapshot that both the core and the RSM take."""

    log: ReplicaLog
    snapshot: Snapshot | None
    hard_state: HardState

    @property
    def applied(self) -> Index:
        """What the snapshot has applied; 0 without one."""
        return self.snapshot.index if self.snapshot is not None else Index(0)

    @property
    def applied_term(self) -> Term:
        """The term of the entry at `applied`."""
        return self.snapshot.term if self.snapshot is not None else Term(0)

    @property
    def membership(self) -> Membership:
        """The membership at `applied`."""
        return self.snapshot.membership if self.snapshot is not None else Membership()


def first_update(
    shard: ShardId, replica: ReplicaId, membership: Membership, *, join: bool
) -> Update:
    """The update that makes the replica durable. With `join` the replica waits for its leader's
    snapshot, and until then hears the members that are named here.
    """
    if join:
        return Update(shard, replica, bootstrap=Bootstrap(membership, True))
    first = Snapshot(_FIRST_INDEX, _FIRST_TERM, _FIRST_LSN, membership, b"")
    return Update(
        shard,
        replica,
        hard_state=HardState(_FIRST_TERM, NO_REPLICA, _FIRST_INDEX),
        snapshot=InstalledSnapshot(first, Lsn(0)),
        bootstrap=Bootstrap(membership, False),
    )


def choose_start(
    log: ReplicaLog, export: Snapshot | None, machine: StateMachine
) -> Snapshot | None:
    """What `machine` and the core start from; None for a log that is still empty.

    Raises Halted, and marks the log as faulty, when what was acknowledged is gone or the installed
    state does not decode. An export that does not decode is passed over: the log has all that the
    export has.
    """
    installed = log.installed.snapshot if log.installed is not None else None
    floor = installed.index if installed is not None else 0
    if export is not None and export.index > floor:
        _check_known(log, export, floor)
        problem = state_problem(export, machine)
        if not problem:
            return export
        logger.error(
            "shard %d replica %d: the export at %d is passed over: %s",
            log.shard,
            log.replica,
            export.index,
            problem,
        )
    if installed is not None and (problem := state_problem(installed, machine)):
        raise _halt(log, f"the state of the installed snapshot at {floor}: {problem}")
    return installed


def _check_known(log: ReplicaLog, export: Snapshot, floor: int) -> None:
    index, last = export.index, log.last_index()
    if floor == 0:
        raise _halt(log, f"it exported its state at {index}, and its installed snapshot is gone")
    if index > last:
        raise _halt(log, f"it exported its state at {index}, and its log ends at {last}")
    if log.term(index) != export.term:
        raise _halt(
            log,
            f"it exported entry {index} of term {export.term}, now its term is {log.term(index)}",
        )


def _halt(log: ReplicaLog, reason: str) -> Halted:
    log.blame(reason)
    return Halted(reason, shard=log.shard, replica=log.replica)
