"""Resolving one replica: many runs of records, some copied, some superseded, some damaged -> one
state.

Order is by write sequence (INV-REC-1). Records that are not entries: the newest of each kind.
Entries are taken from the newest run backwards, with `limit` the lowest index that anything newer
has replaced:

    live part of a run = max(first, floor + 1) .. min(last, limit - 1);  then limit = min(limit,
    first)

so nothing is ever taken that a later write replaced, holes that collected segments leave below the
floor do not matter, and a copy (same write sequences) simply wins over its original. What remains
must join without a gap from the base or the floor on; a gap or a damaged live part makes the
replica faulty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logservice.hard_state import HardState
from logservice.ids import Index, ReplicaId, Term
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import RecordRun
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.record import Installed, Meta, RecordKind
from logservice.logdb.format.segment import segment_name
from logservice.logdb.format.segment_scan import DamagedRun
from logservice.logdb.index.replica_state import Cut, Key, ReplicaState


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that does not verify. key None: nobody knows whose. harmless: superseded since."""

    segment: int
    offset: int
    detail: str
    key: Key | None = None
    harmless: bool = False

    def __str__(self) -> str:
        return f"{segment_name(self.segment)} at {self.offset}: {self.detail}"


@dataclass(frozen=True, slots=True)
class _Span:
    """Entries as far as ordering goes. run None: damaged."""

    write_sequence: int
    first: int
    last: int
    run: EntryColumns | None
    damaged: DamagedRun | None = None


def resolve(
    state: ReplicaState,
    runs: Sequence[RecordRun],
    damaged: Sequence[DamagedRun],
    base_sequence: int,
) -> list[Damage]:
    """Bring `state` (the base) up to date; returns what was found damaged, faulty or harmless.

    Everything written before `base_sequence` is in the base already; no run starts below it.
    """
    state.dirty = True
    ordered = sorted(runs, key=lambda run: run.write_sequence)
    for run in ordered:
        for meta in run.metas:
            state.apply_meta(meta, run.segment)
            if isinstance(meta.value, Installed) and meta.value.reset:
                state.add_cut(Cut(meta.write_sequence, Index(0), run.segment, run.segment))
    lost = {id(bad): _restore(state, bad) for bad in damaged}
    if state.removed:
        state.clear()
        return [_damage(bad, "of a removed replica", harmless=True) for bad in damaged]
    _note_overwrites(state, ordered)
    spans = _spans(ordered, damaged)
    pieces, bad_pieces = _live_parts(state, spans, base_sequence)
    _join(state, pieces, bad_pieces)
    only_entries = not any(lost.values())
    for bad, low, high in bad_pieces:
        lost[id(bad)].append(f"entries {low} to {high}")
    damages = []
    for bad in damaged:
        what = lost[id(bad)]
        damages.append(_damage(bad, "lost " + ", ".join(what) if what else "", harmless=not what))
    serious = [damage for damage in damages if not damage.harmless]
    if serious and only_entries:
        ends = [piece.last for piece in pieces] + [high for _, _, high in bad_pieces]
        acked = max(state.hard_state.commit, *ends)
        state.blame(Fault(str(serious[0]), Index(state.index.last_index + 1), Index(acked)))
    elif serious:
        state.blame(Fault(str(serious[0])))
    if state.fault is not None:
        # The newest mark may be older than the newest entries (INV-FAULT-1).
        state.fault = state.fault.reaching(state.index.last_index)
    return damages


def _damage(bad: DamagedRun, effect: str, *, harmless: bool) -> Damage:
    detail = bad.detail + (f": {effect}" if effect else ": superseded since")
    return Damage(bad.segment, bad.offset, detail, (bad.row.shard, bad.row.replica), harmless)


def _restore(state: ReplicaState, bad: DamagedRun) -> list[str]:
    """Take from the directory what it repeats of a damaged run; returns what is lost all the
    same.
    """
    row = bad.row

    def newest(kind: RecordKind) -> bool:
        known = state.origins.get(kind)
        return row.has(kind) and (known is None or known.write_sequence < row.write_sequence)

    lost: list[str] = []
    if newest(RecordKind.HARD_STATE):
        hard = HardState(Term(row.term), ReplicaId(row.vote), Index(row.commit))
        state.apply_meta(Meta(RecordKind.HARD_STATE, row.write_sequence, hard), bad.segment)
    if newest(RecordKind.COMMIT):
        commit = Meta(RecordKind.COMMIT, row.write_sequence, Index(row.commit))
        state.apply_meta(commit, bad.segment)
    if newest(RecordKind.TOMBSTONE):
        tombstone = Meta(RecordKind.TOMBSTONE, row.write_sequence, None)
        state.apply_meta(tombstone, bad.segment)
    if row.has(RecordKind.CUT):
        state.add_cut(Cut(row.write_sequence, Index(row.index), bad.segment, bad.segment))
    if newest(RecordKind.BOOTSTRAP):
        lost.append("the bootstrap record")
    if newest(RecordKind.INSTALLED):
        lost.append("the installed snapshot")
    if newest(RecordKind.FAULTY):
        lost.append("the reason of an earlier fault")
    return lost


