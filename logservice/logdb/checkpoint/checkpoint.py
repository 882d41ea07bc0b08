"""Checkpoint: the derived index in the key-value store, and the position up to which it is true.

Rows (keys are big-endian so that they sort; values little-endian):

| key | value |
|---|---|
| ``m`` | format, incarnation, replayed-to segment and offset, last group, next write sequence |
| ``r shard replica`` | hard state, floor, removed/faulty, origins, cuts |
| ``b shard replica`` | bootstrap record |
| ``s shard replica`` | installed-snapshot record |
| ``c shard replica first`` | chunk: segment, last, first LSN, next LSN, bytes |
| ``d shard replica first`` | its columns, loaded when first needed |

- INV-CKPT-1: rows and position are written in one synced batch and cover only fdatasynced groups.
- INV-CKPT-2: the derived index is never needed: without it recovery reads all segments and comes to
  the same result.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from logservice_wire.value import value

from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.logdb.format.columns import EntryColumns, from_bytes, to_bytes
from logservice.logdb.format.commit_group import NO_GROUP, GroupPosition
from logservice.logdb.format.fault import REPAIRED, Fault
from logservice.logdb.format.record import RecordKind
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot
from logservice.logdb.index.index import Chunk
from logservice.logdb.index.replica_state import Cut, Key, Origin, ReplicaState
from logservice.logdb.io.kv import Kv, KvError
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.membership import MembershipCorrupt, shared
from logservice.snapshot import Snapshot, SnapshotCorrupt

CHECKPOINT_VERSION = 2
_META_KEY = b"m"
_META = struct.Struct("<IQQQQQIQQ")
_KEY = struct.Struct(">QQ")
_CHUNK_KEY = struct.Struct(">QQQ")
_CHUNK = struct.Struct("<QQQQQ")
_COLUMNS = struct.Struct("<QQQQQII")
_STATE = struct.Struct("<QQQQQQQQBIII")
_ORIGIN = struct.Struct("<IQQ")
_CUT = struct.Struct("<QQQQ")
_TRUNCATION = struct.Struct("<Q")


class CheckpointUnusable(Exception):
    """The derived index is absent, damaged, or does not fit the segments: rebuild it."""


@value
class LogPosition:
    """Everything before (segment, offset) is known. `last` is the last group, `sequence` its
    number.
    """

    segment: int = 0
    offset: int = 0
    last: GroupPosition = NO_GROUP
    sequence: int = 0
    next_write_sequence: int = 1


@dataclass(frozen=True, slots=True)
class CheckpointBatch:
    """A batch for the key-value store, detached from all live state but for `chunks`, whose columns
    may leave memory once the batch is written.
    """

    puts: list[tuple[bytes, bytes]]
    deletes: list[bytes]
    chunks: list[tuple[Key, Chunk]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Keys and values to be written."""
        return sum(len(key) + len(row) for key, row in self.puts)

    def after(self, earlier: CheckpointBatch) -> CheckpointBatch:
        """`earlier`, which was not written, and then this one, as one batch."""
        rows: dict[bytes, bytes | None] = {}
        for batch in (earlier, self):
            rows.update(dict.fromkeys(batch.deletes))
            rows.update(batch.puts)
        return CheckpointBatch(
            [(key, row) for key, row in rows.items() if row is not None],
            [key for key, row in rows.items() if row is None],
            earlier.chunks + self.chunks,
        )


def build_checkpoint(
    states: Iterable[ReplicaState], position: LogPosition, incarnation: int
) -> CheckpointBatch:
    """Rows for all that changed since the last call; marks it as written."""
    last = position.last
    puts = [
        (
            _META_KEY,
            _META.pack(
                CHECKPOINT_VERSION,
                incarnation,
                position.segment,
                position.offset,
                last.segment,
                last.offset,
                last.crc,
                position.sequence,
                position.next_write_sequence,
            ),
        )
    ]
    batch = CheckpointBatch(puts, [])
    for state in states:
        if state.dirty and (state.exists or state.removed):
            _state_rows(state, batch)
            state.dirty = False
    return batch


