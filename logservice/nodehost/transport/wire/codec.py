"""Codec: the bytes of (shard, message) between stores.

This file alone knows the layout. A batch is messages back to back until the end of its frame. Each
message is a fixed head, little-endian, and a fixed part by kind:

``kind u8, flags u8, zero u16, size u32, shard u64, to u64, sender u64, term u64`` (40 bytes), where
`size` counts the entries that follow (appends, proposals) or the bytes of the tail (read-index
contexts, a snapshot). An entry is ``term u64, index u64, lsn u64, record_count u32, length u32,
kind u8`` (33 bytes) and its payload.

Encoding never copies a payload, as protobuf would: it goes into the list of buffers by reference.
Decoding slices each payload out of the frame once. Every count and length is checked against the
bytes that are really there before anything is allocated for it, so that a hostile frame costs at
most its own size. Integers that do not fit are a programmer error (struct.error), as no correct
core produces them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from logservice.entry import Entry, EntryKind
from logservice.ids import Index, Lsn, ReplicaId, ShardId, Term
from logservice.raft.messages import (
    AppendEntries,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    Propose,
    Quiesce,
    ReadIndexRequest,
    ReadIndexResponse,
    RequestVote,
    SnapshotStatus,
    TimeoutNow,
    TransferLeader,
    Unreachable,
    VoteResponse,
)
from logservice.snapshot import Snapshot, SnapshotCorrupt

_HEAD: Final = struct.Struct("<BBHIQQQQ")
_HEAD_1: Final = struct.Struct("<BBHIQQQQQ")
_HEAD_2: Final = struct.Struct("<BBHIQQQQQQ")
_HEAD_3: Final = struct.Struct("<BBHIQQQQQQQ")
_HEAD_4: Final = struct.Struct("<BBHIQQQQQQQQ")
_ONE: Final = struct.Struct("<Q")
_TWO: Final = struct.Struct("<QQ")
_THREE: Final = struct.Struct("<QQQ")
_FOUR: Final = struct.Struct("<QQQQ")
_ENTRY: Final = struct.Struct("<QQQIIB")
_ENTRY_BYTES: Final = _ENTRY.size

_APPEND: Final = 1
_APPEND_RESPONSE: Final = 2
_VOTE: Final = 3
_VOTE_RESPONSE: Final = 4
_HEARTBEAT: Final = 5
_HEARTBEAT_RESPONSE: Final = 6
_SNAPSHOT: Final = 7
_TIMEOUT_NOW: Final = 8
_TRANSFER: Final = 9
_PROPOSE: Final = 10
_READ_INDEX: Final = 11
_READ_INDEX_RESPONSE: Final = 12
_UNREACHABLE: Final = 13
_SNAPSHOT_STATUS: Final = 14
_QUIESCE: Final = 15

_REJECT: Final = 1
_PRE: Final = 2
_TRANSFER_FLAG: Final = 4
_CLOSED: Final = 8

_KINDS: Final = {int(kind): kind for kind in EntryKind}

Buffer = bytes | memoryview
_Encoder = Callable[[int, Any, list[Buffer]], int]
_Decoder = Callable[[Buffer, int, int, int, Any, Any, Any], tuple[Message, int]]


class CodecError(ValueError):
    """The bytes are not a batch of messages; the connection they came from cannot be trusted."""


# --- encoding -------------------------------------------------------------------------------------


def _put_entries(entries: tuple[Entry, ...], out: list[Buffer]) -> int:
    size = 0
    pack = _ENTRY.pack
    for entry in entries:
        payload = entry.payload
        length = len(payload)
        out.append(pack(entry.term, entry.index, entry.lsn, entry.record_count, length, entry.kind))
        if length:
            out.append(payload)
        size += _ENTRY_BYTES + length
    return size


def _encode_append(shard: int, m: AppendEntries, out: list[Buffer]) -> int:
    entries = m.entries
    out.append(
        _HEAD_3.pack(
            _APPEND,
            0,
            0,
            len(entries),
            shard,
            m.to,
            m.sender,
            m.term,
            m.prev_index,
            m.prev_term,
            m.commit,
        )
    )
    return _HEAD_3.size + (_put_entries(entries, out) if entries else 0)


def _encode_append_response(shard: int, m: AppendResponse, out: list[Buffer]) -> int:
    out.append(
        _HEAD_4.pack(
            _APPEND_RESPONSE,
            (_REJECT if m.reject else 0) | (_CLOSED if m.closed else 0),
            0,
            0,
            shard,
            m.to,
            m.sender,
            m.term,
            m.index,
            m.hint_index,
            m.hint_term,
            m.room,
        )
    )
    return _HEAD_4.size


def _encode_vote(shard: int, m: RequestVote, out: list[Buffer]) -> int:
    flags = (_PRE if m.pre else 0) | (_TRANSFER_FLAG if m.transfer else 0)
    out.append(
        _HEAD_2.pack(_VOTE, flags, 0, 0, shard, m.to, m.sender, m.term, m.last_index, m.last_term)
    )
    return _HEAD_2.size


def _encode_vote_response(shard: int, m: VoteResponse, out: list[Buffer]) -> int:
    flags = (_REJECT if m.reject else 0) | (_PRE if m.pre else 0)
    out.append(_HEAD.pack(_VOTE_RESPONSE, flags, 0, 0, shard, m.to, m.sender, m.term))
    return _HEAD.size


def _put_tail(tail: bytes, out: list[Buffer]) -> int:
    if tail:
        out.append(tail)
    return len(tail)


def _encode_heartbeat(shard: int, m: Heartbeat, out: list[Buffer]) -> int:
    out.append(
        _HEAD_1.pack(_HEARTBEAT, 0, 0, len(m.context), shard, m.to, m.sender, m.term, m.commit)
    )
    return _HEAD_1.size + _put_tail(m.context, out)


def _encode_quiesce(shard: int, m: Quiesce, out: list[Buffer]) -> int:
    out.append(_HEAD_1.pack(_QUIESCE, 0, 0, 0, shard, m.to, m.sender, m.term, m.index))
    return _HEAD_1.size


def _encode_heartbeat_response(shard: int, m: HeartbeatResponse, out: list[Buffer]) -> int:
    flags = _CLOSED if m.closed else 0
    size = len(m.context)
    out.append(
        _HEAD_1.pack(_HEARTBEAT_RESPONSE, flags, 0, size, shard, m.to, m.sender, m.term, m.room)
    )
    return _HEAD_1.size + _put_tail(m.context, out)


def _encode_snapshot(shard: int, m: InstallSnapshot, out: list[Buffer]) -> int:
    data = m.snapshot.encode()
    out.append(_HEAD.pack(_SNAPSHOT, 0, 0, len(data), shard, m.to, m.sender, m.term))
    return _HEAD.size + _put_tail(data, out)


def _encode_propose(shard: int, m: Propose, out: list[Buffer]) -> int:
    out.append(_HEAD.pack(_PROPOSE, 0, 0, len(m.entries), shard, m.to, m.sender, m.term))
    return _HEAD.size + _put_entries(m.entries, out)


def _encode_read_index(shard: int, m: ReadIndexRequest, out: list[Buffer]) -> int:
    out.append(_HEAD.pack(_READ_INDEX, 0, 0, len(m.context), shard, m.to, m.sender, m.term))
    return _HEAD.size + _put_tail(m.context, out)


def _encode_read_index_response(shard: int, m: ReadIndexResponse, out: list[Buffer]) -> int:
    out.append(
        _HEAD_1.pack(
            _READ_INDEX_RESPONSE, 0, 0, len(m.context), shard, m.to, m.sender, m.term, m.index
        )
    )
    return _HEAD_1.size + _put_tail(m.context, out)


def _encode_snapshot_status(shard: int, m: SnapshotStatus, out: list[Buffer]) -> int:
    flags = _REJECT if m.reject else 0
    out.append(_HEAD.pack(_SNAPSHOT_STATUS, flags, 0, 0, shard, m.to, m.sender, m.term))
    return _HEAD.size


def _bare(kind: int) -> _Encoder:
    def encode(shard: int, m: TimeoutNow, out: list[Buffer]) -> int:
        out.append(_HEAD.pack(kind, 0, 0, 0, shard, m.to, m.sender, m.term))
        return _HEAD.size

    return encode


_ENCODERS: Final[dict[type, _Encoder]] = {
    AppendEntries: _encode_append,
    AppendResponse: _encode_append_response,
    RequestVote: _encode_vote,
    VoteResponse: _encode_vote_response,
    Heartbeat: _encode_heartbeat,
    HeartbeatResponse: _encode_heartbeat_response,
    Quiesce: _encode_quiesce,
    InstallSnapshot: _encode_snapshot,
    TimeoutNow: _bare(_TIMEOUT_NOW),
    TransferLeader: _bare(_TRANSFER),
    Propose: _encode_propose,
    ReadIndexRequest: _encode_read_index,
    ReadIndexResponse: _encode_read_index_response,
    Unreachable: _bare(_UNREACHABLE),
    SnapshotStatus: _encode_snapshot_status,
}


def encode_message(shard: ShardId, message: Message, out: list[Buffer]) -> int:
    """Append the message's buffers to `out`, payloads by reference; returns their size in bytes."""
    return _ENCODERS[type(message)](shard, message, out)


