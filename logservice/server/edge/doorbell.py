"""Doorbell: a thread sleeps until somebody rings, or somebody connects.

Theory of operation. A listening socket that is watched wakes the sleeper when a connection arrives.
Whoever serves it takes the connection at the same time, and when that one is faster the sleeper is
not told: the kernel looks again before it tells. So one connection may come unnoticed, and many may
not: each that arrives gives another chance, and in a flood some are always waiting. Who sleeps here
must look by itself now and then, and is told of a flood at once.

The bell keeps no descriptor of the sockets that it watches. The kernel forgets them when they are
closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from typing import Final

_ARRIVES: Final = select.EPOLLIN | select.EPOLLET


class Doorbell:
    """One per thread that sleeps. `ring` may be called in any thread, at any time."""

    def __init__(self) -> None:
        """Raises OSError: descriptors are short."""
        self._lock = threading.Lock()
        self._closed = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._rings = select.poll()
        self._rings.register(self._bell, select.POLLIN)
        self._all = select.epoll()
        self._all.register(self._bell, select.EPOLLIN)

    def watch(self, listening: int) -> None:
        """Somebody may connect to this socket. Nothing happens if it is watched, or closed."""
        with contextlib.suppress(OSError):
            self._all.register(listening, _ARRIVES)

    def ring(self) -> None:
        """End the sleep, or the next one if nobody sleeps."""
        with self._lock:
            if not self._closed:
                os.eventfd_write(self._bell, 1)

    def sleep(self, seconds: float, *, arrivals: int = 0) -> bool:
        """Return after so long, or when it rings: True. With `arrivals` the sleep also ends when so
        many have connected, or a few more.
        """
        if not arrivals:
            self._rings.poll(seconds * 1000)
            return self._rang()
        until_s = time.monotonic() + seconds
        for _ in range(arrivals):
            told = self._all.poll(max(0.0, until_s - time.monotonic()))
            if self._rang():
                return True
            if not told:
                break
        return False

    def _rang(self) -> bool:
        try:
            return os.eventfd_read(self._bell) > 0
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Nobody sleeps any more; to ring does nothing, and so does to close again: the number may
        be another's descriptor by then.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._all.close()
            os.close(self._bell)