def _note_overwrites(state: ReplicaState, ordered: Sequence[RecordRun]) -> None:
    """Remember which runs replaced entries that are on disk (INV-STATE-2)."""
    highest = state.index.last_index
    for run in ordered:
        columns = run.columns
        if columns is None:
            continue
        if columns.first <= highest:
            first = Index(columns.first)
            state.add_cut(Cut(columns.write_sequence, first, run.segment, run.segment))
        highest = max(highest, columns.last)


def _spans(ordered: Sequence[RecordRun], damaged: Sequence[DamagedRun]) -> list[_Span]:
    spans = [
        _Span(run.columns.write_sequence, run.columns.first, run.columns.last, run.columns)
        for run in ordered
        if run.columns is not None
    ]
    for bad in damaged:
        row = bad.row
        if not row.has(RecordKind.ENTRY):
            continue
        first_sequence = row.write_sequence + row.record_count - (row.last_index - row.index + 1)
        end_sequence = row.write_sequence + row.record_count
        copied = any(
            span.write_sequence <= first_sequence
            and end_sequence <= span.write_sequence + span.last - span.first + 1
            for span in spans
            if span.run is not None
        )
        if not copied:
            spans.append(_Span(first_sequence, row.index, row.last_index, None, bad))
    spans.sort(key=lambda span: (span.write_sequence, span.run is not None))
    return spans


def _live_parts(
    state: ReplicaState, spans: Sequence[_Span], base_sequence: int
) -> tuple[list[EntryColumns], list[tuple[DamagedRun, int, int]]]:
    """Live parts in ascending index order, and the live parts of damaged runs. Cuts the base."""
    floor = state.index.floor_index
    if state.installed is not None:
        floor = max(floor, state.installed.snapshot.index)
    cuts = [cut for cut in state.cuts if cut.write_sequence >= base_sequence]
    limit = 1 << 64
    pieces: list[EntryColumns] = []
    bad_pieces: list[tuple[DamagedRun, int, int]] = []
    for span in reversed(spans):
        while cuts and cuts[-1].write_sequence > span.write_sequence:
            limit = min(limit, cuts.pop().index)
        low, high = max(span.first, floor + 1), min(span.last, limit - 1)
        if low <= high:
            if span.run is not None:
                pieces.append(span.run.keep(low, high))
            elif span.damaged is not None:
                bad_pieces.append((span.damaged, low, high))
        limit = min(limit, span.first)
    state.index.cut(min([limit, *(cut.index for cut in cuts)]))
    pieces.reverse()
    return pieces, bad_pieces


def _join(
    state: ReplicaState,
    pieces: Sequence[EntryColumns],
    bad_pieces: Sequence[tuple[DamagedRun, int, int]],
) -> None:
    """Put the live parts behind the base. What does not join although nothing there is known to be
    damaged makes the replica faulty: nobody knows what else is gone.
    """
    mark = state.fault

    def damaged(first: int, last: int) -> bool:
        if (
            mark is not None
            and mark.repairable
            and mark.damaged_from <= first
            and last <= max(mark.acked_through, commit)
        ):
            # A repair was under way: it starts at the first damaged entry and goes up.
            return True
        known = sum(
            min(high, last) - max(low, first) + 1
            for _, low, high in bad_pieces
            if low <= last and first <= high
        )
        return known == last - first + 1

    index, commit = state.index, state.hard_state.commit
    if state.installed is not None and state.installed.snapshot.index >= index.floor_index:
        snapshot = state.installed.snapshot
        index.compact(snapshot.index, snapshot.term, snapshot.next_lsn)
    for piece in pieces:
        if piece.first != index.last_index + 1 or piece.lsns[0] != index.tail_lsn:
            first = index.last_index + 1
            if piece.first <= first:
                state.blame(Fault(f"entry {piece.first} does not continue the log"))
            elif not damaged(first, piece.first - 1):
                state.blame(Fault(f"entries {first} to {piece.first - 1} are missing"))
            return
        index.append(piece)
    last = index.last_index
    if commit > last and not damaged(last + 1, commit):
        state.blame(Fault(f"the log ends at {last}, commit is {commit}"))