# --- decoding -------------------------------------------------------------------------------------
# A decoder gets (data, position behind the head, flags, size, to, sender, term) and returns the
# message and the position behind it. struct.error (too few bytes) is turned into CodecError by
# decode_batch.


def _take_entries(data: Buffer, position: int, count: int) -> tuple[tuple[Entry, ...], int]:
    total = len(data)
    if count > (total - position) // _ENTRY_BYTES:
        raise CodecError(f"{count} entries announced, {total - position} bytes left")
    entries: list[Entry] = []
    unpack = _ENTRY.unpack_from
    for _ in range(count):
        term, index, lsn, records, length, kind_number = unpack(data, position)
        position += _ENTRY_BYTES
        end = position + length
        if end > total:
            raise CodecError("entry payload cut short")
        kind = _KINDS.get(kind_number)
        if kind is None:
            raise CodecError(f"entry kind {kind_number}")
        entries.append(
            Entry(Term(term), Index(index), Lsn(lsn), records, kind, bytes(data[position:end]))
        )
        position = end
    return tuple(entries), position


def _take_tail(data: Buffer, position: int, size: int) -> tuple[bytes, int]:
    end = position + size
    if end > len(data):
        raise CodecError(f"{size} bytes announced, {len(data) - position} left")
    return bytes(data[position:end]), end