def _state_rows(state: ReplicaState, batch: CheckpointBatch) -> None:
    puts, deletes = batch.puts, batch.deletes
    key = _KEY.pack(state.shard, state.replica)
    puts.append((b"r" + key, _encode_state(state)))
    bootstrap, installed = state.bootstrap, state.installed
    if state.removed or bootstrap is None:
        deletes.append(b"b" + key)
    elif state.unsaved(RecordKind.BOOTSTRAP):
        puts.append((b"b" + key, bytes([bootstrap.join]) + bootstrap.membership.encode()))
    if state.removed or installed is None:
        deletes.append(b"s" + key)
    elif state.unsaved(RecordKind.INSTALLED):
        puts.append(
            (b"s" + key, _TRUNCATION.pack(installed.truncation_lsn) + installed.snapshot.encode())
        )
    chunks, dropped = state.index.take_changes()
    for first in sorted(dropped):
        chunk_key = _CHUNK_KEY.pack(state.shard, state.replica, first)
        deletes += [b"c" + chunk_key, b"d" + chunk_key]
    for chunk in chunks:
        chunk_key = _CHUNK_KEY.pack(state.shard, state.replica, chunk.first)
        puts.append((b"c" + chunk_key, _encode_chunk(chunk)))
        puts.append((b"d" + chunk_key, _encode_columns(state.index.columns(chunk))))
        batch.chunks.append((state.key, chunk))


def load_checkpoint(kv: Kv, files: SegmentFiles) -> tuple[LogPosition, dict[Key, ReplicaState]]:
    """The position and all states, without columns; raises CheckpointUnusable, KvError."""
    try:
        return _load(kv, files)
    except (struct.error, ValueError, MembershipCorrupt, SnapshotCorrupt) as error:
        raise CheckpointUnusable(f"a row does not decode: {error}") from error


def _load(kv: Kv, files: SegmentFiles) -> tuple[LogPosition, dict[Key, ReplicaState]]:
    meta = kv.get(_META_KEY)
    if meta is None:
        raise CheckpointUnusable("it is empty")
    version, owner, segment, offset, last_segment, last_offset, crc, sequence, next_sequence = (
        _META.unpack(meta)
    )
    if version != CHECKPOINT_VERSION or owner != files.incarnation:
        raise CheckpointUnusable(f"format {version}, incarnation {owner}")
    states: dict[Key, ReplicaState] = {}
    for key, row in kv.scan(b"r"):
        shard, replica = _KEY.unpack(key[1:])
        states[shard, replica] = _decode_state(shard, replica, row)
    for key, row in kv.scan(b"b"):
        bootstrap = Bootstrap(shared(row[1:]), bool(row[0]))
        _owner(states, key).bootstrap = bootstrap
    for key, row in kv.scan(b"s"):
        (truncation,) = _TRUNCATION.unpack_from(row)
        snapshot = Snapshot.decode(row[_TRUNCATION.size :])
        _owner(states, key).installed = InstalledSnapshot(snapshot, Lsn(truncation))
    chunks: dict[Key, list[Chunk]] = {}
    for key, row in kv.scan(b"c"):
        shard, replica, first = _CHUNK_KEY.unpack(key[1:])
        chunk_segment, last, first_lsn, next_lsn, size = _CHUNK.unpack(row)
        chunk = Chunk(chunk_segment, first, last, first_lsn, next_lsn, size, size, None, saved=True)
        if (shard, replica) not in states:
            raise CheckpointUnusable("a chunk without a replica")
        chunks.setdefault((shard, replica), []).append(chunk)
    for owner_key, found in chunks.items():
        _attach(states[owner_key], found)
    last_group = GroupPosition(last_segment, last_offset, crc)
    return LogPosition(segment, offset, last_group, sequence, next_sequence), states


def _owner(states: dict[Key, ReplicaState], key: bytes) -> ReplicaState:
    state = states.get(_KEY.unpack(key[1:]))
    if state is None:
        raise CheckpointUnusable("a row without a replica")
    return state


def _attach(state: ReplicaState, chunks: list[Chunk]) -> None:
    for left, right in itertools.pairwise(chunks):
        if right.first != left.last + 1 or right.first_lsn != left.next_lsn:
            raise CheckpointUnusable("chunks with a hole between")
    index = state.index
    if chunks[0].first > index.floor_index + 1 or chunks[-1].last <= index.floor_index:
        raise CheckpointUnusable("chunks that do not fit the floor")
    floor = (index.floor_index, index.floor_term, index.floor_next_lsn)
    index.restore(floor, chunks)


