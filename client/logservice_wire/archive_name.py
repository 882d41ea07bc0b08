"""Which files of an archive in a folder are opened, for whoever reads one.

A row of an archive names its object, and whoever may write there can write any name, or put
anything in a name's place: a path that leads elsewhere, a link, a device that has no end, a FIFO
that nobody writes to. So a name has the form that an archiver gives it, no part of the way below
the archive's folder is a link, and what is there is a regular file. The folder itself may be a
link: it is the reader's own word.

INV-ARCHIVE-NAME: what is opened is a regular file below the archive's folder.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

_OBJECT: Final = re.compile(r"objects/[0-9]{20}-[0-9a-f]+\.parquet")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO opens at once with O_NONBLOCK, and is then found to be none of ours.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


_PIECE_BYTES: Final = 1024 * 1024


class FileRefused(OSError):
    """A name of an archive leads to nothing that an archiver writes."""


def is_object(name: str) -> bool:
    """Whether an archiver gives an object this name, below its log's folder."""
    return _OBJECT.fullmatch(name) is not None


def read_at_most(file: Any, bytes_max: int, name: str) -> bytes:
    """All bytes of a file that was opened, in pieces: one call would take memory for as many as it
    is asked for. Raises FileRefused for more than `bytes_max`.
    """
    pieces, left = [], bytes_max + 1
    while left and (piece := file.read(min(left, _PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise FileRefused(f"{name} has more than {bytes_max} bytes")
    return b"".join(pieces)


def open_below(root: Path, name: str) -> BinaryIO:
    """Open a file of an archive to read. Raises FileRefused, FileNotFoundError, OSError."""
    *folders, last = name.split("/")
    if not all(map(_PART.fullmatch, [*folders, last])):
        raise FileRefused(f"{name!r} is no name in an archive")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(last, _FILE, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileRefused(f"{name}: a link, or no file of an archive: {error.strerror}") from error
    finally:
        os.close(folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileRefused(f"{name}: no regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
