"""private_file: only its user can read what this program writes, whatever the umask is.

Theory of operation. A file is 0600 and a directory 0700 from the moment it is made; none is made
first and restricted later. A whole file is replaced by a rename, so that a reader sees the old one
or the new one, and the new one is on disk before a reader can see it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

_MODE = 0o600
_FOLDER_MODE = 0o700


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that do not exist. Raises OSError."""
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, and make its folders. Raises OSError."""
    make_private(path.parent)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, _MODE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def append_private(path: Path) -> BinaryIO:
    """Open a file to write at its end. If others could read it, they cannot any more."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, _MODE)
    os.fchmod(descriptor, _MODE)
    return open(descriptor, "ab")
