"""regular_file: the one reader of files that a person names: a configuration, a certificate, a key.

Theory of operation. By the time a file is read its name may lead to anything: a FIFO, at which an
open waits until somebody writes, a device without an end, a directory. So it is opened without
waiting, what was opened is looked at, and no more is read than a file of its kind may have.

INV-FILE-1: reading a file that a person names waits for nothing but its file system, and takes no
more memory than its bound.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable


def read_regular(
    name: str | os.PathLike[str],
    bytes_max: int,
    check: Callable[[os.stat_result], None] = lambda _: None,
) -> bytes:
    """The whole file. `check` raises when the opened file is one that must not be read.

    Raises OSError, whose `strerror` says in words what is wrong.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(name, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(name))
        check(status)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(bytes_max + 1)
    finally:
        os.close(descriptor)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it is longer than {bytes_max} bytes", os.fspath(name))
    return data
