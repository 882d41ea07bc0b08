"""SegmentUsage: how many bytes of which segment are still needed, at any moment.

Every `EntryIndex` reports what it gains and loses (INV-INDEX-4), so choosing what to collect and
telling what pins a segment cost no walk over the entries.
"""

from __future__ import annotations

_NOTHING = (0, 0)


class SegmentUsage:
    """Live entry bytes, and chunks with them, per segment."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        """Nothing is needed."""
        self._segments: dict[int, list[int]] = {}

    def add(self, segment: int, live_bytes: int, chunks: int) -> None:
        """Entries of `segment` came to life (or died: negative)."""
        figures = self._segments.get(segment)
        if figures is None:
            self._segments[segment] = [live_bytes, chunks]
            return
        figures[0] += live_bytes
        if chunks:
            figures[1] += chunks
            if not figures[1]:
                del self._segments[segment]

    def live_bytes(self, segment: int) -> int:
        """Bytes of live entries."""
        return self._segments.get(segment, _NOTHING)[0]

    def chunks(self, segment: int) -> int:
        """Chunks with live entries."""
        return self._segments.get(segment, _NOTHING)[1]

    def total_bytes(self) -> int:
        """Bytes of live entries in all segments."""
        return sum(live for live, _ in self._segments.values())
