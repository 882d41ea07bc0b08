"""folder: the files of an archive in a local folder, and what a crash can leave of them.

Theory of operation. An archive needs two promises of the place where its files are, and `Files`
names them: a file that is there is whole and durable (`put`), and of two writers of one name
exactly one is told that it wrote it (`put_if_absent`). A folder keeps them so: a file is written
under another name, made durable by fsync, and only then gets its own name; then the folder is made
durable. The name is given by rename where nobody else writes it, and by link where somebody might,
because a link fails when the name exists. A file whose name ends in TEMPORARY was never finished.

INV-ARCHIVE-FILES: after a crash a name has all of its bytes or none; what `put` or `put_if_absent`
returned for is there.

References: link(2), fsync(2) ("does not necessarily ensure that the entry in the directory ... has
also reached disk"); All File Systems Are Not Created Equal, OSDI 2014.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from logservice_wire.archive_name import FileRefused, open_below, read_at_most

TEMPORARY: Final = ".tmp"


class Files(Protocol):
    """Where an archive's files are. Names have slashes; a name is written once and never
    changed.
    """

    def check(self) -> None:
        """Try what the place has to promise, before anything is written there. Raises
        InvalidArgument, OSError.
        """
        ...

    def put(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        """A file to write. It is durable under `name` when the context ends, and gone if that ends
        by an error.
        """
        ...

    def put_if_absent(self, name: str, content: bytes) -> bool:
        """Write a small file, durably, unless `name` exists. False: it exists."""
        ...

    def read(self, name: str, bytes_max: int) -> bytes:
        """The bytes of a file. Raises FileNotFoundError, and FileRefused for one that has more, or
        is none of an archive (INV-ARCHIVE-NAME).
        """
        ...

    def open(self, name: str, size: int) -> BinaryIO:
        """A file of that size, to read in any order. Raises FileNotFoundError, FileRefused."""
        ...

    def names(self, under: str) -> list[str]:
        """The names right below `under`, sorted, without it; unfinished files included."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; one that is gone is removed already."""
        ...


class Folder:
    """`Files` in a folder of this machine, which may be a network file system that has links."""

    def __init__(self, root: Path) -> None:
        """`root` exists."""
        self._root = root

    def check(self) -> None:
        """A file system without links says so at the first row."""

    @contextlib.contextmanager
    def put(self, name: str) -> Iterator[BinaryIO]:
        path = self._root / name
        temporary = self._new(path)
        try:
            with open(temporary, "xb", opener=_private) as file:
                yield file
                _sync(file)
            os.rename(temporary, path)
            _sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def put_if_absent(self, name: str, content: bytes) -> bool:
        path = self._root / name
        temporary = self._new(path)
        try:
            with open(temporary, "xb", opener=_private) as file:
                file.write(content)
                _sync(file)
            try:
                os.link(temporary, path)
            except (FileExistsError, FileNotFoundError):
                # It may be gone by the hand of another archiver, who saw that the name exists.
                if not path.exists():
                    raise
                return False
            _sync_folder(path.parent)
            return True
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, name: str, bytes_max: int) -> bytes:
        with open_below(self._root, name) as file:
            return read_at_most(file, bytes_max, name)

    def open(self, name: str, size: int) -> BinaryIO:
        file = open_below(self._root, name)
        found = os.fstat(file.fileno()).st_size
        if found != size:
            file.close()
            raise FileRefused(f"{name}: {found} bytes that are not those that were archived")
        return file

    def names(self, under: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / under))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def _new(self, path: Path) -> Path:
        """An unfinished file's own name; its folder exists, durably."""
        missing = path.parent
        made = []
        while not missing.is_dir():
            made.append(missing)
            missing = missing.parent
        for folder in reversed(made):
            folder.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(folder.parent)
        return path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
