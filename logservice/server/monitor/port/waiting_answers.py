"""WaitingAnswers: what the admin port keeps in memory for clients that have not read it yet.

Theory of operation. An answer is made whole, and waits until its client has taken it. A client that
does not read costs that memory, and nothing else: no thread waits for it. Together the answers take
at most ADMIN_ANSWER_BYTES_MAX. Where another one does not fit, the connection that has taken
nothing for the longest time loses its answer and its place. One that is larger than the bound is
taken while nothing waits.

INV-ADMIN-4: the answers that wait take at most ADMIN_ANSWER_BYTES_MAX, or there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from logservice import bounds


class WaitingAnswers:
    """One per admin port. Its methods may be called in any thread."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.cut = 0
        """Connections that lost their answer, since the start."""
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[int, Callable[[], None]]] = {}
        """Bytes of each connection, and what ends it; which has taken nothing longest is first."""
        self._size = 0

    @property
    def used(self) -> int:
        """Bytes that wait."""
        return self._size

    def add(self, key: int, size: int, end: Callable[[], None]) -> None:
        """The connection `key` gets an answer; `end` is called if it has to go."""
        victims = []
        with self._lock:
            before, _ = self._waiting.pop(key, (0, end))
            while self._waiting and self._size + size > bounds.ADMIN_ANSWER_BYTES_MAX:
                oldest = next(iter(self._waiting))
                taken, end_oldest = self._waiting.pop(oldest)
                self._size -= taken
                victims.append(end_oldest)
            self._waiting[key] = before + size, end
            self._size += size
            self.cut += len(victims)
        for end_victim in victims:  # without the lock: what they wait for may wait for it
            end_victim()

    def go_on(self, key: int) -> None:
        """The connection has taken a part of its answer."""
        with self._lock:
            if (found := self._waiting.pop(key, None)) is not None:
                self._waiting[key] = found

    def remove(self, key: int) -> None:
        """The connection has taken its answer, or is gone."""
        with self._lock:
            self._size -= self._waiting.pop(key, (0, None))[0]
