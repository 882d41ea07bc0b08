"""What the shipper writes into the log: one record per frame, then one commit marker.

A transaction is one block, and a block is all or nothing, so whoever reads a page record knows
that its transaction committed. The marker says how many frames there were and what the whole
database hashed to: recovery checks both, so a record lost on the way cannot pass unnoticed.

Little-endian::

    page    u8 kind = 1, u64 transaction, u32 page number, u32 database pages (0: more follow),
            then the page
    commit  u8 kind = 2, u64 transaction, u32 page size, u32 database pages, u32 frames, 32 B digest
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from examples.sqlite_wal.wal_format import Frame

KIND_PAGE: Final = 1
KIND_COMMIT: Final = 2
_PAGE: Final = struct.Struct("<BQII")
_COMMIT: Final = struct.Struct("<BQIII32s")


class RecordError(Exception):
    """A record of the shard is not one that the shipper wrote."""


@dataclass(frozen=True, slots=True)
class PageRecord:
    """A page as a committed transaction left it."""

    transaction: int
    page_number: int
    database_pages: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The end of a transaction."""

    transaction: int
    page_size: int
    database_pages: int
    frames: int
    digest: bytes


def encode_transaction(transaction: int, frames: Sequence[Frame], digest: bytes) -> list[bytes]:
    """The records of one transaction; `frames` ends with its commit frame."""
    records = [
        _PAGE.pack(KIND_PAGE, transaction, frame.page_number, frame.database_pages) + frame.data
        for frame in frames
    ]
    last = frames[-1]
    records.append(
        _COMMIT.pack(
            KIND_COMMIT, transaction, len(last.data), last.database_pages, len(frames), digest
        )
    )
    return records


def decode(record: bytes) -> PageRecord | CommitRecord:
    """Raises RecordError."""
    try:
        match record[0]:
            case 1:
                _, transaction, page_number, database_pages = _PAGE.unpack_from(record)
                return PageRecord(transaction, page_number, database_pages, record[_PAGE.size :])
            case 2:
                _, transaction, page_size, pages, frames, digest = _COMMIT.unpack(record)
                return CommitRecord(transaction, page_size, pages, frames, digest)
            case kind:
                raise RecordError(f"kind {kind}")
    except (IndexError, struct.error) as error:
        raise RecordError(f"record of {len(record)} bytes: {error}") from error
