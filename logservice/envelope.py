"""Envelopes: what the payload of an entry holds besides the user's bytes.

BLOCK entry: ``u32 block count, u32 form``; in form 1 ``append time i64``, microseconds since 1970;
then per block a 96-byte header and the block's bytes, padded to 8. One entry may carry several
blocks that waited for the shard together; each block has its own outcome and is atomic by itself.
All blocks of an entry have its append time, so the time costs nothing per block or record. Form 0
has none: it is what cluster version 1 writes. COMMAND entry: the 16-byte proposal id, then the
command.

A request completes by its proposal id (or by (index, term)), never by index alone: after a leader
change another entry may fill the index.

Header, little-endian: origin u64, number u64 (the proposal id), session u64, sequence u64, writer
epoch u64, expected LSN u64 (0 = none), block bytes u32, record count u32, owner 16 bytes, nonce 16
bytes, store u64 (`logservice.owner`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logservice_wire.value import value

from logservice.ids import Lsn, SessionId
from logservice.owner import Claim

_COUNT = struct.Struct("<II")
_HEADER = struct.Struct("<QQQQQQII16s16sQ")
_SIZE = _RECORDS = struct.Struct("<I")
_BEFORE_SIZE, _AFTER_RECORDS = struct.calcsize("<QQQQQQ"), struct.calcsize("<I16s16sQ")
_TIME = struct.Struct("<q")
_PROPOSAL = struct.Struct("<QQ")
_PLAIN, _TIMED = 0, 1
_PADDING = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")

BLOCKS_OFFSET = _COUNT.size + _TIME.size
"""The most that an entry has before its first block."""
HEADER_BYTES = _HEADER.size
ENVELOPE_BYTES = HEADER_BYTES + len(_PADDING) - 1
"""The most that an envelope adds to one block."""


class EnvelopeCorrupt(ValueError):
    """The payload is not an envelope: no correct leader made it."""


class ProposalId(NamedTuple):
    """Unique over the cluster's life: `origin` is drawn at random at every process start."""

    origin: int
    number: int


NO_PROPOSAL = ProposalId(0, 0)
"""The id of what is not proposed yet."""


@value
class BlockEnvelope:
    """One proposed block. `block` is opaque here: the bytes the client sent."""

    proposal: ProposalId
    session: SessionId
    sequence: int
    writer_epoch: int
    expected_lsn: Lsn
    record_count: int
    block: bytes | memoryview
    claim: Claim


def encode_blocks(blocks: Sequence[BlockEnvelope], append_time_us: int = 0) -> bytes:
    """The payload of a BLOCK entry; each block's bytes are copied once. `append_time_us`: 0 for
    none.
    """
    parts: list[bytes | memoryview] = [_COUNT.pack(len(blocks), _TIMED if append_time_us else 0)]
    if append_time_us:
        parts.append(_TIME.pack(append_time_us))
    for item in blocks:
        size = len(item.block)
        parts.append(
            _HEADER.pack(
                *item.proposal,
                item.session,
                item.sequence,
                item.writer_epoch,
                item.expected_lsn,
                size,
                item.record_count,
                *item.claim,
            )
        )
        parts.append(item.block)
        parts.append(_PADDING[size & 7])
    return b"".join(parts)


def append_time_of(payload: bytes) -> int:
    """The append time of a BLOCK entry; 0 for none. Only its head is looked at.

    Raises EnvelopeCorrupt when it has no head, or one of an unknown form, or a time before 1970.
    """
    try:
        _, form = _COUNT.unpack_from(payload)
        if form == _PLAIN:
            return 0
        (append_time_us,) = _TIME.unpack_from(payload, _COUNT.size)
    except struct.error as error:
        raise EnvelopeCorrupt(str(error)) from error
    if form != _TIMED or append_time_us <= 0:
        raise EnvelopeCorrupt(f"form {form}, append time {append_time_us}")
    return int(append_time_us)


def decode_blocks(payload: bytes) -> Iterator[BlockEnvelope]:
    """The envelopes of a BLOCK entry in order; `block` is a view into `payload`.

    Raises EnvelopeCorrupt when counts and lengths do not fit the payload exactly.
    """
    _, spans = _spans(payload)
    view = memoryview(payload)
    for begin, end in spans:
        (
            origin,
            number,
            session,
            sequence,
            epoch,
            expected,
            _size,
            records,
            owner,
            nonce,
            store,
        ) = _HEADER.unpack_from(payload, begin - _HEADER.size)
        yield BlockEnvelope(
            ProposalId(origin, number),
            SessionId(session),
            sequence,
            epoch,
            Lsn(expected),
            records,
            view[begin:end],
            Claim(owner, nonce, store),
        )


def decode_views(payload: bytes) -> tuple[int, list[tuple[int, memoryview]]]:
    """What a reader needs of an entry, in a third of the time: its append time; of each block how
    many records it has, and a view of it. Raises as `decode_blocks`.
    """
    append_time_us, spans = _spans(payload)
    view = memoryview(payload)
    return append_time_us, [
        (_RECORDS.unpack_from(payload, begin - _AFTER_RECORDS)[0], view[begin:end])
        for begin, end in spans
    ]


def _spans(payload: bytes) -> tuple[int, list[tuple[int, int]]]:
    """The append time, and where each block begins and ends; its header lies before it. Raises as
    `decode_blocks`.
    """
    append_time_us = append_time_of(payload)
    position = BLOCKS_OFFSET if append_time_us else _COUNT.size
    length = len(payload)
    (count, _) = _COUNT.unpack_from(payload)
    if count == 0 or count > length // _HEADER.size:
        raise EnvelopeCorrupt(f"{count} blocks in {length} bytes")
    spans = []
    for _ in range(count):
        begin = position + _HEADER.size
        if begin > length:
            raise EnvelopeCorrupt("block header cut short")
        (size,) = _SIZE.unpack_from(payload, position + _BEFORE_SIZE)
        end = begin + size
        if end > length:
            raise EnvelopeCorrupt("block cut short")
        spans.append((begin, end))
        position = end + (-size & 7)
    if position != length:
        raise EnvelopeCorrupt("bytes after the last block")
    return append_time_us, spans


def encode_command(proposal: ProposalId, command: bytes) -> bytes:
    """The payload of a COMMAND entry."""
    return _PROPOSAL.pack(*proposal) + command


def decode_command(payload: bytes) -> tuple[ProposalId, bytes]:
    """Inverse of `encode_command`; raises EnvelopeCorrupt when too short."""
    if len(payload) < _PROPOSAL.size:
        raise EnvelopeCorrupt("command without a proposal id")
    origin, number = _PROPOSAL.unpack_from(payload)
    return ProposalId(origin, number), payload[_PROPOSAL.size :]
