"""verifying: reads an archive again, and says whether it is what was archived.

Theory of operation. The rows of a log must be a chain (INV-ARCHIVE-1), and each object must have
the size and the SHA-256 that its row says (INV-ARCHIVE-2). That finds damage. Then the records are
read from the object, and their digest is computed as a reader of the log would: that finds what was
wrong before it was written. With a client the cluster is asked for the digest of each range that
the log still has; nothing is moved for that.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from logservice_client import LogClient
from logservice_wire.errors import (
    CodecMissing,
    InvalidArgument,
    LogServiceError,
    ShardDeleted,
    ShardNotFound,
    Truncated,
)

from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Files
from logservice.archive.manifest import Manifest, Row
from logservice.archive.range_file import digest_of_object
from logservice.archive.sealing import unseal
from logservice.sealing_keys import Keys

_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Contents:
    """What the archive has of one log."""

    shard_id: int
    name: str = ""
    first_lsn: int | None = None
    end_lsn: int | None = None
    ranges: int = 0
    records: int = 0
    gap_lsns: int = 0
    missing_lsns: int = 0
    value_bytes: int = 0
    object_bytes: int = 0
    archived_us: int = 0
    unnamed_objects: int = 0
    compared: int = 0
    """Ranges whose digest the cluster gave, too."""
    problems: list[str] = field(default_factory=list)

    def take(self, row: Row) -> None:
        """Count one more row."""
        self.name = row.name
        self.first_lsn = row.first_lsn if self.first_lsn is None else self.first_lsn
        self.end_lsn = row.end_lsn
        self.archived_us = row.archived_us
        self.records += row.records
        self.gap_lsns += row.gap_lsns
        self.value_bytes += row.value_bytes
        self.object_bytes += row.object_bytes
        if row.missing:
            self.missing_lsns += row.end_lsn - row.first_lsn
        else:
            self.ranges += 1


def contents(files: Files, shard_id: int) -> Contents:
    """What the manifest says; no object is read."""
    manifest = Manifest(files, shard_id)
    found = Contents(shard_id)
    try:
        for row in manifest.rows():
            found.take(row)
        found.unnamed_objects = len(manifest.unnamed_objects())
    except ArchiveDamaged as error:
        found.problems.append(str(error))
    return found


async def verify(
    files: Files,
    shard_id: int,
    client: LogClient | None = None,
    keys: Keys | None = None,
    progress: Callable[[Row], None] = lambda _: None,
) -> Contents:
    """Read all objects of one log, and compare with the living log if there is a client."""
    manifest = Manifest(files, shard_id)
    found = Contents(shard_id)
    try:
        for row in manifest.rows():
            found.take(row)
            progress(row)
            if row.missing:
                continue
            try:
                await asyncio.to_thread(_check_object, manifest, row, keys)
            except (ArchiveDamaged, CodecMissing, InvalidArgument) as error:
                found.problems.append(f"{row.object}: {error}")
                continue
            if client is not None:
                await _compare(client, row, found)
    except ArchiveDamaged as error:
        found.problems.append(str(error))
    return found


def _check_object(manifest: Manifest, row: Row, keys: Keys | None) -> None:
    with manifest.open(row) as file:
        check_bytes(file, row)
        file.seek(0)
        with opened(file, row, manifest.path(row.object), keys) as records:
            digest = digest_of_object(records, row.first_lsn, row.end_lsn)
    if digest != row.digest:
        raise ArchiveDamaged(detail=f"records with digest {digest}, archived with {row.digest}")


def check_bytes(file: BinaryIO, row: Row) -> None:
    """Read the object. Raises ArchiveDamaged when it is not what the row says (INV-ARCHIVE-2)."""
    sha256, size = hashlib.sha256(), 0
    while size <= row.object_bytes and (chunk := file.read(_CHUNK_BYTES)):
        sha256.update(chunk)
        size += len(chunk)
    if (size, sha256.hexdigest()) != (row.object_bytes, row.sha256):
        raise ArchiveDamaged(
            detail=f"{row.object}: {size} bytes that are not those that were archived"
        )


def opened(file: BinaryIO, row: Row, name: str, keys: Keys | None) -> BinaryIO:
    """The Parquet file in an object; of a sealed one it is in memory, never on a disk. Raises
    ArchiveDamaged, InvalidArgument without its key.
    """
    if not row.key_id:
        return file
    if keys is None:
        raise InvalidArgument(f"{name} is sealed with key {row.key_id}", field="archive.keys")
    plain = io.BytesIO()
    unseal(file, plain, keys, name)
    plain.seek(0)
    return plain


async def _compare(client: LogClient, row: Row, found: Contents) -> None:
    try:
        living = await client.shard(row.shard_id).digest(row.first_lsn, row.end_lsn)
    except (Truncated, ShardDeleted, ShardNotFound):
        return
    except LogServiceError as error:
        found.problems.append(f"{row.object}: the cluster does not say: {error}")
        return
    if str(living) != row.digest:
        found.problems.append(f"{row.object}: the log has {living}, the archive {row.digest}")
    else:
        found.compared += 1
