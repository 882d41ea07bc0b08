"""Snapshot: RSM state *and membership* at an index.

*Exported*: written aside, the log is not compacted behind it. *Installed*: the log is. User records
are never inside; a snapshot is small and is passed around as one value.

Byte form: ``magic u32, version u16, reserved u16, index u64, term u64, next_lsn u64, membership
length u32, state length u32, crc32 u32 of everything else``, membership, state. Used for exported
files, for the wire, and inside the installed-snapshot record of a segment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from logservice.checksum import crc32
from logservice.ids import Index, Lsn, Term
from logservice.membership import Membership, MembershipCorrupt

_HEAD = struct.Struct("<IHHQQQII")
_CRC = struct.Struct("<I")
_MAGIC = 0x4C53534E
_VERSION = 1


class SnapshotCorrupt(ValueError):
    """The bytes are not a whole, undamaged snapshot."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State after applying every entry up to and including `index`.

    `next_lsn` is the LSN that the first record after `index` has. `state` is the RSM's own
    encoding.
    """

    index: Index
    term: Term
    next_lsn: Lsn
    membership: Membership
    state: bytes

    def encode(self) -> bytes:
        """The byte form above."""
        membership = self.membership.encode()
        head = _HEAD.pack(
            _MAGIC,
            _VERSION,
            0,
            self.index,
            self.term,
            self.next_lsn,
            len(membership),
            len(self.state),
        )
        crc = crc32(self.state, crc32(membership, crc32(head)))
        return b"".join((head, _CRC.pack(crc), membership, self.state))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Snapshot:
        """Inverse of `encode`; raises SnapshotCorrupt for anything else. Copies the state once."""
        data = memoryview(data)
        try:
            magic, version, _, index, term, next_lsn, membership_bytes, state_bytes = (
                _HEAD.unpack_from(data)
            )
            (crc,) = _CRC.unpack_from(data, _HEAD.size)
        except struct.error as error:
            raise SnapshotCorrupt(str(error)) from error
        start = _HEAD.size + _CRC.size
        if magic != _MAGIC or version != _VERSION:
            raise SnapshotCorrupt(f"snapshot magic {magic:#x} version {version}")
        if len(data) != start + membership_bytes + state_bytes:
            raise SnapshotCorrupt("snapshot length differs from its header")
        if crc32(data[start:], crc32(data[: _HEAD.size])) != crc:
            raise SnapshotCorrupt("snapshot checksum")
        try:
            membership = Membership.decode(bytes(data[start : start + membership_bytes]))
        except MembershipCorrupt as error:
            raise SnapshotCorrupt(str(error)) from error
        state = bytes(data[start + membership_bytes :])
        return cls(Index(index), Term(term), Lsn(next_lsn), membership, state)