def load_columns(kv: Kv, key: Key, chunk: Chunk) -> EntryColumns | None:
    """The columns of a chunk from their row, None when that is damaged or of another chunk."""
    try:
        run = _decode_columns(kv.get(b"d" + _CHUNK_KEY.pack(*key, chunk.first)) or b"")
    except (CheckpointUnusable, KvError, struct.error):
        return None
    if (run.segment, run.first, run.last) != (chunk.segment, chunk.first, chunk.last):
        return None
    return run


def _encode_chunk(chunk: Chunk) -> bytes:
    return _CHUNK.pack(chunk.segment, chunk.last, chunk.first_lsn, chunk.next_lsn, chunk.size)


def _encode_columns(run: EntryColumns) -> bytes:
    head = _COLUMNS.pack(
        run.segment, run.first, run.write_sequence, run.next_lsn, run.size, len(run), len(run.terms)
    )
    columns = (run.lsns, run.offsets, run.lengths, run.term_starts, run.terms)
    return head + b"".join(map(to_bytes, columns))


def _decode_columns(value: bytes) -> EntryColumns:
    segment, first, write_sequence, next_lsn, size, count, terms = _COLUMNS.unpack_from(value)
    if len(value) != _COLUMNS.size + 16 * count + 16 * terms or not count or not terms:
        raise CheckpointUnusable("columns of the wrong length")
    view, position = memoryview(value), _COLUMNS.size
    columns = []
    for typecode, length in (("Q", count), ("I", count), ("I", count), ("Q", terms), ("Q", terms)):
        end = position + length * (8 if typecode == "Q" else 4)
        columns.append(from_bytes(typecode, view[position:end]))
        position = end
    lsns, offsets, lengths, term_starts, term_values = columns
    return EntryColumns(
        segment,
        first,
        write_sequence,
        lsns,
        offsets,
        lengths,
        term_starts,
        term_values,
        next_lsn,
        size,
    )


def _encode_state(state: ReplicaState) -> bytes:
    index, hard = state.index, state.hard_state
    fault = state.fault or REPAIRED
    reason = fault.reason.encode()
    parts = [
        _STATE.pack(
            hard.term,
            hard.vote,
            hard.commit,
            index.floor_index,
            index.floor_term,
            index.floor_next_lsn,
            fault.damaged_from,
            fault.acked_through,
            state.removed,
            len(reason),
            len(state.origins),
            len(state.cuts),
        ),
        reason,
    ]
    parts += [
        _ORIGIN.pack(kind, origin.write_sequence, origin.segment)
        for kind, origin in sorted(state.origins.items())
    ]
    parts += [_CUT.pack(c.write_sequence, c.index, c.segment, c.born) for c in state.cuts]
    return b"".join(parts)


def _decode_state(shard: int, replica: int, value: bytes) -> ReplicaState:
    (
        term,
        vote,
        commit,
        floor,
        floor_term,
        floor_lsn,
        damaged_from,
        acked_through,
        removed,
        reason,
        origins,
        cuts,
    ) = _STATE.unpack_from(value)
    position = _STATE.size + reason
    state = ReplicaState(
        shard,
        replica,
        HardState(Term(term), ReplicaId(vote), Index(commit)),
        removed=bool(removed),
        dirty=False,
    )
    if reason:
        text = value[_STATE.size : position].decode()
        state.fault = Fault(text, Index(damaged_from), Index(acked_through))
    state.index.compact(floor, floor_term, floor_lsn)
    for _ in range(origins):
        kind, sequence, segment = _ORIGIN.unpack_from(value, position)
        state.origins[RecordKind(kind)] = Origin(sequence, segment)
        position += _ORIGIN.size
    if RecordKind.FAULTY in state.origins:
        state.marked = state.fault
    for kind in (RecordKind.BOOTSTRAP, RecordKind.INSTALLED):
        if kind in state.origins:
            state.saved[kind] = state.origins[kind].write_sequence
    for _ in range(cuts):
        sequence, index, segment, born = _CUT.unpack_from(value, position)
        state.cuts.append(Cut(sequence, Index(index), segment, born))
        position += _CUT.size
    return state