def _decode_append(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    prev_index, prev_term, commit = _THREE.unpack_from(data, at)
    at += _THREE.size
    entries: tuple[Entry, ...] = ()
    if size:
        entries, at = _take_entries(data, at, size)
    return AppendEntries(
        to=to,
        sender=sender,
        term=term,
        prev_index=prev_index,
        prev_term=prev_term,
        entries=entries,
        commit=commit,
    ), at


def _decode_append_response(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    index, hint_index, hint_term, room = _FOUR.unpack_from(data, at)
    return AppendResponse(
        to=to,
        sender=sender,
        term=term,
        index=index,
        reject=bool(flags & _REJECT),
        hint_index=hint_index,
        hint_term=hint_term,
        room=room,
        closed=bool(flags & _CLOSED),
    ), at + _FOUR.size


def _decode_vote(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    last_index, last_term = _TWO.unpack_from(data, at)
    return RequestVote(
        to=to,
        sender=sender,
        term=term,
        last_index=last_index,
        last_term=last_term,
        pre=bool(flags & _PRE),
        transfer=bool(flags & _TRANSFER_FLAG),
    ), at + _TWO.size


def _decode_vote_response(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    return VoteResponse(
        to=to, sender=sender, term=term, reject=bool(flags & _REJECT), pre=bool(flags & _PRE)
    ), at


def _decode_heartbeat(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    (commit,) = _ONE.unpack_from(data, at)
    context, at = _take_tail(data, at + _ONE.size, size)
    return Heartbeat(to=to, sender=sender, term=term, commit=commit, context=context), at


def _decode_quiesce(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    (index,) = _ONE.unpack_from(data, at)
    return Quiesce(to=to, sender=sender, term=term, index=index), at + _ONE.size


def _decode_heartbeat_response(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    (room,) = _ONE.unpack_from(data, at)
    context, at = _take_tail(data, at + _ONE.size, size)
    return HeartbeatResponse(
        to=to,
        sender=sender,
        term=term,
        context=context,
        room=room,
        closed=bool(flags & _CLOSED),
    ), at


def _decode_snapshot(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    end = at + size
    if end > len(data):
        raise CodecError(f"a snapshot of {size} bytes announced, {len(data) - at} left")
    try:
        snapshot = Snapshot.decode(memoryview(data)[at:end])
    except SnapshotCorrupt as error:
        raise CodecError(str(error)) from error
    return InstallSnapshot(to=to, sender=sender, term=term, snapshot=snapshot), end


def _decode_propose(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    entries, at = _take_entries(data, at, size)
    return Propose(to=to, sender=sender, term=term, entries=entries), at


def _decode_read_index(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    context, at = _take_tail(data, at, size)
    return ReadIndexRequest(to=to, sender=sender, term=term, context=context), at


def _decode_read_index_response(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    (index,) = _ONE.unpack_from(data, at)
    context, at = _take_tail(data, at + _ONE.size, size)
    return ReadIndexResponse(to=to, sender=sender, term=term, context=context, index=index), at


def _decode_bare(
    message_class: type[TimeoutNow] | type[TransferLeader] | type[Unreachable],
) -> _Decoder:
    def decode(
        data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
    ) -> tuple[Message, int]:
        return message_class(to=to, sender=sender, term=term), at

    return decode


def _decode_snapshot_status(
    data: Buffer, at: int, flags: int, size: int, to: ReplicaId, sender: ReplicaId, term: Term
) -> tuple[Message, int]:
    return SnapshotStatus(to=to, sender=sender, term=term, reject=bool(flags & _REJECT)), at


_NO_FLAGS: Final = 0
# By kind: decoder, the flags it knows, whether `size` means anything.
_DECODERS: Final[dict[int, tuple[_Decoder, int, bool]]] = {
    _APPEND: (_decode_append, _NO_FLAGS, True),
    _APPEND_RESPONSE: (_decode_append_response, _REJECT | _CLOSED, False),
    _VOTE: (_decode_vote, _PRE | _TRANSFER_FLAG, False),
    _VOTE_RESPONSE: (_decode_vote_response, _REJECT | _PRE, False),
    _HEARTBEAT: (_decode_heartbeat, _NO_FLAGS, True),
    _HEARTBEAT_RESPONSE: (_decode_heartbeat_response, _CLOSED, True),
    _SNAPSHOT: (_decode_snapshot, _NO_FLAGS, True),
    _TIMEOUT_NOW: (_decode_bare(TimeoutNow), _NO_FLAGS, False),
    _TRANSFER: (_decode_bare(TransferLeader), _NO_FLAGS, False),
    _PROPOSE: (_decode_propose, _NO_FLAGS, True),
    _READ_INDEX: (_decode_read_index, _NO_FLAGS, True),
    _READ_INDEX_RESPONSE: (_decode_read_index_response, _NO_FLAGS, True),
    _UNREACHABLE: (_decode_bare(Unreachable), _NO_FLAGS, False),
    _SNAPSHOT_STATUS: (_decode_snapshot_status, _REJECT, False),
    _QUIESCE: (_decode_quiesce, _NO_FLAGS, False),
}


def decode_batch(data: Buffer) -> list[tuple[ShardId, Message]]:
    """The messages of one frame body, in sending order. Raises CodecError for anything else."""
    batch: list[tuple[ShardId, Message]] = []
    position = 0
    total = len(data)
    unpack = _HEAD.unpack_from
    try:
        while position < total:
            kind, flags, zero, size, shard, to, sender, term = unpack(data, position)
            found = _DECODERS.get(kind)
            if found is None:
                raise CodecError(f"message kind {kind}")
            decoder, known_flags, sized = found
            if zero or flags & ~known_flags or (size and not sized):
                raise CodecError(
                    f"message kind {kind} with flags {flags}, size {size}, zero {zero}"
                )
            message, position = decoder(
                data,
                position + _HEAD.size,
                flags,
                size,
                ReplicaId(to),
                ReplicaId(sender),
                Term(term),
            )
            batch.append((ShardId(shard), message))
    except struct.error as error:
        raise CodecError(str(error)) from error
    return batch
