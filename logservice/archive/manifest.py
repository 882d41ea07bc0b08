"""manifest: which LSNs of a log an archive has, and in which objects.

Theory of operation. A log's manifest is a chain of rows, one file each. A row says what became of
the LSNs [first_lsn, end_lsn): they are in an object, or they were truncated before anybody archived
them (`missing`). Its file is named by its first LSN and written by put-if-absent, and the next row
begins where it ends. So the chain itself is the lock: of two archivers that go on from the same
end, one writes the row, and the other one learns that it did not, drops its object and goes on
behind the row of the first. No lease, no clock.

The order of the steps for a range is: the hold is at its beginning, the object is durable, the row
is durable, the hold moves to its end. Each row has the SHA-256 of the row before it, so a row that
was replaced or lost shows.

INV-ARCHIVE-1: the rows of a log follow each other without holes and overlap, and each says where
the next one begins; a row that is there never changes. INV-ARCHIVE-2: an object that a row names is
there, whole. INV-ARCHIVE-3: the archive's hold is never above the end of the chain (but for LSNs
that are truncated already), so what is not in the archive is not truncated. INV-ARCHIVE-4: an
object is removed only when a row exists for its first LSN and names another one: whoever still
writes such an object cannot write its row any more. INV-ARCHIVE-5: all rows of a chain are of one
lineage (`logservice.lineage`). Behind a fork LSNs are given out once more, so a chain that went on
there would have some of a history that the log has lost, and some of the one that it has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec
from logservice_wire.archive_name import FileRefused, is_object
from logservice_wire.bounds import ARCHIVE_ROW_BYTES_MAX
from logservice_wire.errors import InvalidArgument

from logservice.archive.damage import ArchiveDamaged
from logservice.archive.folder import Files

FORMAT: Final = 1
"""Of the rows, the objects and their names."""

_ROW: Final = re.compile(r"(\d{20})\.json")
_NUMBERED: Final = re.compile(r"\d{20}")
_MARK: Final = "ARCHIVE.json"


class GapRun(msgspec.Struct, frozen=True, array_like=True):
    """`count` LSNs from `first_lsn` on without records, for a reason of log.proto's GapReason."""

    first_lsn: int
    count: int
    reason: int


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row. Fields that a program does not know are left alone, so new ones may be added.

    object: its file below the log's folder; empty for LSNs that are missing. sha256: of the
    object's bytes. key_id: of the key that it is sealed with (`sealing`); empty: it is not. digest:
    of the range, see `logservice_wire.digest`. writer_epoch: of the log when the range was closed.
    next_timestamp: of the log then; 0: not said. append_time_us: of the first and the last LSN;
    absent where any has none. lineage: that of the log, as hexadecimal digits; empty for a log that
    was never continued by force. lineage_number: its number. previous: SHA-256 of the row before;
    empty in the first one.
    """

    format: int
    cluster_id: str
    shard_id: int
    name: str
    first_lsn: int
    end_lsn: int
    archived_us: int
    previous: str
    object: str = ""
    object_bytes: int = 0
    sha256: str = ""
    key_id: str = ""
    digest: str = ""
    records: int = 0
    gap_lsns: int = 0
    value_bytes: int = 0
    gaps: tuple[GapRun, ...] = ()
    writer_epoch: int = 0
    append_time_us: tuple[int, int] | None = None
    lineage: str = ""
    lineage_number: int = 0
    next_timestamp: int = 0

    @property
    def missing(self) -> bool:
        """Whether its LSNs were truncated before they were archived."""
        return not self.object


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """The archive's own file: whose logs these are."""

    format: int
    cluster_id: str


class End(msgspec.Struct, frozen=True):
    """Where a chain ends: the next row's first LSN (None: there is no row), and its `previous`.
    lineage: that of the last row.
    """

    lsn: int | None = None
    previous: str = ""
    lineage: str = ""


