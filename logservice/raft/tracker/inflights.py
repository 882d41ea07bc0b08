"""Inflights: AppendEntries on the way to one follower, bounded in messages and in bytes.

Each is remembered by its last index. An answer for an index frees everything at or below it,
because a follower acknowledges a prefix. The last one may pass the byte bound, so that a large
entry can go.
"""

from __future__ import annotations

from collections import deque


class Inflights:
    """A sliding window. Mutable, owned by one `Progress`."""

    __slots__ = ("_window", "bytes", "max_bytes", "max_messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        """Start empty; 0 for `max_bytes` means no bound on bytes."""
        self.max_messages = max_messages
        self.max_bytes = max_bytes
        self.bytes = 0
        self._window: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        """Messages on the way."""
        return len(self._window)

    def add(self, last_index: int, size: int) -> None:
        """A message up to `last_index` left; indexes only grow."""
        self._window.append((last_index, size))
        self.bytes += size

    def free_through(self, index: int) -> None:
        """The follower has everything up to `index`."""
        window = self._window
        while window and window[0][0] <= index:
            self.bytes -= window.popleft()[1]

    def full(self) -> bool:
        """No further entries may be sent."""
        return len(self._window) >= self.max_messages or (
            self.max_bytes > 0 and self.bytes >= self.max_bytes
        )

    def reset(self) -> None:
        """Forget everything: what is on the way may be lost."""
        self._window.clear()
        self.bytes = 0
