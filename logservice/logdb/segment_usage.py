"""SegmentUsage: how many bytes of which segment are still needed, at any moment.

Every `EntryIndex` reports what it gains and loses (INV-INDEX-4), so choosing what to collect and
telling what pins a segment cost no walk over the entries.
"""

from __future__ import annotations


class SegmentUsage:
    """Live entry bytes, and chunks with them, per segment."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        """Nothing is needed."""
        self._segments: dict[int, tuple[int, int]] = {}

    def add(self, segment: int, live_bytes: int, chunks: int) -> None:
        """Entries of `segment` came to life (or died: negative)."""
        old_bytes, old_chunks = self._segments.get(segment, (0, 0))
        if old_chunks + chunks:
            self._segments[segment] = old_bytes + live_bytes, old_chunks + chunks
        else:
            self._segments.pop(segment, None)

    def live_bytes(self, segment: int) -> int:
        """Bytes of live entries."""
        return self._segments.get(segment, (0, 0))[0]

    def chunks(self, segment: int) -> int:
        """Chunks with live entries."""
        return self._segments.get(segment, (0, 0))[1]

    def total_bytes(self) -> int:
        """Bytes of live entries in all segments."""
        return sum(live for live, _ in self._segments.values())
