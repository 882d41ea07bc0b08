"""Planning a commit group: which records its updates become, if they continue what is there.

The checks are the last line before the disk: a caller that breaks one is wrong about its own log,
and writing would turn that into damage.

Two kinds of records need no group, and no sync, of their own; the planner keeps them in memory:

- commit indexes: losing one in a crash costs nothing, because the leader says it again. Written
  un-synced they would be a second un-synced group (INV-GROUP-2), so they wait;
- marks of damage: while the damage is found again at the next start, a lost mark costs nothing.

Both travel with the next group that is not begun ahead (INV-LOGDB-5: the one before it may carry
them already), at the latest the first of the next segment.

- INV-PLAN-TERM: terms never fall. INV-PLAN-VOTE: a vote given in a term is never changed.
- INV-PLAN-COMMIT: commit never falls and never passes the last entry.
- INV-PLAN-CUT: a committed entry is never replaced.
- INV-PLAN-LOG: entries join the log and each other: index, term, LSN (INV-LOG-LSN).
- INV-PLAN-REPAIR: only a fault that is repairable in place is repaired, from its first damaged
  entry on. The repair is over when the log holds everything that the replica knows to be committed,
  and everything that it may have acknowledged. That is everything through `acked_through`; or
  everything up to a committed entry of a term beyond its own, since by leader completeness all that
  was committed in the terms that it acknowledged in lies before such an entry. What an installed
  snapshot covers was committed, too, so it counts as held. Until the repair is over a mark on disk
  says so, at the latest from its first entries on.
- INV-PLAN-SNAPSHOT: an installed snapshot agrees with the entry at its index, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from logservice.entry import Entry
from logservice.hard_state import HardState
from logservice.ids import NO_REPLICA, Index
from logservice.invariants import invariant
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.fault import REPAIRED
from logservice.logdb.format.record import COMMIT, Installed, Meta, RecordKind
from logservice.logdb.format.update import InstalledSnapshot, Update
from logservice.logdb.index.replica_state import Key, ReplicaState
from logservice.snapshot import Snapshot


class Planner:
    """Says which records the next group of one log has. See the head of this file."""

    def __init__(
        self,
        states: Mapping[Key, ReplicaState],
        new_state: Callable[[Key], ReplicaState],
        *,
        marks: bool,
    ) -> None:
        """`states` holds the states of all replicas; `new_state` adds one. marks: recovery found
        damage that no mark names.
        """
        self.marks = marks
        """Some damage has no mark on disk that names it."""
        self._states = states
        self._new_state = new_state
        self._commits: dict[Key, Index] = {}
        """The commit indexes that wait, by replica."""

    def plan(self, updates: Sequence[Update], sequence: int) -> tuple[list[RecordRun], int, bool]:
        """What makes `updates` durable, from write sequence `sequence` on, and what had waited for
        that: the runs, the write sequence behind them, and whether the group may wait.

        It may wait if it holds nothing but commit indexes.
        """
        runs: list[RecordRun] = []
        may_wait = True
        states = self._states
        keys: set[Key] = set()
        for update in updates:
            key = (update.shard, update.replica)
            keys.add(key)
            run = plan_run(states.get(key) or self._new_state(key), update, sequence)
            if run is not None:
                may_wait = may_wait and _commit_only(run)
                sequence += len(run.metas) + len(run.entries)
                runs.append(run)
        if len(keys) < len(updates):
            invariant(False, "INV-LOGDB-ONE-UPDATE", keys=[(u.shard, u.replica) for u in updates])
        if may_wait and not self.marks:
            return runs, sequence, True
        waiting = self.waiting(sequence, runs)
        runs += waiting
        return runs, sequence + sum(run.record_count for run in waiting), False

    def plan_ahead(
        self, updates: Sequence[Update], before: Sequence[RecordRun], sequence: int
    ) -> tuple[list[RecordRun], int] | None:
        """`plan` while the group with the runs `before` is at the disk. None when what comes of the
        updates is only known, or may only be written, once that one is finished (INV-LOGDB-5).
        """
        if self.marks:
            return None
        earlier = {(run.shard, run.replica): run for run in before}
        if len(earlier) < len(before):
            return None  # a commit index that had waited came with other news of its replica
        runs: list[RecordRun] = []
        keys: set[Key] = set()
        for update in updates:
            key = (update.shard, update.replica)
            keys.add(key)
            state = self._states.get(key) or self._new_state(key)
            try:
                run = _plan_run_ahead(state, earlier.get(key), update, sequence)
            except _MustWait:
                return None
            if run is not None:
                sequence += len(run.metas) + len(run.entries)
                runs.append(run)
        invariant(len(keys) == len(updates), "INV-LOGDB-ONE-UPDATE", keys=keys)
        return None if all(map(_commit_only, runs)) else (runs, sequence)

    def waiting(self, sequence: int, present: Sequence[RecordRun] = ()) -> list[RecordRun]:
        """Runs of what waits, from write sequence `sequence` on, for a group that has the runs
        `present`: marks of replicas that are not among them, and commit indexes where those say no
        newer one.
        """
        runs = self._marks(sequence, present) if self.marks else []
        sequence += len(runs)
        if self._commits:
            newer = {(run.shard, run.replica) for run in present if _says_commit(run)}
            for key, commit in self._commits.items():
                if key not in newer:
                    runs.append(RecordRun(*key, sequence, [Meta(COMMIT, sequence, commit)]))
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
        """These were planned, and not written."""
        self.marks = self.marks or any(
            meta.kind is RecordKind.FAULTY for run in runs for meta in run.metas
        )

    def hold(self, run: RecordRun) -> None:
        """Show the commit indexes of a run that is not written now, and let them wait."""
        state = self._states[run.shard, run.replica]
        for meta in run.metas:
            assert isinstance(meta.value, int)
            hard = state.hard_state
            state.hard_state = HardState(hard.term, hard.vote, meta.value)
            self._commits[state.key] = meta.value

    def written(self, run: RecordRun, *, removed: bool) -> None:
        """The run is durable; `removed`: the replica is no more."""
        if self._commits and (removed or _says_commit(run)):
            self._commits.pop((run.shard, run.replica), None)


class _MustWait(Exception):
    """What the update becomes is only known once the group before it is durable."""


def plan_run(state: ReplicaState, update: Update, write_sequence: int) -> RecordRun | None:
    """The records that make `update` durable, None if it changes nothing.

    INV-PLAN-REMOVED: nothing more is written for a replica that was removed.
    """
    if state.removed:
        invariant(False, "INV-PLAN-REMOVED", key=state.key)
    index, old = state.index, state.hard_state
    last, tail_lsn = index.last_index, index.tail_lsn
    if _continues(update, last):
        return _plan_continuation(state, update, write_sequence, old, last, tail_lsn, -1)
    metas: list[Meta] = []
    if update.repair:
        _check_repair(state, update)
    if update.remove:
        metas.append(Meta(RecordKind.TOMBSTONE, write_sequence, None))
        return RecordRun(update.shard, update.replica, write_sequence, metas)
    entries = update.entries
    snapshot = None if update.snapshot is None else _checked_snapshot(state, update)
    if snapshot is not None:
        floor = snapshot.snapshot
        if update.reset_log or floor.index >= last:
            last, tail_lsn = floor.index, floor.next_lsn
    if entries:
        _check_entries(state, update, snapshot, last, tail_lsn)
        last = entries[-1].index
    if update.hard_state is not None:
        _add_hard_state(metas, state, old, update.hard_state, last, write_sequence)
    if update.bootstrap is not None:
        metas.append(Meta(RecordKind.BOOTSTRAP, write_sequence + len(metas), update.bootstrap))
    if snapshot is not None:
        installed = Installed(snapshot, update.reset_log)
        metas.append(Meta(RecordKind.INSTALLED, write_sequence + len(metas), installed))
    if update.repair:
        over = _restored(state, update)
        changes = bool(entries) or snapshot is not None
        if over or (changes and state.fault != state.marked):
            # The mark would wait for a group without this replica (`Planner._marks`), and not even
            # the damage would be left to tell that more is missing.
            said = REPAIRED if over else state.fault
            metas.append(Meta(RecordKind.FAULTY, write_sequence + len(metas), said))
    if not metas and not entries:
        return None
    return RecordRun(
        update.shard, update.replica, write_sequence, metas, entries, repair=update.repair
    )


def _plan_run_ahead(
    state: ReplicaState, before: RecordRun | None, update: Update, write_sequence: int
) -> RecordRun | None:
    """`plan_run` while `before`, the replica's run in the group at the disk, is not in `state` yet.

    INV-PLAN-AHEAD: only entries that continue the log and hard states are planned like this, and
    only behind a run of nothing else. Such a run changes the state in two ways, and both are known
    before it is durable: the log ends with its last entry, and its newest hard state holds. Every
    other update raises `_MustWait`.
    """
    last, tail_lsn, old, term = state.index.last_index, state.index.tail_lsn, state.hard_state, -1
    if state.removed:
        raise _MustWait
    if before is not None:
        for meta in before.metas:
            if meta.kind is COMMIT and isinstance(meta.value, int):
                old = HardState(old.term, old.vote, meta.value)
            elif isinstance(meta.value, HardState):
                old = meta.value
            else:
                raise _MustWait
        if before.entries:
            if before.entries[0].index != last + 1:
                raise _MustWait
            newest = before.entries[-1]
            last, tail_lsn, term = newest.index, newest.next_lsn, newest.term
    if not _continues(update, last):
        raise _MustWait
    return _plan_continuation(state, update, write_sequence, old, last, tail_lsn, term)


def _continues(update: Update, last: int) -> bool:
    """Whether the update has only entries that continue a log that ends at `last`, a hard state, or
    both: nearly every update has.
    """
    if update.repair or update.remove or update.bootstrap or update.snapshot:
        return False
    return not update.entries or update.entries[0].index == last + 1


def _plan_continuation(
    state: ReplicaState,
    update: Update,
    write_sequence: int,
    old: HardState,
    last: int,
    tail_lsn: int,
    tail_term: int,
) -> RecordRun | None:
    """The records of an update that `_continues` a log whose last entry is at `last` and whose hard
    state is `old`. `tail_term` -1: `state` knows it.
    """
    entries, hard = update.entries, update.hard_state
    if entries:
        if last < old.commit:
            invariant(False, "INV-PLAN-CUT", key=state.key, first=last + 1, commit=old.commit)
        term = state.index.tail_term() if tail_term < 0 else tail_term
        _check_joined(state, entries, tail_lsn, term)
        last = entries[-1].index
    metas: list[Meta] = []
    if hard is not None:
        _add_hard_state(metas, state, old, hard, last, write_sequence)
    if not metas and not entries:
        return None
    return RecordRun(update.shard, update.replica, write_sequence, metas, entries)


def _commit_only(run: RecordRun) -> bool:
    """Whether the run may wait for the next group that must be synced."""
    return not run.entries and all(meta.kind is COMMIT for meta in run.metas)


def _says_commit(run: RecordRun) -> bool:
    """Whether a record of it says the commit index (a tombstone makes it pointless)."""
    return any(
        meta.kind in (COMMIT, RecordKind.HARD_STATE, RecordKind.TOMBSTONE) for meta in run.metas
    )


def _check_repair(state: ReplicaState, update: Update) -> None:
    fault = update.repair
    invariant(
        state.fault is not None and fault is not None and fault.repairable,
        "INV-PLAN-REPAIR",
        key=state.key,
        fault=state.fault,
        repair=fault,
    )
    assert fault is not None
    first = max(fault.damaged_from, state.index.floor_index + 1)
    invariant(
        not update.entries or update.entries[0].index >= first or update.reset_log,
        "INV-PLAN-REPAIR",
        key=state.key,
        fault=fault,
        first=first,
    )


def _restored(state: ReplicaState, update: Update) -> bool:
    """Whether the repair is complete with this update."""
    fault = update.repair
    if fault is None or fault != state.fault:
        return False
    end: Entry | Snapshot | None = update.entries[-1] if update.entries else None
    if end is None and update.snapshot is not None:
        end = update.snapshot.snapshot
    if end is None:
        return state.index.floor_index >= max(fault.acked_through, state.hard_state.commit)
    if end.index < state.hard_state.commit:
        # A group that was on its way when the damage was found acknowledged nothing any more, but
        # may say that more is committed.
        return False
    return end.index >= fault.acked_through or end.term > state.hard_state.term


def _add_hard_state(
    metas: list[Meta], state: ReplicaState, old: HardState, new: HardState, last: int, sequence: int
) -> None:
    """Append the record that makes `new` of `old`, if one is needed."""
    if new.term != old.term or new.vote != old.vote:
        _check_hard_state(old, new, last, state.key)
        metas.append(Meta(RecordKind.HARD_STATE, sequence, new))
    elif new.commit != old.commit:
        if not old.commit < new.commit <= last:
            _check_hard_state(old, new, last, state.key)
        metas.append(Meta(COMMIT, sequence, new.commit))


def _check_hard_state(old: HardState, new: HardState, last: int, key: tuple[int, int]) -> None:
    invariant(new.term >= old.term, "INV-PLAN-TERM", key=key, old=old, new=new)
    invariant(
        new.term > old.term or old.vote in (NO_REPLICA, new.vote),
        "INV-PLAN-VOTE",
        key=key,
        old=old,
        new=new,
    )
    invariant(
        old.commit <= new.commit <= last, "INV-PLAN-COMMIT", key=key, old=old, new=new, last=last
    )


def _checked_snapshot(state: ReplicaState, update: Update) -> InstalledSnapshot | None:
    """The snapshot to install; one below the installed one changes nothing."""
    installed = update.snapshot
    index = state.index
    if installed is None:
        return None
    snapshot = installed.snapshot
    if update.reset_log:
        least = 0 if update.repair else state.hard_state.commit
        invariant(
            snapshot.index >= max(least, index.floor_index),
            "INV-PLAN-SNAPSHOT",
            key=state.key,
            snapshot=snapshot.index,
            hard=state.hard_state,
        )
        return installed
    if snapshot.index < index.floor_index:
        return None
    if snapshot.index <= index.last_index:
        ours = (index.term(snapshot.index), index.next_lsn(snapshot.index))
        invariant(
            ours == (snapshot.term, snapshot.next_lsn) or (snapshot.index, ours) == (0, (0, 1)),
            "INV-PLAN-SNAPSHOT",
            key=state.key,
            snapshot=snapshot.index,
            ours=ours,
        )
    return installed


def _check_entries(
    state: ReplicaState,
    update: Update,
    snapshot: InstalledSnapshot | None,
    last: int,
    tail_lsn: int,
) -> None:
    entries, commit = update.entries, state.hard_state.commit
    position: int = entries[0].index
    if position <= commit and not update.repair:
        invariant(False, "INV-PLAN-CUT", key=state.key, first=position, commit=commit)
    lsn, term = _before(state, snapshot, position, last, tail_lsn)
    _check_joined(state, entries, lsn, term)


def _check_joined(state: ReplicaState, entries: Sequence[Entry], lsn: int, term: int) -> None:
    """The entries join each other, and the first of them what ends at (LSN, term)."""
    position: int = entries[0].index
    for entry in entries:
        if entry.index != position or entry.lsn != lsn or entry.term < term:
            invariant(
                False,
                "INV-PLAN-LOG",
                key=state.key,
                index=entry.index,
                expected=position,
                lsn=entry.lsn,
                expected_lsn=lsn,
                term=entry.term,
                term_before=term,
            )
        position += 1
        lsn, term = entry.lsn + entry.record_count, entry.term


def _before(
    state: ReplicaState, snapshot: InstalledSnapshot | None, first: int, last: int, tail_lsn: int
) -> tuple[int, int]:
    """(LSN, least term) of the entry at `first`, by what precedes it once `snapshot` is
    installed.
    """
    index = state.index
    floor, floor_term, floor_lsn = index.floor_index, index.floor_term, index.floor_next_lsn
    if snapshot is not None:
        floor, floor_term = snapshot.snapshot.index, snapshot.snapshot.term
        floor_lsn = snapshot.snapshot.next_lsn
    if not floor < first <= last + 1:
        invariant(False, "INV-PLAN-LOG", key=state.key, first=first, floor=floor, last=last)
    if first == floor + 1:
        return floor_lsn, floor_term
    if first == last + 1:
        return tail_lsn, index.tail_term()
    return index.next_lsn(first - 1), index.term(first - 1)
