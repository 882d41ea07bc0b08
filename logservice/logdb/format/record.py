"""Record: the smallest thing in a segment that can be checked by itself.

A record is a 72-byte header and a payload, padded to 8 bytes. Header, little-endian: ``magic u16,
version u8, kind u8, length u32, shard u64, replica u64, write_sequence u64, index u64, term u64,
lsn u64, record_count u32, detail u32, payload crc u32, header crc u32``. Both CRCs (CRC-32 as in
zlib) start from the segment's seed, so bytes left over from another segment, or misdirected,
never verify.

An ENTRY record of version 2 has an encrypted payload (`encryption`): `length`, and the checksum of
the payload, are of what lies on the disk. Every other record has version 1.

- INV-REC-1: `write_sequence` orders the records of a data directory as they were first written.
  Garbage collection copies a record with its original number, so that replay never takes old
  entries for an overwrite.

What the fields hold, by kind:

| kind | index | term | lsn | detail | payload |
|---|---|---|---|---|---|
| ENTRY | its index | its term | its LSN | entry kind | the entry's payload |
| HARD_STATE | commit | term | vote | 0 | none |
| COMMIT | commit | 0 | 0 | 0 | none |
| BOOTSTRAP | 0 | 0 | 0 | 1 = join | membership |
| INSTALLED | its index | its term | next LSN | 1 = log was reset | truncation LSN u64, snapshot |
| CUT | first index cut off | 0 | 0 | 0 | none |
| TOMBSTONE | 0 | 0 | 0 | 0 | none |
| FAULTY | damaged from | 0 | acked through | 0 | the reason, utf-8; empty: repaired |
| SEGMENT_ENDS | 0 | 0 | 0 | how many | per segment: id u64, offset u64, crc u32, 0 u32 |
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from logservice_wire.value import value

from logservice.checksum import crc32
from logservice.hard_state import HardState
from logservice.ids import Index, Lsn, ReplicaId, Term
from logservice.logdb.format.fault import Fault
from logservice.logdb.format.update import Bootstrap, InstalledSnapshot
from logservice.membership import MembershipCorrupt, shared
from logservice.snapshot import Snapshot, SnapshotCorrupt

Buffer = bytes | memoryview

RECORD_MAGIC: Final = 0x5247
RECORD_VERSION: Final = 1
ENCRYPTED_VERSION: Final = 2
"""Of an entry whose payload is encrypted."""
ENCRYPTED_OVERHEAD_BYTES: Final = 28
"""By so much an encrypted payload is longer than the payload: a nonce and a tag."""
RECORD: Final = struct.Struct("<HBBIQQQQQQIIII")
"""A whole record header."""
_SEED = struct.Struct("<QQ")
TRUNCATION: Final = struct.Struct("<Q")
"""Before the snapshot in the payload of an INSTALLED record."""
SEGMENT_END: Final = struct.Struct("<QQII")
"""One segment in the payload of a SEGMENT_ENDS record: see `SegmentEnds`."""
RECORD_HEADER_BYTES: Final = RECORD.size
ASSOCIATED_BYTES: Final = RECORD_HEADER_BYTES - 8
"""A header up to its checksums: what an encrypted payload is bound to."""
SEGMENT_HEADER_BYTES: Final = 64
"""Where the first group of a segment starts."""
PADDING: Final = (b"", b"\0" * 7, b"\0" * 6, b"\0" * 5, b"\0" * 4, b"\0" * 3, b"\0" * 2, b"\0")
"""By ``length & 7``: what aligns it to 8."""


class RecordKind(enum.IntEnum):
    """What a record says. The numbers are on disk."""

    ENTRY = 1
    HARD_STATE = 2
    COMMIT = 3
    BOOTSTRAP = 4
    INSTALLED = 5
    CUT = 6
    TOMBSTONE = 7
    FAULTY = 8
    SEGMENT_ENDS = 9


HARD_STATE: Final = RecordKind.HARD_STATE
COMMIT: Final = RecordKind.COMMIT
CUT: Final = RecordKind.CUT
INSTALLED: Final = RecordKind.INSTALLED
FAULTY: Final = RecordKind.FAULTY
"""These kinds are compared with in every run; in Python 3.11 it takes an eighth of a microsecond to
look up a member by way of its class.
"""
_KINDS: Final = {int(kind): kind for kind in RecordKind}


class RecordCorrupt(ValueError):
    """The bytes are not the record that should be there."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The value of an INSTALLED record."""

    snapshot: InstalledSnapshot
    reset: bool


