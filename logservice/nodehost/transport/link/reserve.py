"""DescriptorReserve: descriptors held back so that known stores can still be dialed.

Theory of operation. When a process has no descriptor left, clients and files fill every one that
becomes free. A store whose connection breaks then could not come back: it would lose its shards'
leaders for want of one number. So some descriptors are held open on nothing. When a dial fails for
lack of a descriptor, a few of them are given up (a context with certificates opens files, too) and
the dial is tried once more. The next dial fills the reserve again as far as that is possible then.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from logservice.bounds import PEER_RESERVED_DESCRIPTORS

NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
"""What the system says when this process, or the machine, has no descriptor left."""

_PER_DIAL: Final = 4
"""A socket, and what loading certificates has open at a time, with room."""


class DescriptorReserve:
    """One per transport."""

    def __init__(self) -> None:
        """Empty until it is filled."""
        self._held: list[int] = []

    def __len__(self) -> int:
        """Descriptors that are held back."""
        return len(self._held)

    def fill(self) -> None:
        """Hold back as many as there should be, or as many as there are."""
        with contextlib.suppress(OSError):
            while len(self._held) < PEER_RESERVED_DESCRIPTORS:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def spend(self) -> bool:
        """Give up enough for one dial; False when there is nothing to give."""
        spent, self._held = self._held[:_PER_DIAL], self._held[_PER_DIAL:]
        for descriptor in spent:
            os.close(descriptor)
        return bool(spent)

    def close(self) -> None:
        """Give up all of them."""
        while self.spend():
            pass
