"""Reading SQLite's ``-wal`` file: header, frames, commits.

From SQLite's public description of its file format (https://www.sqlite.org/fileformat2.html,
section 4, "The Write-Ahead Log"). All integers are big-endian::

    header  32 B  magic, format version, page size, checkpoint sequence,
                  salt 1, salt 2, checksum 1, checksum 2
    frame   24 B  page number, database size in pages after the commit (0: not a commit frame),
                  salt 1, salt 2, checksum 1, checksum 2; then one page of data

What this file alone decides: which frames count. A frame is valid when its salts are the header's
and its checksum continues the chain of all frames before it. Frames after the last commit frame
belong to a transaction that has not committed (a large one spills into the file early, and a
rollback leaves the frames there to be overwritten), so they are not returned and not advanced
past. When SQLite starts the file anew after a checkpoint it draws new salts: whatever follows
from the old run fails to verify.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

MAGIC_LITTLE_ENDIAN: Final = 0x377F0682
MAGIC_BIG_ENDIAN: Final = 0x377F0683
"""The magic says in which byte order the *checksums* read the data; both occur in the wild."""

FORMAT_VERSION: Final = 3_007_000
HEADER: Final = struct.Struct(">8I")
FRAME_HEADER: Final = struct.Struct(">6I")
CHECKSUMMED_HEADER_BYTES: Final = 24
CHECKSUMMED_FRAME_HEADER_BYTES: Final = 8

Checksum = tuple[int, int]
Salts = tuple[int, int]


class WalError(Exception):
    """The file is not a write-ahead log that we can read."""


@dataclass(frozen=True, slots=True)
class WalHeader:
    """What the first 32 bytes say."""

    page_size: int
    salts: Salts
    checksum: Checksum
    checksum_order: str
    """``<`` or ``>``, for struct."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One page as a transaction left it."""

    page_number: int
    database_pages: int
    """Size of the database after the commit, on the last frame of a transaction; else 0."""
    data: bytes

    @property
    def commits(self) -> bool:
        """The transaction ends with this frame."""
        return self.database_pages != 0


def wal_checksum(data: bytes, order: str, start: Checksum = (0, 0)) -> Checksum:
    """SQLite's checksum over 8-byte steps, continued from `start`."""
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    first, second = start
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def parse_header(data: bytes) -> WalHeader:
    """Raises WalError for anything but an intact header."""
    if len(data) < HEADER.size:
        raise WalError(f"header of {len(data)} bytes")
    magic, version, page_size, _sequence, salt_1, salt_2, *stored = HEADER.unpack_from(data)
    if magic not in (MAGIC_LITTLE_ENDIAN, MAGIC_BIG_ENDIAN) or version != FORMAT_VERSION:
        raise WalError(f"magic {magic:#x}, version {version}")
    order = "<" if magic == MAGIC_LITTLE_ENDIAN else ">"
    checksum = wal_checksum(data[:CHECKSUMMED_HEADER_BYTES], order)
    if checksum != tuple(stored):
        raise WalError("header checksum")
    return WalHeader(page_size, (salt_1, salt_2), checksum, order)


class WalReader:
    """Reads what was committed since the last call.

    Keeps the position behind the last commit frame and the checksum chain up to there. Only the
    writer's own thread, or one that it waits for, may call `committed_frames`: the file must not
    be rewritten from the start while it is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header: WalHeader | None = None
        self._position = 0
        self._checksum: Checksum = (0, 0)

    def committed_frames(self) -> list[Frame]:
        """New frames up to the last commit frame, in order; empty when nothing was committed."""
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            beginning = file.read(HEADER.size)
            if not beginning:
                return []  # truncated by a checkpoint, nothing written since
            header = parse_header(beginning)
            if self._header is None or header.salts != self._header.salts:
                self._header = header
                self._position = HEADER.size
                self._checksum = header.checksum
            file.seek(self._position)
            return self._read_transactions(file, header)

    def _read_transactions(self, file: BinaryIO, header: WalHeader) -> list[Frame]:
        committed: list[Frame] = []
        open_transaction: list[Frame] = []
        position, checksum = self._position, self._checksum
        while True:
            raw = file.read(FRAME_HEADER.size + header.page_size)
            if len(raw) < FRAME_HEADER.size + header.page_size:
                return committed
            page_number, database_pages, salt_1, salt_2, *stored = FRAME_HEADER.unpack_from(raw)
            if (salt_1, salt_2) != header.salts:
                return committed
            data = raw[FRAME_HEADER.size :]
            checksum = wal_checksum(
                raw[:CHECKSUMMED_FRAME_HEADER_BYTES] + data, header.checksum_order, checksum
            )
            if checksum != tuple(stored):
                return committed
            position += len(raw)
            open_transaction.append(Frame(page_number, database_pages, data))
            if database_pages:
                committed += open_transaction
                open_transaction = []
                self._position, self._checksum = position, checksum
