"""Samples of the formats on disk: blocks, log storage, and what a replica puts into it."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from logservice_wire import block as block_module
from logservice_wire.block import Block, encode_block, validate_block
from logservice_wire.column_block import encode_columns
from logservice_wire.errors import CodecMissing, CorruptBlock, Reason

from logservice import config_change, envelope, membership, snapshot, versions
from logservice.config_change import ChangeCorrupt, ChangeKind, ChangeStep, ConfigChange, Transition
from logservice.entry import Entry, EntryKind
from logservice.envelope import BlockEnvelope, EnvelopeCorrupt, ProposalId
from logservice.hard_state import HardState
from logservice.ids import (
    ClusterId,
    Incarnation,
    Index,
    Lsn,
    ReplicaId,
    SessionId,
    ShardId,
    StoreId,
    Term,
)
from logservice.lineage import Lineage
from logservice.logdb.checkpoint import checkpoint
from logservice.logdb.checkpoint.checkpoint import CheckpointUnusable, LogPosition
from logservice.logdb.format import commit_group, durable_mark, record, segment
from logservice.logdb.format.columns import EntryColumns
from logservice.logdb.format.commit_group import FLAG_MARK, GroupPosition, RecordRun
from logservice.logdb.format.durable_mark import DurableMark, decode_mark, encode_mark
from logservice.logdb.format.encryption import segment_cipher
from logservice.logdb.format.fault import REPAIRED, Fault
from logservice.logdb.format.group_encoder import encode_group, encode_runs
from logservice.logdb.format.record import (
    Installed,
    Meta,
    RecordCorrupt,
    RecordKind,
    SegmentEnds,
    segment_seed,
)
from logservice.logdb.format.segment import PLAIN, KeyLabel, SegmentVersionError
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot
from logservice.logdb.index.replica_state import Cut, Origin, ReplicaState
from logservice.logdb.io import data_directory
from logservice.logdb.io.data_directory import Identity
from logservice.logdb.io.memory_kv import MemoryKvEngine
from logservice.logdb.io.memory_vfs import MemoryVfs
from logservice.logdb.io.segment_files import SegmentFiles
from logservice.membership import Member, Membership, MembershipCorrupt
from logservice.nodehost.truncation import export_file
from logservice.nodehost.truncation.export_file import ExportCorrupt, ExportFile
from logservice.rsm import commands, snapshot_codec
from logservice.rsm.commands import CommandMalformed
from logservice.rsm.named_sessions import NO_CONTENT, NamedSession, NamedSessions
from logservice.rsm.restoring import Restoring
from logservice.rsm.sessions import Session, SessionTable
from logservice.rsm.state import TIMESTAMP_MAX, Hold, LogState, RejectedRange
from logservice.snapshot import Snapshot, SnapshotCorrupt
from tests.formats.form import Format, Sample
from tests.owners import APP, CLAIM, NONCE

INCARNATION = 0x0102030405060708
SEED = segment_seed(INCARNATION, 1)
RECORDS = [b"put a=1", b"", b"del b"]
TIME_US = 1_700_000_000_123_456

MEMBERS = Membership(
    voters=(ReplicaId(1), ReplicaId(2), ReplicaId(9)),
    outgoing=(ReplicaId(1), ReplicaId(2), ReplicaId(3)),
    learners=(ReplicaId(8),),
    learners_next=(ReplicaId(3),),
    witnesses=(ReplicaId(9),),
    removed=(ReplicaId(4), ReplicaId(5)),
    auto_leave=True,
    change_epoch=Index(77),
    members=(
        Member(ReplicaId(1), StoreId("s1"), Incarnation(11)),
        Member(ReplicaId(9), StoreId("stör-9"), Incarnation(2**63 - 1)),
    ),
)
SNAPSHOT = Snapshot(Index(40), Term(3), Lsn(1_001), MEMBERS, b"state of a machine")
ENTRY = Entry(Term(3), Index(41), Lsn(1_001), 3, EntryKind.BLOCK, b"payload, 18 bytes.")
LATER = Entry(Term(4), Index(42), Lsn(1_004), 0, EntryKind.NOOP, b"")
HARD = HardState(Term(4), ReplicaId(9), Index(41))


# --- records and groups ---------------------------------------------------------------------------


def _encode_meta(meta: Meta) -> bytes:
    buffers: list[bytes | memoryview] = []
    encode_runs(buffers, [RecordRun(1, 7, meta.write_sequence, [meta])], SEED, 1, 64)
    return b"".join(buffers)


def _decode_meta(data: bytes) -> Meta:
    header = record.decode_header(data, 0, SEED)
    assert (header.shard, header.replica) == (1, 7)
    return record.decode_meta(header, record.payload_view(data, 0, header, SEED))


def _encode_entry(entry: Entry) -> bytes:
    buffers: list[bytes | memoryview] = []
    encode_runs(buffers, [RecordRun(1, 7, 5, [], (entry,))], SEED, 1, 64)
    return b"".join(buffers)


def _decode_entry(data: bytes) -> Entry:
    header = record.decode_header(data, 0, SEED)
    assert (header.kind, header.write_sequence) == (RecordKind.ENTRY, 5)
    payload = bytes(record.payload_view(data, 0, header, SEED))
    return Entry(
        term=Term(header.term),
        index=Index(header.index),
        lsn=Lsn(header.lsn),
        record_count=header.record_count,
        kind=EntryKind(header.detail),
        payload=payload,
    )


_METAS = {
    "hard state": Meta(RecordKind.HARD_STATE, 1, HARD),
    "commit": Meta(RecordKind.COMMIT, 2, Index(41)),
    "bootstrap": Meta(RecordKind.BOOTSTRAP, 3, Bootstrap(MEMBERS, join=True)),
    "installed": Meta(
        RecordKind.INSTALLED, 4, Installed(InstalledSnapshot(SNAPSHOT, Lsn(1_000)), reset=True)
    ),
    "cut": Meta(RecordKind.CUT, 5, Index(42)),
    "tombstone": Meta(RecordKind.TOMBSTONE, 6, None),
    "faulty": Meta(RecordKind.FAULTY, 7, Fault("bit rot", Index(3), Index(9))),
    "repaired": Meta(RecordKind.FAULTY, 8, REPAIRED),
}
_ENDS = SegmentEnds(((1, 4096, 0xFEEDBEEF), (4, 64, 0)))

_CIPHER = segment_cipher("key-1", bytes(range(32)), INCARNATION, 1, lambda size: bytes(size))

_PREVIOUS = GroupPosition(1, 64, 0xFEEDBEEF)


def _encrypted(entry: Entry) -> bytes:
    buffers: list[bytes | memoryview] = []
    encode_runs(buffers, [RecordRun(1, 7, 5, [], (entry,))], SEED, 1, 64, _CIPHER)
    return b"".join(buffers)


def _decrypted(data: bytes) -> Entry:
    header = record.decode_header(data, 0, SEED)
    assert header.encrypted
    payload = record.payload_view(data, 0, header, SEED)
    opened = _CIPHER.open(payload, data[: record.ASSOCIATED_BYTES])
    return replace(_decode_entry(data), payload=opened)


def _decode_segment_header(data: bytes) -> tuple[int, int, KeyLabel]:
    header = segment.decode_segment_header(data, 1, INCARNATION)
    assert header is not None
    return header.segment, header.first_sequence, header.label


def _encode_group(flags: int) -> bytes:
    runs = [
        RecordRun(1, 7, 10, [Meta(RecordKind.HARD_STATE, 10, HARD)], (ENTRY, LATER)),
        RecordRun(2, 8, 13, [Meta(RecordKind.COMMIT, 13, Index(6))]),
    ]
    group = encode_group(
        [] if flags & FLAG_MARK else runs,
        sequence=12,
        flags=flags,
        seed=SEED,
        segment=1,
        offset=4096,
        previous=_PREVIOUS,
    )
    return b"".join(group.buffers)


def _decode_group(data: bytes) -> int | None:
    header = commit_group.decode_group_header(data, 1, 4096, SEED, 4096)
    if header is None:
        return None
    found = commit_group.decode_directory(data, 80, SEED)
    assert found is not None
    assert header.previous == _PREVIOUS
    assert (header.sequence, header.runs, header.flags) == (12, len(found.rows), found.flags)
    rows = [(row.shard, row.replica, row.write_sequence, row.index) for row in found.rows]
    assert rows == ([] if header.flags & FLAG_MARK else [(1, 7, 10, 41), (2, 8, 13, 6)])
    return header.flags


# --- the derived index ----------------------------------------------------------------------------

_POSITION = LogPosition(9, 4096, _PREVIOUS, 12, 14)


def _state() -> ReplicaState:
    state = ReplicaState(1, 7, HARD)
    state.fault = Fault("bit rot", Index(3), Index(9))
    state.origins = {RecordKind.HARD_STATE: Origin(10, 1), RecordKind.BOOTSTRAP: Origin(3, 1)}
    state.cuts = [Cut(5, Index(42), 1, 4)]
    state.bootstrap = Bootstrap(MEMBERS, join=True)
    state.index.compact(40, 3, 1_001)
    state.index.append(
        EntryColumns(
            segment=1,
            first=41,
            write_sequence=11,
            lsns=array("Q", [1_001, 1_004]),
            offsets=array("I", [400, 496]),
            lengths=array("I", [18, 0]),
            term_starts=array("Q", [41, 42]),
            terms=array("Q", [3, 4]),
            next_lsn=1_004,
            size=168,
        )
    )
    return state


def _rows_of(make: Callable[[], ReplicaState]) -> bytes:
    """The rows as ``key length u16, value length u32, key, value``, in the order of their keys.

    A state is written once: it is not written again when it has its row.
    """
    batch = checkpoint.build_checkpoint([make()], _POSITION, INCARNATION)
    return b"".join(
        struct.pack("<HI", len(key), len(row)) + key + row for key, row in sorted(batch.puts)
    )


def _state_from(data: bytes) -> ReplicaState:
    kv = MemoryKvEngine().open("/index")
    position = 0
    while position < len(data):
        key_bytes, row_bytes = struct.unpack_from("<HI", data, position)
        position += 6
        middle, end = position + key_bytes, position + key_bytes + row_bytes
        kv.write([(data[position:middle], data[middle:end])])
        position = end
    vfs = MemoryVfs()
    vfs.make_directory("/segments")
    found, states = checkpoint.load_checkpoint(kv, SegmentFiles(vfs, "/segments", INCARNATION))
    assert found == _POSITION
    (state,) = states.values()
    for chunk in state.index.chunks:
        chunk.loaded = checkpoint.load_columns(kv, state.key, chunk)
    return state


def _show_state(found: ReplicaState | Callable[[], ReplicaState]) -> Any:
    state = found if isinstance(found, ReplicaState) else found()
    index = state.index
    return (
        state.key,
        state.hard_state,
        state.fault,
        state.origins,
        state.cuts,
        state.bootstrap,
        (index.floor_index, index.floor_term, index.floor_next_lsn),
        [
            (run.lsns, run.offsets, run.lengths, run.term_starts, run.terms, run.next_lsn)
            for run in map(index.columns, index.chunks)
        ],
    )


# --- states of machines ---------------------------------------------------------------------------


def _log_state() -> LogState:
    window = deque([(Lsn(1), 2, 2**64 - 1, 0), (Lsn(5), 1, 77, 0)])
    return LogState(
        applied_index=Index(40),
        next_lsn=Lsn(1_001),
        truncated_lsn=Lsn(3),
        requested_lsn=Lsn(9),
        writer_epoch=4,
        writer_holder="db-1",
        writer_owner=APP.identity,
        next_timestamp=500,
        holds={
            "backup": Hold(Lsn(4), "spiffe://ünternehmen"),
            "ärchiv": Hold(Lsn(100), APP.identity),
        },
        sessions=SessionTable(
            {
                SessionId(2): Session(CLAIM.owner, NONCE, 2, Index(30), window),
                SessionId(7): Session(
                    owner=b"another identity",
                    nonce=b"another's secret",
                    last_sequence=0,
                    last_used=Index(7),
                    window=deque(),
                ),
            }
        ),
        rejected=[RejectedRange(Lsn(20), 5, Reason.FENCED)],
    )


def _closed_log_state() -> LogState:
    state = _log_state()
    state.closed_index, state.closed_lsn = Index(39), Lsn(1_001)
    return state


def _state_with_revisions() -> LogState:
    state = _log_state()
    state.put_hold("replay", Hold(Lsn(7), APP.identity, Index(38), 3_600))
    state.put_hold("nightly", Hold(Lsn(8), APP.identity, Index(40)))
    return state


def _forked_log_state() -> LogState:
    state = _log_state()
    state.sessions = SessionTable()
    state.lineage = Lineage(2, bytes(range(16)), bytes(range(16, 32)), Lsn(1_000))
    return state


def _timed_log_state() -> LogState:
    state = _log_state()
    state.append_time_us = TIME_US + 1
    _, session = next(iter(state.sessions))
    session.window[-1] = (*session.window[-1][:3], TIME_US)
    return state


def _named_log_state() -> LogState:
    state = _timed_log_state()
    _, session = next(iter(state.sessions))
    lost = NamedSession(
        APP.identity,
        "spark-stream/lost",
        0,
        Index(8),
        content=NO_CONTENT,
        stamp_us=0,
        ttl_s=0,
        used_us=0,
    )
    lost.lose()
    state.named = NamedSessions(
        {
            SessionId(5): lost,
            SessionId(9): NamedSession(
                "spiffe://ärchiv",
                "spark-write/nightly/7",
                (7 << 32) + 2,
                Index(30),
                deque(session.window),
                content=bytes(range(32)),
                stamp_us=-TIME_US,
                ttl_s=86_400,
                used_us=TIME_US,
            ),
            SessionId(11): NamedSession(
                APP.identity,
                "spark-write/nightly/8",
                7 << 32,
                Index(31),
                content=NO_CONTENT,
                stamp_us=0,
                ttl_s=0,
                used_us=TIME_US,
                forgotten=Index(32),
            ),
        }
    )
    return state


def _restoring_log_state() -> LogState:
    state = LogState(applied_index=Index(40), next_lsn=Lsn(2_000))
    state.lineage = Lineage(2, bytes(range(16)), bytes(range(16, 32)), Lsn(4_999))
    state.writer_epoch = (2 << 32) + 1
    state.restoring = Restoring(Lsn(1_000), Lsn(5_000), bytes(range(32)))
    state.rejected = [RejectedRange(Lsn(1_500), 7, Reason.FENCED)]
    state.append_time_us = TIME_US
    return state


def _mirror_log_state() -> LogState:
    state = _restoring_log_state()
    state.lineage = Lineage(2, bytes(range(16)), bytes(range(16, 32)), Lsn(999))
    state.restoring = Restoring(Lsn(1_200), Lsn(0), bytes(32))
    state.truncated_lsn, state.requested_lsn = Lsn(1_199), Lsn(1_600)
    state.put_hold("replay", Hold(Lsn(1_200), APP.identity, Index(39), 3_600))
    return state


def _show_log_state(state: LogState) -> Any:
    rows = [
        (
            session,
            row.owner,
            row.nonce,
            row.last_sequence,
            row.last_used,
            list(row.window),
        )
        for session, row in state.sessions
    ]
    named = [
        (
            session,
            row.owner,
            row.nonce,
            row.last_sequence,
            row.last_used,
            row.content,
            row.stamp_us,
            row.ttl_s,
            row.used_us,
            list(row.window),
        )
        for session, row in state.named
    ]
    return (
        state.applied_index,
        state.next_lsn,
        state.truncated_lsn,
        state.requested_lsn,
        state.writer_epoch,
        state.writer_holder,
        state.writer_owner,
        state.next_timestamp,
        state.closed_index,
        state.closed_lsn,
        state.lineage,
        state.append_time_us,
        state.restoring,
        state.holds,
        rows,
        named,
        state.rejected,
    )


_COMMANDS: tuple[commands.Command, ...] = (
    commands.OpenSession(APP, NONCE),
    commands.Truncate(APP, Lsn(9), 4),
    commands.SetHold(APP, False, Lsn(4), "backup"),
    commands.ReleaseHold(APP, False, "ärchiv"),
    commands.AcquireWriter(APP, False, 3, True, "db-1"),
    commands.ReleaseWriter(APP, False, 4),
    commands.AllocateTimestamps(1_000),
    commands.Connect(),
)

_COMMANDS_2: tuple[commands.Command, ...] = (
    commands.Close(APP),
    commands.SetHoldFor(APP, False, Lsn(4), 3_600, "ärchiv"),
    commands.RenewHold(APP, "ärchiv"),
    commands.ExpireHold(Index(40), "ärchiv"),
    commands.BeginLineage(APP, 2, bytes(range(16)), bytes(range(16, 32))),
    commands.BeginRestore(
        APP,
        2,
        bytes(range(16)),
        bytes(range(16, 32)),
        Lsn(11),
        Lsn(2**40),
        (1 << 32) + 5,
        1_000,
        bytes(range(32)),
    ),
    commands.EndRestore(
        APP, bytes(range(16)), bytes(range(32)), Lsn(11), Lsn(2**40), TIMESTAMP_MAX, Lsn(2**40)
    ),
    commands.Retain(7, Lsn(4096)),
    commands.TruncateMirror(APP, bytes(range(16)), Lsn(2**40)),
    commands.OpenNamedSession(APP, 2**31 - 1, 86_400, TIME_US, bytes(range(32)), "spark/ärchiv/7"),
    commands.ForgetSession(APP, True, SessionId(2**40), Index(2**41)),
)

_BLOCKS = [
    BlockEnvelope(
        proposal=ProposalId(2**64 - 1, 5),
        session=SessionId(2),
        sequence=3,
        writer_epoch=4,
        expected_lsn=Lsn(1_001),
        record_count=3,
        block=b"a block of 19 bytes",
        claim=CLAIM,
    ),
    BlockEnvelope(ProposalId(6, 7), SessionId(0), 0, 0, Lsn(0), 1, b"another ", CLAIM),
]


def _decode_block(data: bytes) -> list[bytes]:
    block = Block(data, validate_block(data), TIME_US)
    assert block_module.peek_block(data) == len(RECORDS)
    return list(block.records())


def _show_envelopes(blocks: list[BlockEnvelope]) -> Any:
    return [
        (
            one.proposal,
            one.session,
            one.sequence,
            one.writer_epoch,
            one.expected_lsn,
            one.record_count,
            bytes(one.block),
            tuple(one.claim),
        )
        for one in blocks
    ]


BLOCK = Format(
    name="block",
    version=block_module.VERSION,
    constant="logservice_wire.block:VERSION",
    document="docs/formats/block.md",
    samples=(
        Sample(
            name="three records",
            value=RECORDS,
            encode=lambda records: encode_block(records, TIME_US),
            decode=_decode_block,
        ),
    ),
    error=CorruptBlock,
    newer=CodecMissing,
)

_COLUMNS: Any = {
    "keys": [b"a", None, b""],
    "headers": [{"trace": b"1", "né": b""}, {}, {"trace": b"2"}],
    "times_us": [TIME_US, -1, 0],
}


def _encode_columns(given: Any) -> bytes:
    cut, columns = given
    whole = encode_columns(RECORDS[:3], TIME_US, **columns)
    return whole if cut is None else Block.parse(whole).cut(*cut)


def _decode_columns(data: bytes | memoryview) -> Any:
    block = Block.parse(data)
    found, total = block.columns(), block.second.records
    cut = (block.first, block.first + len(block))
    # A cut block does not say what lies beside it in its body; the sample does.
    low, high = cut
    shown: Any = {}
    if found.key_column is not None:
        shown["keys"] = found.keys()
    if found.header_column is not None:
        shown["headers"] = found.headers()
    if found.time_column is not None:
        shown["times_us"] = found.times_us()
    assert found.records() == RECORDS[low:high]
    for name, column in shown.items():
        assert column == _COLUMNS[name][low:high]
    given = {name: _COLUMNS[name] for name in shown}
    return (None if cut == (0, total) else cut), given


WIDE_BLOCK = Format(
    name="wide-block",
    version=block_module.WIDE_VERSION,
    constant="logservice_wire.block:WIDE_VERSION",
    document="docs/formats/block.md",
    samples=(
        Sample("all columns", (None, _COLUMNS), _encode_columns, _decode_columns, since=2),
        Sample(
            "keys", (None, {"keys": _COLUMNS["keys"]}), _encode_columns, _decode_columns, since=2
        ),
        Sample("cut", ((1, 3), _COLUMNS), _encode_columns, _decode_columns, since=2),
    ),
    error=CorruptBlock,
    newer=CodecMissing,
)

SEGMENT = Format(
    name="segment-header",
    version=segment.SEGMENT_VERSION,
    constant="logservice.logdb.format.segment:SEGMENT_VERSION",
    document="docs/formats/segment.md",
    samples=(
        Sample(
            name="header",
            value=(1, 12, PLAIN),
            encode=lambda fields: segment.encode_segment_header(
                fields[0], INCARNATION, *fields[1:]
            ),
            decode=_decode_segment_header,
        ),
        Sample(
            name="header of an encrypted segment",
            value=(1, 12, _CIPHER.label),
            encode=lambda fields: segment.encode_segment_header(
                fields[0], INCARNATION, *fields[1:]
            ),
            decode=_decode_segment_header,
            since=2,
        ),
    ),
    error=SegmentVersionError,
)

GROUP = Format(
    name="commit-group",
    version=commit_group.GROUP_VERSION,
    constant="logservice.logdb.format.commit_group:GROUP_VERSION",
    document="docs/formats/segment.md",
    samples=(
        Sample("two runs", 0, _encode_group, _decode_group),
        Sample("durable mark", FLAG_MARK, _encode_group, _decode_group),
    ),
)

RECORD = Format(
    name="record",
    version=record.RECORD_VERSION,
    constant="logservice.logdb.format.record:RECORD_VERSION",
    document="docs/formats/segment.md",
    samples=(
        Sample("entry", ENTRY, _encode_entry, _decode_entry),
        *(Sample(name, meta, _encode_meta, _decode_meta) for name, meta in _METAS.items()),
        Sample(
            "segment ends",
            Meta(RecordKind.SEGMENT_ENDS, 0, _ENDS),
            _encode_meta,
            _decode_meta,
            since=2,
        ),
    ),
    error=RecordCorrupt,
)

ENCRYPTED_RECORD = Format(
    name="encrypted-record",
    version=record.ENCRYPTED_VERSION,
    constant="logservice.logdb.format.record:ENCRYPTED_VERSION",
    document="docs/formats/segment.md",
    samples=(
        Sample("entry", ENTRY, _encrypted, _decrypted, since=2),
        Sample("empty entry", LATER, _encrypted, _decrypted, since=2),
    ),
    error=RecordCorrupt,
)

MARK = Format(
    name="durable-mark",
    version=durable_mark.MARK_VERSION,
    constant="logservice.logdb.format.durable_mark:MARK_VERSION",
    document="docs/formats/segment.md",
    samples=(
        Sample(
            "mark",
            DurableMark(_PREVIOUS, 12),
            lambda mark: encode_mark(mark, INCARNATION),
            lambda data: decode_mark(data, INCARNATION),
            since=2,
        ),
    ),
)

IDENTITY = Format(
    name="identity",
    version=versions.WRITTEN[data_directory.FORMAT][versions.FIRST],
    constant="",
    document="logservice/logdb/io/data_directory.py",
    samples=tuple(
        Sample(
            name="identity file",
            value=Identity(
                cluster_id=ClusterId("c1"),
                store_id=StoreId("stör-1"),
                incarnation=Incarnation(INCARNATION),
                format_version=format_version,
                hard_bounds=0xDEADBEEF,
                inode=4711,
            ),
            encode=Identity.encode,
            decode=Identity.decode,
            since=since,
        )
        for since, format_version in versions.WRITTEN[data_directory.FORMAT].items()
    ),
)

CHECKPOINT = Format(
    name="checkpoint",
    version=checkpoint.CHECKPOINT_VERSION,
    constant="logservice.logdb.checkpoint.checkpoint:CHECKPOINT_VERSION",
    document="logservice/logdb/checkpoint/checkpoint.py",
    samples=(Sample("rows of a replica", _state, _rows_of, _state_from, _show_state),),
    error=CheckpointUnusable,
)

MEMBERSHIP = Format(
    name="membership",
    version=membership._VERSION,
    constant="logservice.membership:_VERSION",
    document="logservice/membership.py",
    samples=(
        Sample("nobody", Membership(), Membership.encode, Membership.decode),
        Sample("joint", MEMBERS, Membership.encode, Membership.decode),
    ),
    error=MembershipCorrupt,
)

SNAPSHOTS = Format(
    name="snapshot",
    version=snapshot._VERSION,
    constant="logservice.snapshot:_VERSION",
    document="logservice/snapshot.py",
    samples=(Sample("exported", SNAPSHOT, Snapshot.encode, Snapshot.decode),),
    error=SnapshotCorrupt,
)

EXPORT = Format(
    name="snapshot-export",
    version=export_file._VERSION,
    constant="logservice.nodehost.truncation.export_file:_VERSION",
    document="logservice/nodehost/truncation/export_file.py",
    samples=(
        Sample(
            "export to a path",
            ExportFile(ClusterId("c1"), ShardId(7), 1, bytes(range(16)), SNAPSHOT),
            ExportFile.encode,
            ExportFile.decode,
            since=2,
        ),
    ),
    error=ExportCorrupt,
)

LOG_STATE = Format(
    name="log-state",
    version=snapshot_codec._FIRST,
    constant="",
    document="logservice/rsm/snapshot_codec.py",
    samples=(
        Sample(
            name="state",
            value=_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
        ),
        Sample(
            name="closed",
            value=_closed_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="holds with revisions",
            value=_state_with_revisions(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="continued by force",
            value=_forked_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="append times",
            value=_timed_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="named sessions",
            value=_named_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="being restored",
            value=_restoring_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
        Sample(
            name="a mirror",
            value=_mirror_log_state(),
            encode=snapshot_codec.encode_state,
            decode=snapshot_codec.decode_state,
            show=_show_log_state,
            since=2,
        ),
    ),
    error=SnapshotCorrupt,
)

COMMAND = Format(
    name="command",
    version=commands._VERSION,
    constant="logservice.rsm.commands:_VERSION",
    document="logservice/rsm/commands.py",
    samples=(
        *(
            Sample(command.tag.name, command, commands.encode, commands.decode)
            for command in _COMMANDS
        ),
        *(
            Sample(command.tag.name, command, commands.encode, commands.decode, since=2)
            for command in _COMMANDS_2
        ),
    ),
    error=CommandMalformed,
)

CHANGE = Format(
    name="config-change",
    version=config_change._VERSION,
    constant="logservice.config_change:_VERSION",
    document="logservice/config_change.py",
    samples=(
        Sample(
            name="two steps",
            value=ConfigChange(
                steps=(
                    ChangeStep(
                        kind=ChangeKind.ADD_VOTER,
                        replica_id=ReplicaId(9),
                        store_id=StoreId("stör-9"),
                        incarnation=Incarnation(5),
                    ),
                    ChangeStep(ChangeKind.REMOVE, ReplicaId(3)),
                ),
                expected_epoch=Index(77),
                transition=Transition.EXPLICIT,
                context=b"why",
            ),
            encode=config_change.encode_change,
            decode=config_change.decode_change,
        ),
    ),
    error=ChangeCorrupt,
)

ENVELOPE = Format(
    name="envelope",
    version=1,
    constant="",
    document="logservice/envelope.py",
    samples=(
        Sample(
            name="two blocks",
            value=_BLOCKS,
            encode=envelope.encode_blocks,
            decode=lambda data: list(envelope.decode_blocks(data)),
            show=_show_envelopes,
        ),
        Sample(
            name="command",
            value=(ProposalId(6, 7), b"a command"),
            encode=lambda pair: envelope.encode_command(*pair),
            decode=envelope.decode_command,
        ),
        Sample(
            name="two blocks with their append time",
            value=(_BLOCKS, TIME_US),
            encode=lambda pair: envelope.encode_blocks(*pair),
            decode=lambda data: (list(envelope.decode_blocks(data)), envelope.append_time_of(data)),
            show=lambda pair: (_show_envelopes(pair[0]), pair[1]),
            since=2,
        ),
    ),
    error=EnvelopeCorrupt,
)

FORMATS = (
    BLOCK,
    WIDE_BLOCK,
    SEGMENT,
    GROUP,
    RECORD,
    ENCRYPTED_RECORD,
    MARK,
    IDENTITY,
    CHECKPOINT,
    MEMBERSHIP,
    SNAPSHOTS,
    EXPORT,
    LOG_STATE,
    COMMAND,
    CHANGE,
    ENVELOPE,
)
