"""Archive: what an archive has of a log, for whoever reads the log with Spark.

Theory of operation. `logservice archive` ships a log to files (docs/archive.md has their format): a
chain of rows, each about a range of LSNs, and the object of each range. With the option ``archive``
the LSNs that the chain has come from there, and the others from the stores; so the two meet at one
LSN, and no LSN is in both. Which that is follows from the chain as it is when the plan is made. It
only grows, and a row never changes, so a plan reads the same again.

What was truncated in the stores is readable while the chain goes on to what is not: the oldest LSN
of a log is then the first one of its chain.

- INV-ARCHIVED-1: rows are used only of a chain of the log itself: of this cluster, this id and this
  lineage. Behind a fork LSNs are given out once more.
- INV-ARCHIVED-2: a row follows the one before without a hole, or is not used.
- INV-ARCHIVED-3: what is read of an object is what was archived: its SHA-256 is that of the row.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from logservice_wire.archive_name import FileRefused, is_object, open_below, read_at_most
from logservice_wire.bounds import ARCHIVE_ROW_BYTES_MAX

from pyspark_logservice.checks import OptionError
from pyspark_logservice.sizes import Sample

if TYPE_CHECKING:
    from pyarrow import fs

FORMAT: Final = 1
"""Of rows and objects; docs/archive.md."""

_ROW: Final = re.compile(r"(\d{20})\.json")


class ArchiveError(RuntimeError):
    """The archive is not what the log's archiver wrote; the message says where."""


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """What an archive has of ``first_lsn <= lsn < end_lsn``. path: of the object, below the
    archive; "" when the LSNs were truncated before anybody archived them. append_times_us: of the
    first and the last LSN.
    """

    first_lsn: int
    end_lsn: int
    path: str
    object_bytes: int
    sha256: str
    value_bytes: int
    append_times_us: tuple[int, int] | None
    lineage: bytes
    """16 bytes, zeros for a log that was never continued by force."""


class Place:
    """The folder or bucket of an archive."""

    def __init__(self, archive: str) -> None:
        """`archive`: an absolute path or a URI. Raises OptionError."""
        from pyarrow import ArrowInvalid, fs

        self.archive = archive
        try:
            self._files, self._root = fs.FileSystem.from_uri(archive)
        except (ArrowInvalid, OSError) as error:
            raise OptionError(
                f"option 'archive': {archive!r} is neither an absolute path nor a URI: {error}"
            ) from error

    def check(self, cluster_id: str) -> None:
        """Raises OptionError when it is no archive, or another cluster's: with a wrong place a
        query would quietly read less.
        """
        content = self.read("ARCHIVE.json")
        if content is None:
            raise OptionError(f"option 'archive': there is no archive in {self.archive}")
        try:
            whose = json.loads(content)["cluster_id"]
        except (ValueError, KeyError, TypeError) as error:
            raise ArchiveError(f"ARCHIVE.json in {self.archive}: {error!r}") from error
        if whose != cluster_id:
            raise OptionError(
                f"option 'archive': {self.archive} is of cluster {whose!r}, not of {cluster_id!r}"
            )

    def read(self, path: str, bytes_max: int = ARCHIVE_ROW_BYTES_MAX) -> bytes | None:
        """All bytes of a file; None when it is not there. Raises ArchiveError for one of more than
        `bytes_max`, or where a file of an archive cannot be (INV-ARCHIVE-NAME).
        """
        try:
            with self._opened(path) as file:
                return read_at_most(file, bytes_max, path)
        except FileNotFoundError:
            return None
        except FileRefused as error:
            raise ArchiveError(str(error)) from error

    def _opened(self, path: str) -> Any:
        from pyarrow import fs

        if isinstance(self._files, fs.LocalFileSystem):
            return open_below(Path(self._root), path)
        return self._files.open_input_stream(f"{self._root}/{path}")

    def names(self, under: str) -> list[str]:
        """The names of the files right below."""
        from pyarrow import fs

        selector = fs.FileSelector(f"{self._root}/{under}", allow_not_found=True)
        found: Sequence[fs.FileInfo] = self._files.get_file_info(selector)
        return [one.base_name for one in found if one.type == fs.FileType.File]