@value
class SegmentEnds:
    """The value of a SEGMENT_ENDS record: (segment, where its last group begins, the crc of that
    group's header) of segments that are older than the one that it is in, oldest first. It belongs
    to no replica: its run has shard, replica and write sequence 0 (`segment_ends`).
    """

    ends: tuple[tuple[int, int, int], ...]


MetaValue = HardState | Bootstrap | Installed | Index | Fault | SegmentEnds | None


@value
class Meta:
    """A record that is not an entry. `value` by kind: HardState, Index (COMMIT and CUT), Bootstrap,
    Installed, None (TOMBSTONE), Fault (FAULTY), SegmentEnds.
    """

    kind: RecordKind
    write_sequence: int
    value: MetaValue


@value
class RecordHeader:
    """The decoded header of a record. length: of the payload as it lies on the disk."""

    kind: RecordKind
    length: int
    shard: int
    replica: int
    write_sequence: int
    index: int
    term: int
    lsn: int
    record_count: int
    detail: int
    payload_crc: int
    encrypted: bool


def segment_seed(incarnation: int, segment: int) -> int:
    """The CRC start value of everything in a segment."""
    return crc32(_SEED.pack(incarnation, segment))


def record_bytes(length: int) -> int:
    """Bytes in the segment of a record whose payload has `length` bytes."""
    return RECORD_HEADER_BYTES + length + (-length & 7)


def decode_header(view: Buffer, offset: int, seed: int) -> RecordHeader:
    """The header at `offset`; raises RecordCorrupt."""
    end = offset + RECORD_HEADER_BYTES
    if offset < 0 or end > len(view):
        raise RecordCorrupt("record header beyond the end")
    (
        magic,
        version,
        kind_number,
        length,
        shard,
        replica,
        write_sequence,
        index,
        term,
        lsn,
        record_count,
        detail,
        payload_crc,
        header_crc,
    ) = RECORD.unpack_from(view, offset)
    if magic != RECORD_MAGIC or crc32(view[offset : end - 4], seed) != header_crc:
        raise RecordCorrupt("record header checksum")
    kind = _KINDS.get(kind_number)
    encrypted = version == ENCRYPTED_VERSION and kind is RecordKind.ENTRY
    if kind is None or not (version == RECORD_VERSION or encrypted):
        raise RecordCorrupt(f"record version {version} kind {kind_number}")
    return RecordHeader(
        kind,
        length,
        shard,
        replica,
        write_sequence,
        index,
        term,
        lsn,
        record_count,
        detail,
        payload_crc,
        encrypted,
    )


def payload_view(view: Buffer, offset: int, header: RecordHeader, seed: int) -> Buffer:
    """The payload of the record at `offset`, its checksum verified; raises RecordCorrupt."""
    start = offset + RECORD_HEADER_BYTES
    end = start + header.length
    if end > len(view):
        raise RecordCorrupt("record payload beyond the end")
    payload = view[start:end]
    if crc32(payload, seed) != header.payload_crc:
        raise RecordCorrupt("record payload checksum")
    return payload


def decode_meta(header: RecordHeader, payload: Buffer) -> Meta:
    """The value of a verified record that is not an entry; raises RecordCorrupt."""
    value: MetaValue
    try:
        match header.kind:
            case RecordKind.HARD_STATE:
                value = HardState(Term(header.term), ReplicaId(header.lsn), Index(header.index))
            case RecordKind.COMMIT | RecordKind.CUT:
                value = Index(header.index)
            case RecordKind.BOOTSTRAP:
                value = Bootstrap(shared(bytes(payload)), bool(header.detail))
            case RecordKind.INSTALLED:
                (truncation,) = TRUNCATION.unpack_from(payload)
                snapshot = Snapshot.decode(bytes(payload[TRUNCATION.size :]))
                value = Installed(InstalledSnapshot(snapshot, Lsn(truncation)), bool(header.detail))
            case RecordKind.FAULTY:
                reason = bytes(payload).decode()
                value = Fault(reason, Index(header.index), Index(header.lsn))
            case RecordKind.SEGMENT_ENDS:
                rows = SEGMENT_END.iter_unpack(payload)
                value = SegmentEnds(tuple((one, at, crc) for one, at, crc, _ in rows))
            case _:
                value = None
    except (MembershipCorrupt, SnapshotCorrupt, struct.error, UnicodeDecodeError) as error:
        raise RecordCorrupt(f"{header.kind.name} record: {error}") from error
    return Meta(header.kind, header.write_sequence, value)