class Manifest:
    """The rows of one log."""

    def __init__(self, files: Files, shard_id: int) -> None:
        """The log with that id."""
        self.files = files
        self.shard_id = shard_id
        self._folder = f"logs/{shard_id:020d}"

    def object_name(self, first_lsn: int, word: str) -> str:
        """The name of an object that begins with `first_lsn`; `word` tells two of them apart."""
        return f"objects/{first_lsn:020d}-{word}.parquet"

    def path(self, name: str) -> str:
        """An object's path in the archive."""
        return f"{self._folder}/{name}"

    def open(self, row: Row) -> BinaryIO:
        """A row's object. Raises ArchiveDamaged."""
        try:
            return self.files.open(self.path(row.object), row.object_bytes)
        except FileNotFoundError as error:
            raise ArchiveDamaged(detail=f"{row.object} is gone") from error
        except FileRefused as error:
            raise ArchiveDamaged(detail=str(error)) from error

    def end(self) -> End:
        """Where the next row begins. Raises ArchiveDamaged."""
        firsts = self._firsts()
        if not firsts:
            return End()
        row, digest = self._read(firsts[-1])
        return End(row.end_lsn, digest, row.lineage)

    def last_row(self) -> Row | None:
        """The newest row; None when there is none. Raises ArchiveDamaged."""
        firsts = self._firsts()
        return self._read(firsts[-1])[0] if firsts else None

    def add(self, row: Row) -> bool:
        """Write the row at the end of the chain. False: another archiver was faster."""
        content = msgspec.json.format(msgspec.json.encode(row), indent=1)
        return self.files.put_if_absent(self._row_path(row.first_lsn), content)

    def rows(self) -> Iterator[Row]:
        """All rows, in order. Raises ArchiveDamaged where INV-ARCHIVE-1 does not hold."""
        expected: int | None = None
        previous = lineage = ""
        for first_lsn in self._firsts():
            row, digest = self._read(first_lsn)
            if expected is not None and first_lsn != expected:
                raise ArchiveDamaged(detail=f"no row for LSN {expected} of log {self.shard_id}")
            if row.previous != previous:
                raise ArchiveDamaged(
                    detail=f"the row before {self._row_path(first_lsn)} is not the one it followed"
                )
            if expected is not None and row.lineage != lineage:
                raise ArchiveDamaged(detail=f"{self._row_path(first_lsn)} is of another lineage")
            yield row
            expected, previous, lineage = row.end_lsn, digest, row.lineage

    def unnamed_objects(self) -> list[str]:
        """Objects, finished or not, that no row can name any more (INV-ARCHIVE-4), and rows that
        were never finished. Paths below the log's folder.
        """
        found = []
        firsts = set(self._firsts())
        for folder in ("objects", "manifest"):
            for name in self.files.names(f"{self._folder}/{folder}"):
                part = _NUMBERED.match(name)
                if part is None or int(part[0]) not in firsts or _ROW.fullmatch(name):
                    continue
                if self._read(int(part[0]))[0].object != f"{folder}/{name}":
                    found.append(f"{folder}/{name}")
        return found

    def remove_unnamed(self) -> int:
        """Remove them; returns how many."""
        unnamed = self.unnamed_objects()
        for name in unnamed:
            self.files.remove(self.path(name))
        return len(unnamed)

    def _firsts(self) -> list[int]:
        names = self.files.names(f"{self._folder}/manifest")
        return [int(found[1]) for name in names if (found := _ROW.fullmatch(name))]

    def _row_path(self, first_lsn: int) -> str:
        return f"{self._folder}/manifest/{first_lsn:020d}.json"

    def _read(self, first_lsn: int) -> tuple[Row, str]:
        path = self._row_path(first_lsn)
        try:
            content = self.files.read(path, ARCHIVE_ROW_BYTES_MAX)
        except FileRefused as error:
            raise ArchiveDamaged(detail=str(error)) from error
        try:
            row = msgspec.json.decode(content, type=Row)
        except msgspec.DecodeError as error:
            raise ArchiveDamaged(detail=f"{path}: {error}") from error
        if row.format != FORMAT:
            raise InvalidArgument(
                f"{path} has format {row.format}, this program reads {FORMAT}", field="format"
            )
        if (row.shard_id, row.first_lsn) != (self.shard_id, first_lsn) or (
            row.end_lsn <= first_lsn
        ):
            raise ArchiveDamaged(detail=f"{path} is about other LSNs")
        if not row.missing and not is_object(row.object):
            raise ArchiveDamaged(detail=f"{path} names no object of ours")
        return row, hashlib.sha256(content).hexdigest()


def shard_ids(files: Files) -> list[int]:
    """The logs of which the archive has anything."""
    return [int(name) for name in files.names("logs") if name.isdecimal()]


def mark(files: Files, cluster_id: str) -> None:
    """Say whose archive it is, or check it. Raises InvalidArgument for another cluster's."""
    content = msgspec.json.encode(Mark(format=FORMAT, cluster_id=cluster_id))
    if files.put_if_absent(_MARK, content):
        return
    found = marked(files)
    if found != cluster_id:
        raise InvalidArgument(
            f"the archive is that of cluster {found}, not of {cluster_id}", field="target"
        )


def marked(files: Files) -> str:
    """The cluster whose archive it is. Raises InvalidArgument where there is none that we read."""
    try:
        content = files.read(_MARK, ARCHIVE_ROW_BYTES_MAX)
        found = msgspec.json.decode(content, type=Mark)
    except (FileNotFoundError, FileRefused, msgspec.DecodeError) as error:
        raise InvalidArgument(f"there is no archive: {error}", field="target") from error
    if found.format != FORMAT:
        raise InvalidArgument(
            f"the archive has format {found.format}, this program reads {FORMAT}", field="target"
        )
    return found.cluster_id
