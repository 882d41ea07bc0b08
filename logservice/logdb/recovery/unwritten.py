"""Unwritten: records that wait in memory until something else is written.

Two kinds of records need no group, and no sync, of their own:

- commit indexes: losing one in a crash costs nothing, because the leader says it again. Written
  un-synced they would be a second un-synced group (INV-GROUP-2), so they wait in memory;
- marks of damage: while the damage is found again at the next start, a lost mark costs nothing.

Both travel with the next group that is not begun ahead (INV-LOGDB-5: the one before it may carry
them already), at the latest the first of the next segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logservice.hard_state import HardState
from logservice.ids import Index
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.record import Meta, RecordKind
from logservice.logdb.index.replica_state import Key, ReplicaState


class Unwritten:
    """See the head of this file. `states` are all replicas', and their owner's."""

    def __init__(self, states: Mapping[Key, ReplicaState], *, marks: bool) -> None:
        """`marks`: recovery found damage that no mark names."""
        self.marks = marks
        self._states = states
        self._commits: dict[Key, Index] = {}

    def take(self, sequence: int, present: Sequence[RecordRun] = ()) -> list[RecordRun]:
        """Runs of it, from write sequence `sequence` on, for a group that has the runs `present`:
        marks of replicas that are not among them, and commit indexes where those say no newer one.
        """
        runs = self._marks(sequence, present) if self.marks else []
        sequence += len(runs)
        if self._commits:
            newer = {(run.shard, run.replica) for run in present if says_commit(run)}
            for key, commit in self._commits.items():
                if key not in newer:
                    runs.append(
                        RecordRun(*key, sequence, [Meta(RecordKind.COMMIT, sequence, commit)])
                    )
                    sequence += 1
        return runs

    def _marks(self, sequence: int, present: Sequence[RecordRun]) -> list[RecordRun]:
        busy = {(run.shard, run.replica) for run in present}
        unmarked = [
            state for state in self._states.values() if state.fault not in (None, state.marked)
        ]
        runs: list[RecordRun] = []
        for state in unmarked:
            if state.key not in busy and state.fault is not None:
                mark = Meta(RecordKind.FAULTY, sequence, state.fault)
                runs.append(RecordRun(*state.key, sequence, [mark]))
                sequence += 1
        self.marks = len(runs) < len(unmarked)
        return runs

    def gave_back(self, runs: Sequence[RecordRun]) -> None:
        """These were taken, and not written."""
        self.marks = self.marks or any(
            meta.kind is RecordKind.FAULTY for run in runs for meta in run.metas
        )

    def hold(self, run: RecordRun) -> None:
        """Show the commit indexes of a run that is not written now."""
        state = self._states[run.shard, run.replica]
        for meta in run.metas:
            assert isinstance(meta.value, int)
            hard = state.hard_state
            state.hard_state = HardState(hard.term, hard.vote, meta.value)
            self._commits[state.key] = meta.value

    def written(self, run: RecordRun, *, removed: bool) -> None:
        """The run is durable; `removed`: the replica is no more."""
        if self._commits and (removed or says_commit(run)):
            self._commits.pop((run.shard, run.replica), None)


def says_commit(run: RecordRun) -> bool:
    """Whether a record of it says the commit index (a tombstone makes it pointless)."""
    return any(
        meta.kind in (RecordKind.COMMIT, RecordKind.HARD_STATE, RecordKind.TOMBSTONE)
        for meta in run.metas
    )
