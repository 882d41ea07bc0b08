"""freed_memory: blocks are made of memory that the process has already.

Theory of operation. glibc gives a large piece of memory back to the kernel as soon as it is freed,
and the kernel clears every page of the next one. For answers of a mebibyte that was a third of what
a reader's process spent, and more than a group of smaller blocks cost to make. glibc learns by
itself: once it has seen a larger piece freed, it keeps what is smaller, and up to twice as much of
what is free at the end of each of its arenas. So one large piece is asked for and freed. No page of
it is ever touched. Another library does nothing special for it.
"""

from __future__ import annotations

from typing import Final

_SEEN_BYTES: Final = 8 * 1024 * 1024
"""Several answers of the usual size, which a message is made of piece by piece. 16 MiB that are
free may stay with the process then.
"""


def keep_freed_memory() -> None:
    """For the whole process; again and again costs a few microseconds."""
    bytes(_SEEN_BYTES)