class Chain:
    """The rows of one log, read as they are needed. One thread at a time."""

    def __init__(self, place: Place, cluster_id: str, shard: int) -> None:
        """Lists them. Raises ArchiveError."""
        self._place = place
        self._cluster_id = cluster_id
        self._shard = shard
        self._rows: dict[int, ArchivedRange] = {}
        self._firsts: list[int] = []
        self.end_lsn = 0
        """Where the next row will begin; 0 when there is none."""
        self._list()

    @property
    def first_lsn(self) -> int:
        """Of the oldest row; 0 when there is none."""
        return self._firsts[0] if self._firsts else 0

    @property
    def lineage(self) -> bytes:
        """Of the newest row; b"" when there is none."""
        return self._row(self._firsts[-1]).lineage if self._firsts else b""

    def grow(self) -> None:
        """Look for rows that were added."""
        if not self._firsts:
            self._list()
            return
        while self._place.read(self._path(self.end_lsn)) is not None:
            self._firsts.append(self.end_lsn)
            self.end_lsn = self._row(self.end_lsn).end_lsn

    def _list(self) -> None:
        names = self._place.names(self._path())
        self._firsts = sorted(int(found[1]) for name in names if (found := _ROW.fullmatch(name)))
        self.end_lsn = self._row(self._firsts[-1]).end_lsn if self._firsts else 0

    def between(self, start: int, end: int) -> list[ArchivedRange]:
        """The rows that have LSNs of ``start <= lsn < end``. Raises ArchiveError where one is not
        there (INV-ARCHIVED-2).
        """
        found = []
        while start < min(end, self.end_lsn):
            at = bisect_right(self._firsts, start) - 1
            row = self._row(self._firsts[at]) if at >= 0 else None
            if row is None or row.end_lsn <= start:
                raise ArchiveError(f"shard {self._shard}: the archive has no row for LSN {start}")
            found.append(row)
            start = row.end_lsn
        return found

    def sample(self, beside: Sample) -> Sample:
        """Samples of the log (`sizes`): of what the archive has by its rows, of the rest by
        `beside`.
        """

        def sample(lsn: int) -> tuple[float, int]:
            if not self.first_lsn <= lsn < self.end_lsn:
                return beside(lsn)
            (row,) = self.between(lsn, lsn + 1)
            share = (row.end_lsn - lsn) / (row.end_lsn - row.first_lsn)
            return row.value_bytes * share, row.end_lsn

        return sample

    def lsn_at_time(self, time_us: int) -> int:
        """The first LSN that was appended then or later; `end_lsn` when there is none. Raises
        ArchiveError where a row does not say when its LSNs were appended.
        """
        low, high = 0, len(self._firsts)
        while low < high:
            middle = (low + high) // 2
            if self._times(middle)[1] < time_us:
                low = middle + 1
            else:
                high = middle
        if low == len(self._firsts):
            return self.end_lsn
        if self._times(low)[0] >= time_us:
            return self._firsts[low]
        from pyspark_logservice.archive_batches import first_appended_at

        return first_appended_at(self._place, self._row(self._firsts[low]), time_us)

    def _times(self, number: int) -> tuple[int, int]:
        row = self._row(self._firsts[number])
        if row.append_times_us is None:
            raise ArchiveError(
                f"shard {self._shard}: the archive does not say when LSNs {row.first_lsn} to "
                f"{row.end_lsn - 1} were appended"
            )
        return row.append_times_us

    def _path(self, first_lsn: int | None = None) -> str:
        name = "" if first_lsn is None else f"/{first_lsn:020d}.json"
        return f"logs/{self._shard:020d}/manifest{name}"

    def _row(self, first_lsn: int) -> ArchivedRange:
        found = self._rows.get(first_lsn)
        if found is None:
            found = self._rows[first_lsn] = self._read(first_lsn)
        return found

    def _read(self, first_lsn: int) -> ArchivedRange:
        path = self._path(first_lsn)
        content = self._place.read(path)
        if content is None:
            raise ArchiveError(f"{path} is gone")
        try:
            row: dict[str, Any] = json.loads(content)
            times = row.get("append_time_us")
            found = ArchivedRange(
                int(row["first_lsn"]),
                int(row["end_lsn"]),
                f"logs/{self._shard:020d}/{row['object']}" if row.get("object") else "",
                int(row.get("object_bytes", 0)),
                str(row.get("sha256", "")),
                int(row.get("value_bytes", 0)),
                (int(times[0]), int(times[1])) if times else None,
                bytes.fromhex(row.get("lineage", "")) or bytes(16),
            )
            whose = (row["format"], row["cluster_id"], row["shard_id"], found.first_lsn)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ArchiveError(f"{path} is no row of an archive: {error!r}") from error
        if whose[0] != FORMAT:
            raise ArchiveError(f"{path} has format {whose[0]}; this program reads {FORMAT}")
        if whose != (FORMAT, self._cluster_id, self._shard, first_lsn):
            raise ArchiveError(
                f"{path} is of log {whose[2]} of cluster {whose[1]!r}, and not of log "
                f"{self._shard} of {self._cluster_id!r}"
            )
        if found.end_lsn <= first_lsn:
            raise ArchiveError(f"{path} ends before it begins")
        if found.path and not is_object(row["object"]):
            raise ArchiveError(f"{path} names no object of an archive: {row['object']!r}")
        if row.get("key_id"):
            raise ArchiveError(
                f"{path}: its object is sealed with key {row['key_id']!r}, and Spark has no keys; "
                "restore the log, or read what is in the stores without the option 'archive'"
            )
        return found
